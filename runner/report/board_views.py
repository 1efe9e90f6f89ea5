"""The leaderboard for reading and for programs: text, Markdown, CSV, JSON. Numbers only from its entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from runner.record.describe import delta_text, duration, letters, money, number, percent, score_text, tokens
from runner.record.naming import Names
from runner.report.gather import REFERENCE, System
from runner.report.leaderboard import Board, Entry, Mean
from runner.report.published import Published
from runner.report.searches import Searches
from runner.report.tables import Cell, csv_table, markdown_table, text_table
from runner.report.words import fraction_text, spread_interval, spread_text

Table = Callable[[Sequence[str], Sequence[Sequence[str]]], str]


def _head(called: Names) -> tuple[str, ...]:
    counted = "official" if called.same else called.counted  # the title says on which problems
    return (
        "agent", "model", "scope", f"{counted} ± SEM", f"{counted} 95 %", "Δ_test ± SEM", "Δ_test 95 %", called.seen,
        "time", "tokens", "money", "runs", "notes",
    )  # fmt: skip


CSV_HEAD = (
    "task", "problems", "protocol", "official_is_selection", "comparable", "agent", "model", "scope", "runs",
    "without_result", "hidden_mean", "hidden_sem", "hidden_low", "hidden_high", "delta_mean", "delta_sem", "delta_low",
    "delta_high", "validation_mean", "hours", "tokens", "money", "weak", "integrity",
)  # fmt: skip


def as_text(
    every: Sequence[Board], over: Sequence[Mean], tables: Sequence[Searches], published: Sequence[Published]
) -> str:
    """For the terminal."""
    return "\n".join(_sections(every, over, tables, published, text_table, "{}\n"))


def as_markdown(
    every: Sequence[Board], over: Sequence[Mean], tables: Sequence[Searches], published: Sequence[Published]
) -> str:
    """The same as Markdown."""
    return "# Leaderboard\n\n" + "\n".join(_sections(every, over, tables, published, markdown_table, "## {}\n\n"))


def _sections(
    every: Sequence[Board],
    over: Sequence[Mean],
    tables: Sequence[Searches],
    published: Sequence[Published],
    draw: Table,
    heading: str,
) -> Iterator[str]:
    if not every:
        yield "no runs"
    for board in every:
        shown = (*board.entries, *board.references)
        yield heading.format(_title(board)) + draw(_head(board.benchmark.called), [_row(entry) for entry in shown])
        yield "\n".join(_remarks(board)) + "\n"
    for called in dict.fromkeys(mean.called for mean in over if mean.of > 1):
        rows = [
            [*_names(m.system), percent(m.hidden), delta_text(m.delta), f"{m.n} of {m.of}"]
            for m in over
            if m.called == called
        ]
        head = ("agent", "model", "scope", called.counted, "Δ_test", "benchmarks")
        yield heading.format("Mean over benchmarks") + draw(head, rows)
    for table in tables:
        yield heading.format(f"Searches, on {table.called.SEEN}") + draw(
            ("", "value", *(["published, not run here"] if published else [])), _searches(table, published)
        )
    if published:
        rows = [[f"{item.title} [published]", item.value, item.source, item.where] for item in published]
        yield heading.format("Published, not run here") + draw(("figure", "value", "source", "where"), rows)


def _title(board: Board) -> str:
    asked = board.benchmark
    note = "" if asked.comparable else " (not the published problem set)"
    same = " OFFICIAL = SELECTION SET" if asked.called.same else ""
    return f"{asked.task}/{asked.problems}, protocol {asked.protocol}{note}{same}"


def _names(system: System) -> list[str]:
    return [system.agent, system.model, "–" if system.agent == REFERENCE else letters(system.scope)]


def _row(entry: Entry) -> list[str]:
    alone = entry.runs[0] if len(entry.runs) == 1 else None
    hidden = spread_interval(entry.hidden)
    delta = spread_interval(entry.delta)
    if alone is not None and alone.hidden_selected is not None and alone.delta is not None:
        hidden = score_text(alone.hidden_selected).partition(" % ")[2]
        delta = delta_text(alone.delta).partition(" ")[2]
    fixed = entry.system.agent == REFERENCE  # it moved nothing and gained nothing: neither has a number
    runs = f"{len(entry.runs)}" + (f" (+{entry.others} without result)" if entry.others else "")
    notes = [*(["weak walls"] if entry.weak else []), *([f"integrity {entry.integrity}"] if entry.integrity else [])]
    return [
        *_names(entry.system),
        spread_text(entry.hidden),
        hidden,
        "–" if fixed else spread_text(entry.delta, points=True),
        "–" if fixed else delta,
        spread_text(entry.validation),
        duration(None if entry.hours is None else entry.hours * 3600),
        tokens(None if entry.tokens is None else int(entry.tokens)),
        money(entry.money),
        runs,
        ", ".join(notes) or "–",
    ]


def _remarks(board: Board) -> Iterator[str]:
    called = board.benchmark.called
    if board.references:
        yield "reference: a fixed system, evaluated as it is, ranked nowhere"
    if board.initial is not None:
        yield f"P0 on {called.problems}: {spread_text(board.initial)}, over the runs"
    if board.hidden_leader is not None and board.validation_leader is not None:
        same = board.hidden_leader == board.validation_leader
        on_validation = " ".join(_names(board.validation_leader))
        yield f"{called.seen} leader {on_validation}: {'also' if same else 'not'} the leader on {called.problems}"
    once = "the selected system, tested once a run; one run keeps its own interval, more have one over seeds"
    yield f"{called.counted}: {once}"
    yield "scores in percent, differences in points; time, tokens, money: medians"


def _searches(table: Searches, published: Sequence[Published]) -> list[list[str]]:
    known = {item.key: item for item in published if item.key}
    rows = [
        ("improved", "improved over the first valid attempt", fraction_text(table.improved)),
        ("below", "went on after the peak and ended below", fraction_text(table.below)),
        ("recovered", "went on after the peak and reached it again", fraction_text(table.recovered)),
        ("", "searches", str(table.settings)),
        ("", "median of valid candidates", "–" if table.valid is None else number(table.valid)),
        ("", "median money", money(table.money)),
        ("", "median time", duration(None if table.hours is None else table.hours * 3600)),
        *(("", f"median gain on {name}", _gain(first, initial)) for name, first, initial in table.gains),
    ]
    beside = [[known[key].value if key in known else "–"] if published else [] for key, _, _ in rows]
    return [[title, value, *more] for (_, title, value), more in zip(rows, beside, strict=True)]


def _gain(first: float | None, initial: float | None) -> str:
    return f"{delta_text(first)} over the first valid, {delta_text(initial)} over P0"


def as_csv(every: Sequence[Board]) -> str:
    """One row per system and benchmark; scores in 0…1."""
    return csv_table(
        CSV_HEAD, [_csv_row(board, entry) for board in every for entry in (*board.entries, *board.references)]
    )


def _csv_row(board: Board, entry: Entry) -> list[Cell]:
    asked, hidden, delta = board.benchmark, entry.hidden, entry.delta
    return [
        asked.task, asked.problems, asked.protocol, int(asked.same), int(asked.comparable), *_names(entry.system),
        len(entry.runs), entry.others,
        *((hidden.mean, hidden.sem, hidden.low, hidden.high) if hidden else (None,) * 4),
        *((delta.mean, delta.sem, delta.low, delta.high) if delta else (None,) * 4),
        entry.validation.mean if entry.validation else None, entry.hours, entry.tokens, entry.money, int(entry.weak),
        entry.integrity,
    ]  # fmt: skip


def as_json(
    every: Sequence[Board], over: Sequence[Mean], tables: Sequence[Searches], published: Sequence[Published]
) -> dict[str, Any]:
    """The same for programs; scores in 0…1."""
    return {
        "boards": [
            {
                "benchmark": asdict(board.benchmark),
                "initial_hidden": asdict(board.initial) if board.initial else None,
                "validation_leader": asdict(board.validation_leader) if board.validation_leader else None,
                "hidden_leader": asdict(board.hidden_leader) if board.hidden_leader else None,
                "entries": [_entry(entry) for entry in board.entries],
                "references": [_entry(entry) for entry in board.references],
            }
            for board in every
        ],
        "means": [{**asdict(mean), "called": mean.called.counted} for mean in over],
        "searches": [{**asdict(table), "called": table.called.seen} for table in tables],
        "published": [item.model_dump() for item in published],
    }


def _entry(entry: Entry) -> dict[str, Any]:
    spreads = ("hidden", "delta", "validation", "transfer")
    return {
        "system": asdict(entry.system),
        "runs": [run.run for run in entry.runs],
        "seeds": entry.seeds,
        "without_result": entry.others,
        **{name: asdict(value) if (value := getattr(entry, name)) else None for name in spreads},
        "hours": entry.hours,
        "tokens": entry.tokens,
        "money": entry.money,
        "weak": entry.weak,
        "integrity": entry.integrity,
    }
