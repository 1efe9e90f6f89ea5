"""Many runs, one summary each: what leaderboards, comparisons and figures over runs read. One run in memory at a time.

Reads only what a summary needs: of the many budget ticks of a journal, the last.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grader.protocol import Delta, Score, SplitInfo
from runner.record.describe import foreign
from runner.record.error import JournalError
from runner.record.events import BudgetTick, Event
from runner.record.fold import fold
from runner.record.line import MAX_LINE, parse_line
from runner.record.naming import Names, names_of
from runner.record.rundir import RunDir, find, list_runs
from runner.record.state import RunState, integrity_count, valid, validation_of
from runner.report.figures_of_merit import Merit, measure
from tasks.spec import COMPONENTS, Component

REFERENCE = "reference"  # the agent of a run in which nobody researches: a fixed system, evaluated as it is
_KEPT = frozenset(
    {
        b"run_started", b"isolation_checked", b"task_loaded", b"run_resumed", b"candidate_created",
        b"train_finished", b"validation_finished", b"selected", b"hidden_claimed", b"hidden_finished", b"integrity",
        b"run_finished",
    }
)  # fmt: skip
_KIND = b'"kind":"'
_TAIL = 64 << 10
_TICK = b'"kind":"budget_tick"'


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What was asked. Only runs with equal benchmarks may be compared; ``hidden`` is the file's sha256, ``same``: its
    problems are those that the agents saw."""

    task: str
    problems: str
    protocol: str
    comparable: bool
    hidden: str
    same: bool = False

    @property
    def called(self) -> Names:
        """What the scores are called."""
        return names_of(self.protocol, same=self.same)


@dataclass(frozen=True, slots=True)
class System:
    """Who worked on what."""

    agent: str
    model: str
    scope: tuple[Component, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """One run, as tables need it. All text is clean. ``points``: budget
    seconds and validation score of the valid candidates, P0 not among them."""

    run: str
    path: Path
    benchmark: Benchmark
    system: System
    seed: int
    status: str
    merit: Merit
    initial: Score | None
    best: Score | None
    selected: Score | None
    hidden_initial: Score | None
    hidden_selected: Score | None
    delta: Delta | None
    points: tuple[tuple[float, float], ...]
    wall_s: float
    tokens: int
    money: float | None
    weak: bool
    integrity: int

    @property
    def tested(self) -> bool:
        """Does the run have a result?"""
        return self.hidden_selected is not None and self.status == "ok"


def chosen_runs(root: Path, names: Sequence[str]) -> list[RunDir]:
    """The runs that ``names`` mean, oldest first: runs, folders of runs; all below ``root`` when none is named."""
    if not names:
        return sorted(list_runs(root), key=lambda run: (run.name, run.task))
    found: dict[Path, RunDir] = {}
    for name in names:
        folder = Path(name)
        inside = [] if (folder / "journal.jsonl").exists() else list_runs(folder) if folder.is_dir() else []
        for run in inside or [find(root, name)]:
            found[run.path.resolve()] = run
    return sorted(found.values(), key=lambda run: (run.name, run.task))


def summaries(runs: Iterable[RunDir]) -> Iterator[Summary]:
    """A summary of each run that has begun; others are left out."""
    for run in runs:
        state = brief(run)
        if state.run is not None:
            yield summary(run, state)


def brief(run: RunDir) -> RunState:
    """The state of a run without what only its own report shows."""
    state = RunState()
    for event in _kept(run.journal_file):
        state = fold(state, event)
    tick = last_tick(run.journal_file)
    return state if tick is None else replace(state, budget=tick)


def _kept(journal: Path) -> Iterator[Event]:
    """The events of the kinds that a summary needs. Other lines are passed over unread: most of a journal."""
    try:
        with journal.open("rb") as file:
            number = 0
            while raw := file.readline(MAX_LINE):
                number += 1
                at = raw.find(_KIND) + len(_KIND)  # the first one is the envelope's: only numbers stand before it
                if raw.endswith(b"\n") and raw[at : raw.find(b'"', at)] in _KEPT:
                    yield parse_line(raw[:-1], number)
    except OSError:
        return


def last_tick(journal: Path) -> BudgetTick | None:
    """The newest budget tick, looked for in the end of the journal."""
    try:
        with journal.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read(_TAIL).split(b"\n")[:-1]
    except OSError:
        return None
    for raw in reversed(lines):
        if _TICK in raw and isinstance(tick := parse_line(raw, 1).payload, BudgetTick):
            return tick
    return None


def summary(run: RunDir, state: RunState) -> Summary:
    """The summary of one run that has begun. Raises JournalError for one that has not."""
    started = state.run
    if started is None:
        raise JournalError("the run has not started", where=run.name)
    merit, hidden = measure(state), state.hidden
    split: SplitInfo | None = state.head.task.hidden if state.head.task else None
    scored = [
        (item.validated_el or 0.0, item.validation.score) for item in valid(state, initial=False) if item.validation
    ]
    return Summary(
        run=foreign(run.name),
        path=run.path,
        benchmark=Benchmark(
            task=foreign(started.task, 40),
            problems=foreign(started.problems, 80),
            protocol=foreign(started.protocol, 40),
            comparable=started.comparable,
            hidden=split.sha256 if split else "",
            same=state.head.task is not None and state.head.task.same,
        ),
        system=System(
            foreign(started.agent, 40),
            foreign(started.model, 60),
            tuple(part for part in COMPONENTS if part in started.scope),
        ),
        seed=started.seed,
        status=state.finished.status if state.finished else "not finished",
        merit=merit,
        initial=state.initial,
        best=state.best.validation if state.best else None,
        selected=validation_of(state, merit.selected_id),
        hidden_initial=hidden.initial if hidden else None,
        hidden_selected=hidden.selected if hidden else None,
        delta=hidden.delta if hidden else None,
        points=tuple(scored),
        wall_s=state.budget.wall_s,
        tokens=state.budget.tokens,
        money=state.budget.money,
        weak=bool(state.weak or state.allowed),
        integrity=integrity_count(state),
    )
