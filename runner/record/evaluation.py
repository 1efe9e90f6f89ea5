"""What an evaluation left behind, read as hostile bytes, and two evaluations compared problem by problem.

Reading is total: a line that is not a row is left out and counted. Nothing here is a gold answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from grader.intervals import rewards_of
from runner.record.events import ProblemRow, TrajectoryStep
from runner.record.pairs import Pair, paired

MAX_ROW = 4 << 20  # bytes; a longer line is left out

Row = TypeVar("Row", bound=BaseModel)


def rows_of(raw: bytes) -> tuple[list[ProblemRow], int]:
    """The rows of problems.jsonl, and how many lines were none."""
    return _read(raw, ProblemRow)


def steps_of(raw: bytes) -> tuple[list[TrajectoryStep], int]:
    """The steps of one trajectory, and how many lines were none."""
    return _read(raw, TrajectoryStep)


def _read(raw: bytes, kind: type[Row]) -> tuple[list[Row], int]:
    kept, bad = [], 0
    for line in raw.split(b"\n"):
        if not line.strip():
            continue
        try:
            if len(line) > MAX_ROW:
                raise ValueError
            kept.append(kind.model_validate_json(line))
        except (ValidationError, ValueError):
            bad += 1
    return kept, bad


def means(rows: Iterable[ProblemRow], samples: int) -> dict[str, float]:
    """The mean reward of each problem over the ``samples`` that were scheduled, in 0…1."""
    sums: dict[str, float] = {}
    for row in rows:
        reward = row.reward if math.isfinite(row.reward) else 0.0
        sums[row.problem] = sums.get(row.problem, 0.0) + reward
    return {problem: min(1.0, max(0.0, total / max(1, samples))) for problem, total in sums.items()}


def compared(before: Sequence[ProblemRow], after: Sequence[ProblemRow], samples: int) -> Pair | None:
    """``after`` against ``before`` over the same problems; None where they cannot be paired."""
    problems = list(dict.fromkeys(row.problem for row in before))
    try:
        return paired(rewards_of(before, problems), rewards_of(after, problems), samples)
    except ValueError:
        return None
