"""report.md: the report for reading. What others wrote can be neither Markdown nor HTML in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from runner.record.describe import (
    clock,
    count,
    delta_text,
    diff_cell,
    duration,
    foreign,
    letters,
    money,
    percent,
    score_text,
    share,
    tokens,
)
from runner.record.events import Split
from runner.record.state import INITIAL, CandidateState, RunState, integrity, integrity_count, validation_of
from runner.report.card import about, caveats, designs_text, peak_text, selection_text
from runner.report.figures_of_merit import Merit, measure
from tasks.spec import COMPONENTS

# As character references, these can open neither Markdown nor HTML and split no table cell.
_SPECIAL = {ord(letter): f"&#{ord(letter)};" for letter in "\\`*_{}[]#|<>&~@$"}
_LINK = re.compile(r"(?i):(?=\S)|(?<=\bwww)\.")  # what a bare address is recognised by


def escape(text: str, limit: int = 300) -> str:
    """Foreign text as one clean line that Markdown shows as it is."""
    safe = foreign(text, limit).translate(_SPECIAL)
    return _LINK.sub(lambda found: f"&#{ord(found[0])};", safe)


def markdown(state: RunState) -> str:
    """The report of a run, finished or not."""
    merit = measure(state)
    name = escape(state.run.run) if state.run else "not started"
    sections = (
        [f"# Run {name}", "", *_status(state), ""],
        _caveats(state),
        ["## Result", "", *_result(state, merit), ""],
        ["## Search", "", *_search(state, merit), ""],
        ["## Candidates", "", *_candidates(state), ""],
        ["## Time and cost", "", *_cost(state, merit), ""],
        _noticed(state),
    )
    return "\n".join(line for section in sections for line in section).rstrip() + "\n"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Cells must be escaped already."""
    names = list(head)
    yield "| " + " | ".join(names) + " |"
    yield "|" + " --- |" * len(names)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def _status(state: RunState) -> list[str]:
    if state.finished is None:
        ended = f"Not finished: phase {state.phase.replace('_', ' ')}."
    else:
        reason = f": {escape(state.finished.reason)}" if state.finished.reason else ""
        ended = f"Finished: {state.finished.status.replace('_', ' ')}{reason}."
    return [*(escape(line, 600) for line in about(state)), "", ended]


def _caveats(state: RunState) -> list[str]:
    known = caveats(state)
    lines = [f"- {escape(line, 600)}" for line in known] or ["- All walls held and nothing was noticed."]
    return ["## Read this first", "", *lines, ""]


def _result(state: RunState, merit: Merit) -> Iterator[str]:
    hidden = state.hidden
    rows = [["P0", INITIAL, score_text(state.initial), score_text(hidden.initial) if hidden else "not run"]]
    if merit.selected_id is not None:
        score = validation_of(state, merit.selected_id)
        on_hidden = score_text(hidden.selected) if hidden else "not run"
        rows.append(["selected", escape(merit.selected_id, 20), score_text(score), on_hidden])
        gain = score.score - merit.initial if score and merit.initial is not None else None
        rows.append(["Δ to P0", "", delta_text(gain), delta_text(hidden.delta) if hidden else "not run"])
    best = state.best
    if best is not None:
        rows.append(["best on validation", escape(best.id, 20), score_text(best.validation), "–"])
    yield from _table(("", "candidate", "validation", "hidden test"), rows)
    yield ""
    yield "Scores in percent with their 95 % interval; differences in points. The hidden test is run once."


def _search(state: RunState, merit: Merit) -> list[str]:
    selected = escape(selection_text(state, merit)) if merit.selected_id else "nothing was selected"
    return [
        f"- {count(merit.valid)} valid of {count(merit.attempts)} validations; {escape(peak_text(merit))}",
        f"- first valid: validation {percent(merit.first)}; peak over first {delta_text(merit.gain_over_first)}",
        f"- first improvement on P0 after {duration(merit.seconds_to_first_improvement)}",
        f"- {selected}",
        f"- designs (candidates that moved a component): {designs_text(merit.designs)}",
    ]


def _candidates(state: RunState) -> Iterator[str]:
    head = (
        "candidate",
        "parent",
        "moved",
        "D",
        "T",
        "H",
        "model",
        "validation",
        "Δ to P0",
        "status",
        "at",
        "hypothesis",
    )
    yield from _table(head, (_candidate(state, item) for item in state.candidates.values()))


def _candidate(state: RunState, item: CandidateState) -> list[str]:
    initial = state.initial
    gain = item.validation.score - initial.score if item.validation and initial else None
    score = score_text(item.validation or item.late)
    return [
        escape(item.id, 20) + (" ★" if item.id == state.trials.best else ""),
        escape(item.parent or "–", 20),
        letters(item.components),
        *(diff_cell(item.diff.get(component)) for component in COMPONENTS),
        escape(item.model or "–", 20),
        score if item.late is None else f"{score} (late, does not count)",
        "–" if item.id == INITIAL else delta_text(gain),
        item.status + (f": {escape(item.error, 120)}" if item.error else ""),
        clock(item.el),
        escape(item.hypothesis),
    ]


def _cost(state: RunState, merit: Merit) -> Iterator[str]:
    split = state.budget.split
    total = sum(getattr(split, name) for name in Split.model_fields)
    rows = ([name, duration(getattr(split, name)), share(getattr(split, name), total)] for name in Split.model_fields)
    yield from _table(("label", "time", "share"), rows)
    limit = f" of {duration(state.run.budget.wall_s)}" if state.run else ""
    yield ""
    yield f"- wall time {duration(state.budget.wall_s)}{limit}; waiting {percent(merit.waiting_share)}"
    yield f"- tokens {tokens(state.budget.tokens)}; money {money(state.budget.money)}"
    yield f"- resumes: {count(state.head.resumes)}; time away, not charged: {duration(state.head.gap_s)}"


def _noticed(state: RunState) -> list[str]:
    kept = integrity(state)
    if not kept:
        return []
    rows = (
        [clock(seen.el), escape(seen.what.what), escape(seen.what.where), escape(getattr(seen.what, "detail", ""))]
        for seen in kept
    )
    more = integrity_count(state) - len(kept)
    rest = ["", f"{count(more)} more of the same kinds were counted."] if more > 0 else []
    return ["## Noticed", "", *_table(("at", "what", "where", "detail"), rows), *rest, ""]
