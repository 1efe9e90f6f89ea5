"""What lies beside the journal and explains it: rewards by problem, diffs, trajectories, training curves.

Pure reading, bounded in size, and total: a file that is missing, torn or foreign is as if it were not there. Text in
these files was written by agents, trainers and models: it goes on only through ``foreign`` or ``clean``.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from grader.commit import file_name
from grader.protocol import ProblemRow, Score, TrajectoryStep
from isolation.clean import clean
from runner.record.files import TrainRow
from runner.record.journal import JournalError
from runner.record.rundir import RunDir
from runner.record.state import CandidateState
from tasks.spec import COMPONENTS, Component

Row = TypeVar("Row", bound=BaseModel)
Rewards = dict[str, list[float]]

_MAX_FILE = 64 << 20
_MAX_ROWS = 200_000
_MAX_DIFF = 256 << 10
_COUNTS = ("rows_before", "rows_after", "added", "removed", "changed")


@dataclass(frozen=True, slots=True)
class Change:
    """What a candidate changed in one component: a unified patch (code), or counts and examples (data).

    ``added`` and ``removed`` are examples of data rows. Everything is clean text; ``cut`` says that more was there.
    """

    component: Component
    patch: str = ""
    counts: tuple[tuple[str, float], ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    cut: bool = False


def rewards(folder: Path, *, samples: int) -> Rewards | None:
    """Rewards by problem of the evaluation in ``folder``; None where its rows are not there or do not fit."""
    rows = list(_rows(folder / "problems.jsonl", ProblemRow))
    grouped: Rewards = {}
    seen: set[tuple[str, int]] = set()
    for row in rows:
        if (row.problem, row.sample) in seen or not 0 <= row.reward <= 1:
            return None
        seen.add((row.problem, row.sample))
        grouped.setdefault(row.problem, []).append(row.reward)
    fits = grouped and all(len(values) <= samples for values in grouped.values())
    return grouped if fits else None


def agrees(rows: Rewards, score: Score) -> bool:
    """Do the rows give the recorded score?"""
    total = sum(sum(values) for values in rows.values())
    return len(rows) == score.n and abs(total / (score.n * score.samples) - score.score) < 1e-6


def trajectory(folder: Path, problem: str) -> list[TrajectoryStep]:
    """The steps of one problem of the evaluation in ``folder``, as recorded: foreign text."""
    return list(_rows(folder / "trajectories" / f"{file_name(problem)}.jsonl", TrajectoryStep))


def losses(run: RunDir, model: str) -> list[tuple[int, float]]:
    """(step, loss) as the trainer claimed them; empty for the base."""
    try:
        rows = _rows(run.model(model) / "train.jsonl", TrainRow)
    except JournalError:
        return []
    return [(row.step, row.loss) for row in rows if row.loss is not None and abs(row.loss) < 1e9]


def changes(run: RunDir, candidate: CandidateState, *, lines: int = 60, examples: int = 3) -> list[Change]:
    """What the candidate changed against its parent, component by component, cut to a readable size."""
    try:
        folder = run.candidate(candidate.id) / "diffs"
    except JournalError:
        return []
    found = (_change(folder, component, lines, examples) for component in COMPONENTS)
    return [change for change in found if change is not None]


def _change(folder: Path, component: Component, lines: int, examples: int) -> Change | None:
    if raw := _read(folder / f"{component}.patch", _MAX_DIFF):
        text = clean(raw.decode(errors="replace")).splitlines()
        shown = [line if len(line) <= 240 else line[:239] + "…" for line in text[:lines]]
        return Change(component, patch="\n".join(shown), cut=len(text) > lines)
    summary = _object(_read(folder / f"{component}.json", 4 << 20))
    if not summary:
        return None
    counts: list[tuple[str, Any]] = [(name, summary.get(name)) for name in _COUNTS]
    samples = summary.get("samples")
    kept = samples if isinstance(samples, dict) else {}
    return Change(
        component,
        counts=tuple((name, float(value)) for name, value in counts if _is_number(value)),
        added=_examples(kept.get("added"), examples),
        removed=_examples(kept.get("removed"), examples),
        cut=True,
    )


def _examples(rows: Any, most: int) -> tuple[str, ...]:
    if not isinstance(rows, list):
        return ()
    return tuple(clean(row, 600) for row in rows[:most] if isinstance(row, str))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15


def _rows(path: Path, kind: type[Row]) -> Iterator[Row]:
    """The lines of a file that are a ``kind``; all others are left out."""
    for raw in _read(path, _MAX_FILE).splitlines()[:_MAX_ROWS]:
        try:
            yield kind.model_validate_json(raw)
        except (ValidationError, ValueError, RecursionError):
            continue


def _object(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw) if raw else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _read(path: Path, limit: int) -> bytes:
    """The bytes of a regular file, no link, at most ``limit``; empty where it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, ValueError):
        return b""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return b""
        with os.fdopen(os.dup(fd), "rb") as file:
            return file.read(limit)
    except OSError:
        return b""
    finally:
        os.close(fd)
