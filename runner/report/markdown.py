"""report.md: the report for reading. What others wrote can be neither Markdown nor HTML in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from isolation.clean import clean
from runner.record.attempts import Attempt
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
    taught_text,
    tokens,
)
from runner.record.events import Split
from runner.record.naming import names
from runner.record.state import INITIAL, CandidateState, RunState, integrity, integrity_count, validation_of
from runner.report.card import about, caveats, designs_text, peak_text, selection_text, tried_text
from runner.report.evidence import Change
from runner.report.figures_of_merit import Merit, measure
from runner.report.story import Decision, Story
from runner.report.words import conclusion, name_of, pair_text, sureness
from tasks.spec import COMPONENTS

# As character references, these can open neither Markdown nor HTML and split no table cell.
_SPECIAL = {ord(letter): f"&#{ord(letter)};" for letter in "\\`*_{}[]#|<>&~@$"}
_PROBLEMS, _LINES = 12, 14
_LINK = re.compile(r"(?i):(?=\S)|(?<=\bwww)\.")  # what a bare address is recognised by


def escape(text: str, limit: int = 300) -> str:
    """Foreign text as one clean line that Markdown shows as it is."""
    safe = foreign(text, limit).translate(_SPECIAL)
    return _LINK.sub(lambda found: f"&#{ord(found[0])};", safe)


def literal(text: str) -> str:
    """Foreign lines as they are: a block that Markdown and HTML leave alone."""
    safe = clean(text).translate(_SPECIAL)
    return f"<pre>\n{_LINK.sub(lambda found: f'&#{ord(found[0])};', safe)}\n</pre>"


def markdown(state: RunState, story: Story | None = None, figures: Sequence[tuple[str, str]] = ()) -> str:
    """The report of a run, finished or not. With its ``story``, also how sure the numbers are and what each decision
    did; ``figures`` are (file name, title) of pictures in ``figures/``."""
    merit = measure(state)
    name = escape(state.run.run) if state.run else "not started"
    sections = (
        [f"# Run {name}", "", *_status(state), ""],
        _caveats(state),
        ["## Result", "", *_result(state, merit), ""],
        ["## How sure", "", *(f"- {escape(line, 600)}" for line in sureness(story)), ""] if story else [],
        [line for file, title in figures for line in (f"![{title}](figures/{file})", "")],
        ["## Search", "", *_search(state, merit), ""],
        ["## Candidates", "", *_candidates(state), ""],
        ["## Decisions", "", *_decisions(story)] if story and len(story.decisions) > 1 else [],
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
    if state.finished is None and state.phase == "reporting":
        ended = "Complete; written as the run's last step."
    elif state.finished is None:
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
    hidden, called = state.hidden, names(state)
    rows = [["P0", INITIAL, score_text(state.initial), score_text(hidden.initial) if hidden else "not run"]]
    if merit.selected_id is not None:
        score = validation_of(state, merit.selected_id)
        on_hidden = score_text(hidden.selected) if hidden else "not run"
        rows.append(["selected", escape(merit.selected_id, 20), score_text(score), on_hidden])
        gain = score.score - merit.initial if score and merit.initial is not None else None
        rows.append(["Δ to P0", "", delta_text(gain), delta_text(hidden.delta) if hidden else "not run"])
    best = state.best
    if best is not None:
        rows.append([f"best on {called.seen}", escape(best.id, 20), score_text(best.validation), "–"])
    yield from _table(("", "candidate", called.seen, called.test), rows)
    yield ""
    yield f"Scores in percent with their 95 % interval; differences in points. The {called.test} is run once."


def _search(state: RunState, merit: Merit) -> list[str]:
    selected = escape(selection_text(state, merit)) if merit.selected_id else "nothing was selected"
    seen = names(state).seen
    return [
        f"- {escape(tried_text(state, merit))}; {escape(peak_text(merit, seen))}",
        *(f"- invalid attempt {item.n} ({escape(item.job, 12)}): {escape(item.why, 600)}" for item in _invalid(state)),
        f"- first valid: {seen} {percent(merit.first)}; peak over first {delta_text(merit.gain_over_first)}",
        f"- first improvement on P0 after {duration(merit.seconds_to_first_improvement)}",
        f"- {selected}",
        f"- designs (candidates that moved a component): {designs_text(merit.designs)}",
    ]


def _invalid(state: RunState) -> list[Attempt]:
    """The invalid attempts, where they are counted."""
    return [one for one in state.trials.attempts if not one.valid] if names(state).counts_trainings else []


def _candidates(state: RunState) -> Iterator[str]:
    head = (
        "candidate",
        "parent",
        "moved",
        "D",
        "T",
        "H",
        "model",
        names(state).seen,
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


def _decisions(story: Story) -> Iterator[str]:
    """Each candidate against its parent on the same validation problems, and what it changed."""
    yield escape(conclusion(story)) + f" Below, every comparison is on {names(story.state).SEEN} problems."
    yield ""
    for item in story.decisions:
        if item.candidate.id == INITIAL:
            continue
        mark = " ★" if item.selected else ""
        yield f"### {escape(item.candidate.id, 20)}{mark}: {letters(item.candidate.components)}"
        yield ""
        yield from _decision(item)


def _decision(item: Decision) -> Iterator[str]:
    pair, parent = item.to_parent, item.candidate.parent
    if item.candidate.hypothesis:
        yield f"- hypothesis (the agent's words): {escape(item.candidate.hypothesis, 600)}"
    if pair is not None and parent is not None:
        yield f"- against {escape(name_of(parent))}: {escape(pair_text(pair, parent), 600)}"
        for word, problems in (("gained", pair.gained), ("lost", pair.lost)):
            if problems:
                more = f" and {count(len(problems) - _PROBLEMS)} more" if len(problems) > _PROBLEMS else ""
                yield f"- {word}: {', '.join(escape(name, 40) for name in problems[:_PROBLEMS])}{more}"
    if item.to_initial is not None and parent != INITIAL:
        yield f"- against P0: {escape(pair_text(item.to_initial, INITIAL), 600)}"
    yield ""
    for change in item.changes:
        yield from _change(change)


def _change(change: Change) -> Iterator[str]:
    """An excerpt: the page and candidates/ hold more."""
    if change.patch:
        lines = change.patch.split("\n")
        more = ["…"] if change.cut or len(lines) > _LINES else []
        yield literal("\n".join([*(line[:160] for line in lines[:_LINES]), *more]))
    if change.counts:
        counts = ", ".join(f"{name.replace('_', ' ')} {count(int(value))}" for name, value in change.counts)
        yield f"{change.component}: {counts}"
        rows = [
            f"{sign} {row[:200]}" for sign, kept in (("-", change.removed), ("+", change.added)) for row in kept[:1]
        ]
        yield ""
        yield literal("\n".join(rows))
    yield ""


def _cost(state: RunState, merit: Merit) -> Iterator[str]:
    split = state.budget.split
    total = sum(getattr(split, name) for name in Split.model_fields)
    rows = ([name, duration(getattr(split, name)), share(getattr(split, name), total)] for name in Split.model_fields)
    yield from _table(("label", "time", "share"), rows)
    limit = f" of {duration(state.run.budget.wall_s)}" if state.run else ""
    yield ""
    yield f"- wall time {duration(state.budget.wall_s)}{limit}; waiting {percent(merit.waiting_share)}"
    yield f"- tokens {tokens(state.budget.tokens)}; money {money(state.budget.money)}"
    yield from _teacher(state)
    yield f"- resumes: {count(state.head.resumes)}; time away, not charged: {duration(state.head.gap_s)}"


def _teacher(state: RunState) -> Iterator[str]:
    """What a teacher gave, and which models came of data that holds its words."""
    name = state.run.teacher if state.run else None
    if not name:
        return
    used = state.budget.teacher
    calls = f"{count(used.calls)} calls, {tokens(used.output)} tokens" if used else "not asked"
    yield f"- teacher {escape(name, 60)}: {calls}"
    for model in state.models.values():
        if model.made.taught is not None:
            yield f"- {escape(model.id, 20)}{escape(taught_text(model.made.taught), 300)}"


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
