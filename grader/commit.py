"""The files of one evaluation: waves as they are committed, and the published results made from them alone.

``waves/NNN.jsonl`` (a header, then one line per session) are the truth while an evaluation runs; ``problems.jsonl``,
``trajectories/`` and, last, ``score.json`` follow when all waves are there. Every file is the old one or the new one.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from grader.errors import GraderError
from grader.intervals import score_of
from grader.protocol import (
    GRADER_VERSION,
    EngineConfig,
    ProblemRow,
    ScoreFile,
    SplitInfo,
    TrajectoryStep,
)
from isolation.files import fsync_dir, write_atomic
from tasks.spec import Decoding, Frozen, ProblemLimits, SplitName

Session = tuple[ProblemRow, tuple[TrajectoryStep, ...]]


class Conditions(Frozen):
    """Everything that decides the result of an evaluation; equal conditions have equal digests."""

    grader: str = GRADER_VERSION
    identity: str
    split: SplitName
    problems: SplitInfo
    samples: int
    seed: int
    decoding: Decoding
    limits: ProblemLimits
    engine: EngineConfig
    engine_name: str

    def digest(self) -> str:
        """sha256 over the canonical JSON of all fields."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


class _Header(Frozen):
    wave: int
    seconds: float
    digest: str


class _Line(Frozen):
    row: ProblemRow
    steps: tuple[TrajectoryStep, ...]


@dataclass(frozen=True, slots=True)
class Wave:
    """A wave that ended whole: its number, how many seconds it took and its sessions in order."""

    number: int
    seconds: float
    sessions: tuple[Session, ...]


@dataclass(slots=True)
class _Sum:
    """What the rows of all waves add up to."""

    rewards: dict[str, list[float]]
    reasons: Counter[str] = field(default_factory=Counter)
    overwritten: Counter[str] = field(default_factory=Counter)
    zero_call_solves: int = 0
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    def add(self, row: ProblemRow, steps: Iterable[TrajectoryStep]) -> None:
        self.rewards[row.problem].append(row.reward)
        self.reasons[row.reason] += 1
        self.overwritten.update(name for step in steps for name in step.overwritten)
        self.zero_call_solves += row.calls == 0 and row.reward > 0
        self.calls += row.calls
        self.tokens_in += row.tokens_in
        self.tokens_out += row.tokens_out


class EvalFolder:
    """``out_dir`` of one evaluation under fixed conditions. Waves of other conditions are refused, not mixed."""

    def __init__(self, path: Path, conditions: Conditions) -> None:
        self._path = path
        self._waves = path / "waves"
        self._conditions = conditions
        self._digest = conditions.digest()

    def finished(self) -> ScoreFile | None:
        """The published score, if this evaluation is complete."""
        try:
            score = ScoreFile.model_validate_json((self._path / "score.json").read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError:
            raise GraderError("score.json is damaged", where=str(self._path), do="Move the folder away") from None
        self._same(score.digest)
        return score

    def committed(self) -> frozenset[int]:
        """The numbers of the waves that need not be run again."""
        return frozenset(header.wave for header in self._headers())

    def commit(self, wave: Wave) -> None:
        """Makes a wave durable, whole."""
        self._waves.mkdir(parents=True, exist_ok=True)
        header = _Header(wave=wave.number, seconds=wave.seconds, digest=self._digest)
        lines = [
            header.model_dump_json(),
            *(_Line(row=row, steps=steps).model_dump_json() for row, steps in wave.sessions),
        ]
        write_atomic(self._wave_path(wave.number), "".join(f"{line}\n" for line in lines).encode())

    def publish(self, *, candidate: str, eval_id: str, problems: Sequence[str], reproducible: bool) -> ScoreFile:
        """problems.jsonl, trajectories/ and, last, score.json, from the committed waves: one pass, flat memory."""
        self._path.mkdir(parents=True, exist_ok=True)
        total = self._write_rows(problems)
        conditions = self._conditions
        score = ScoreFile(
            candidate=candidate,
            eval=eval_id,
            split=conditions.split,
            score=score_of(total.rewards, conditions.samples),
            reasons=dict(sorted(total.reasons.items())),
            zero_call_solves=total.zero_call_solves,
            overwritten=dict(sorted(total.overwritten.items())),
            calls=total.calls,
            tokens_in=total.tokens_in,
            tokens_out=total.tokens_out,
            seconds=round(sum(header.seconds for header in self._headers()), 3),
            reproducible=reproducible,
            digest=self._digest,
        )
        write_atomic(self._path / "score.json", (score.model_dump_json(indent=1) + "\n").encode())
        return score

    def _write_rows(self, problems: Sequence[str]) -> _Sum:
        """The sum of all sessions; on the way their rows and, problem by problem, their trajectories are written."""
        total = _Sum(rewards={problem: [] for problem in problems})
        trajectories = self._path / ".trajectories.tmp"
        shutil.rmtree(trajectories, ignore_errors=True)
        trajectories.mkdir()
        rows = self._path / ".problems.jsonl.tmp"
        with rows.open("w", encoding="utf-8") as out:
            for problem, sessions in itertools.groupby(self._sessions(), key=lambda session: session[0].problem):
                steps: list[TrajectoryStep] = []
                for row, own in sessions:
                    total.add(row, own)
                    steps += own
                    out.write(row.model_dump_json() + "\n")
                _write_durable(trajectories / f"{file_name(problem)}.jsonl", steps)
            out.flush()
            os.fsync(out.fileno())
        final = self._path / "trajectories"
        shutil.rmtree(final, ignore_errors=True)
        trajectories.rename(final)
        rows.rename(self._path / "problems.jsonl")
        fsync_dir(final)
        fsync_dir(self._path)
        return total

    def _sessions(self) -> Iterator[Session]:
        """All committed sessions in order; a problem's samples are adjacent."""
        for number in sorted(self.committed()):
            with self._wave_path(number).open(encoding="utf-8") as lines:
                next(lines)
                for text in lines:
                    line = _Line.model_validate_json(text)
                    yield line.row, line.steps

    def _headers(self) -> list[_Header]:
        paths = self._waves.iterdir() if self._waves.is_dir() else ()
        return [self._header(path) for path in paths if re.fullmatch(r"\d{3,}\.jsonl", path.name)]

    def _header(self, path: Path) -> _Header:
        with path.open(encoding="utf-8") as lines:
            header = _Header.model_validate(json.loads(lines.readline()))
        self._same(header.digest)
        return header

    def _same(self, digest: str) -> None:
        if digest != self._digest:
            raise GraderError(
                "the folder holds results of other conditions (model, harness, problems, engine or seed)",
                where=str(self._path),
                do="Resume with what it was begun with, or evaluate into a new folder",
            )

    def _wave_path(self, number: int) -> Path:
        return self._waves / f"{number:03d}.jsonl"


def file_name(problem: str) -> str:
    """A problem id as a file name."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", problem).lstrip(".") or "_"


def _write_durable(path: Path, steps: Iterable[TrajectoryStep]) -> None:
    with path.open("w", encoding="utf-8") as out:
        out.writelines(step.model_dump_json() + "\n" for step in steps)
        out.flush()
        os.fsync(out.fileno())
