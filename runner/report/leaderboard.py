"""``runner leaderboard``: systems compared over many runs. Runs on different problems are never averaged together.

A result is the one hidden test of a finished run; validation numbers stand beside it, labelled. Means over seeds have
their standard error and a t-interval over seeds; a single run keeps the interval of its own paired problems.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from runner.record.naming import Names
from runner.report.gather import REFERENCE, Benchmark, Summary, System
from runner.report.statistics import Spread, median, spread


@dataclass(frozen=True, slots=True)
class Entry:
    """One system on one benchmark. ``runs`` have a result, ``others`` have none (stopped, failed, not finished)."""

    system: System
    runs: tuple[Summary, ...]
    others: int
    hidden: Spread | None
    delta: Spread | None
    validation: Spread | None
    transfer: Spread | None
    hours: float | None
    tokens: float | None
    money: float | None
    weak: bool
    integrity: int

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the runs with a result."""
        return tuple(sorted(run.seed for run in self.runs))


@dataclass(frozen=True, slots=True)
class Board:
    """All systems on one benchmark, best hidden mean first. ``references`` are fixed systems: shown beside, ranked
    nowhere. ``initial``: P0 on hidden problems, over the runs."""

    benchmark: Benchmark
    entries: tuple[Entry, ...]
    references: tuple[Entry, ...]
    initial: Spread | None
    validation_leader: System | None
    hidden_leader: System | None


@dataclass(frozen=True, slots=True)
class Mean:
    """A system over all benchmarks of a protocol: the mean of its means, of ``of`` benchmarks it has ``n``."""

    system: System
    n: int
    of: int
    hidden: float
    delta: float
    called: Names


def boards(runs: Iterable[Summary]) -> list[Board]:
    """One board per benchmark, by task and problems."""
    ordered = sorted(runs, key=lambda run: (_benchmark_key(run.benchmark), run.run))
    return [
        _board(benchmark, list(group))
        for benchmark, group in groupby(ordered, key=lambda run: run.benchmark)
        if benchmark.hidden or benchmark.task
    ]


def _benchmark_key(benchmark: Benchmark) -> tuple[str, str, str, bool, str, bool]:
    return (
        benchmark.task,
        benchmark.problems,
        benchmark.protocol,
        benchmark.comparable,
        benchmark.hidden,
        benchmark.same,
    )


def _board(benchmark: Benchmark, runs: list[Summary]) -> Board:
    by_system: dict[System, list[Summary]] = {}
    for run in runs:
        by_system.setdefault(run.system, []).append(run)
    every = sorted((_entry(system, mine) for system, mine in by_system.items()), key=_rank)
    entries = [entry for entry in every if entry.system.agent != REFERENCE]
    tested = [entry for entry in entries if entry.hidden is not None]
    validated = [entry for entry in entries if entry.validation is not None]
    searched = [run for run in runs if run.tested and run.system.agent != REFERENCE]
    first = [run.hidden_initial.score for run in searched if run.hidden_initial]
    return Board(
        benchmark,
        tuple(entries),
        tuple(entry for entry in every if entry.system.agent == REFERENCE),
        initial=spread(first, least=0.0),
        validation_leader=max(validated, key=lambda e: _mean(e.validation)).system if validated else None,
        hidden_leader=tested[0].system if tested else None,
    )


def _mean(value: Spread | None) -> float:
    return value.mean if value is not None else float("-inf")


def _rank(entry: Entry) -> tuple[float, str, str]:
    return (-_mean(entry.hidden), entry.system.agent, "".join(entry.system.scope))


def _entry(system: System, runs: Sequence[Summary]) -> Entry:
    tested = tuple(run for run in runs if run.tested)
    return Entry(
        system=system,
        runs=tested,
        others=len(runs) - len(tested),
        hidden=spread([run.hidden_selected.score for run in tested if run.hidden_selected], least=0.0),
        delta=spread([run.delta.value for run in tested if run.delta]),
        validation=spread([run.selected.score for run in tested if run.selected], least=0.0),
        transfer=spread([run.merit.transfer for run in tested if run.merit.transfer is not None]),
        hours=median([run.wall_s / 3600 for run in tested]),
        tokens=median([float(run.tokens) for run in tested]),
        money=median([run.money for run in tested if run.money is not None]),
        weak=any(run.weak for run in runs),
        integrity=sum(run.integrity for run in runs),
    )


def means(every: Sequence[Board]) -> list[Mean]:
    """Each system over the benchmarks whose scores are called the same, those with all benchmarks first, then by hidden
    mean."""
    found: list[Mean] = []
    for called in dict.fromkeys(board.benchmark.called for board in every):
        found += _means([board for board in every if board.benchmark.called == called], called)
    return found


def _means(every: Sequence[Board], called: Names) -> list[Mean]:
    by_system: dict[System, list[Entry]] = {}
    for board in every:
        for entry in board.entries:
            if entry.hidden is not None and entry.delta is not None:
                by_system.setdefault(entry.system, []).append(entry)
    found = [
        Mean(
            system,
            n=len(entries),
            of=len(every),
            hidden=sum(_mean(entry.hidden) for entry in entries) / len(entries),
            delta=sum(_mean(entry.delta) for entry in entries) / len(entries),
            called=called,
        )
        for system, entries in by_system.items()
    ]
    return sorted(found, key=lambda mean: (-mean.n, -mean.hidden))
