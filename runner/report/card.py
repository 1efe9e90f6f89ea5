"""The card: a whole run on one small screen. What weakens the numbers comes before the numbers."""

from __future__ import annotations

from collections.abc import Mapping

from runner.record.describe import (
    count,
    delta_text,
    duration,
    foreign,
    letters,
    money,
    percent,
    score_text,
    split_text,
    tokens,
)
from runner.record.events import BudgetLimits
from runner.record.naming import Names, names
from runner.record.state import INITIAL, RunState, integrity_count, validation_of
from runner.report.figures_of_merit import Merit, measure
from tasks.spec import COMPONENTS, LETTERS, Component


def card(state: RunState) -> str:
    """The card of a run, finished or not; several lines of plain, clean text."""
    merit = measure(state)
    lines = [_title(state), *caveats(state), *about(state), "", *_scores(state, merit), "", *_search(state, merit)]
    return "\n".join(lines) + "\n"


def _title(state: RunState) -> str:
    name = foreign(state.run.run) if state.run else "a run that has not started"
    if state.finished is None:
        return f"run {name}: not finished, phase {state.phase.replace('_', ' ')}"
    reason = f" ({foreign(state.finished.reason, 160)})" if state.finished.reason else ""
    return f"run {name}: {state.finished.status.replace('_', ' ')}{reason}"


def caveats(state: RunState) -> list[str]:
    """One line for each thing that a reader must know before any number; empty when there is none."""
    lines = []
    if state.allowed:
        lines.append("MISSING WALLS, allowed by the person who ran this: " + _names(state.allowed))
    if state.weak:
        lines.append("WEAK WALLS: " + _names(state.weak))
    if noticed := integrity_count(state):
        kinds = (f"{foreign(name, 60)} ×{count(group.count)}" for name, group in state.notes.integrity.items())
        lines.append(f"INTEGRITY: {count(noticed)} noticed: " + ", ".join(kinds))
    called = names(state)
    if called.same:
        lines.append("OFFICIAL = SELECTION: the official score is on the selection problems themselves, drawn anew")
    if state.hidden is not None and state.hidden.status == "candidate_crash":
        lines.append(f"CRASH: the selected candidate crashed the engine in the {called.test}; its open samples score 0")
    if state.unknown_count:
        lines.append(f"RECORD: {count(state.unknown_count)} lines of the journal could not be understood")
    if state.run is not None and not state.run.comparable:
        lines.append(
            f"These are not {foreign(state.run.task, 40).upper()} scores: the problem set is "
            f"“{foreign(state.run.problems, 80)}”, not the published one."
        )
    return lines


def _names(walls: tuple[str, ...]) -> str:
    return ", ".join(foreign(wall, 80) for wall in walls)


def about(state: RunState) -> list[str]:
    """What the run was, in one line."""
    run = state.run
    if run is None:
        return []
    parts = (
        f"task {foreign(run.task, 40)}",
        f"problems {foreign(run.problems, 80)}",
        f"model {foreign(run.model, 60)}",
        f"agent {foreign(run.agent, 40)}",
        f"scope {letters(run.scope)}",
        f"seed {run.seed}",
        *([f"protocol {foreign(run.protocol, 40)}"] if run.protocol != "vibetraining" else []),
        *([f"teacher {foreign(run.teacher, 60)}"] if run.teacher else []),
    )
    return [" · ".join(parts)]


def _scores(state: RunState, merit: Merit) -> list[str]:
    """P0, the selected and the best: every number says of which split it is."""
    hidden, called = state.hidden, names(state)
    rows = [("P0", INITIAL, score_text(state.initial), score_text(hidden.initial) if hidden else "not run")]
    if merit.selected_id is not None:
        on_hidden = score_text(hidden.selected) if hidden else "not run"
        rows.append(("selected", merit.selected_id, score_text(validation_of(state, merit.selected_id)), on_hidden))
        known = merit.regret is not None and merit.initial is not None
        gain = _gain(state, merit) if known else None
        rows.append(("Δ", "", delta_text(gain), delta_text(hidden.delta) if hidden else "not run"))
    lines = [_score_row(called, *row) for row in rows]
    best = state.best
    if best is None:
        return [
            *lines,
            "best: no valid attempt" if called.counts_trainings else "best: no valid validation",
        ]
    return [*lines, f"{'best':<9}{foreign(best.id, 8):<6}{called.seen} {score_text(best.validation)}"]


def _gain(state: RunState, merit: Merit) -> float | None:
    score = validation_of(state, merit.selected_id)
    return None if score is None or merit.initial is None else score.score - merit.initial


def _score_row(called: Names, name: str, candidate: str, on_validation: str, on_hidden: str) -> str:
    label = called.delta if name == "Δ" else called.counted
    return f"{name:<9}{foreign(candidate, 8):<6}{called.seen} {on_validation:<29} {label} {on_hidden}"


def _search(state: RunState, merit: Merit) -> list[str]:
    limits = state.run.budget if state.run else None
    used = duration(state.budget.wall_s) + (f" of {duration(limits.wall_s)}" if limits else "")
    lines = [
        f"search   {tried_text(state, merit)}; {peak_text(merit, names(state).seen)}",
        f"designs  {designs_text(merit.designs)}",
        f"time     {used}: {split_text(state.budget.split)}",
        f"waiting  {percent(merit.waiting_share)} of the time",
        f"used     tokens {tokens(state.budget.tokens)} · money {money(state.budget.money)}{_limit(limits)}",
    ]
    return [*([selection_text(state, merit)] if merit.selected_id else ["selected: nothing"]), *lines]


def _limit(limits: BudgetLimits | None) -> str:
    return f" of {money(limits.money)}" if limits is not None and limits.money is not None else ""


def tried_text(state: RunState, merit: Merit) -> str:
    """``5 valid of 7 validations``; where attempts are counted, also why the invalid ones were none."""
    called = names(state)
    text = f"{count(merit.valid)} valid of {count(merit.attempts)} {called.looks}"
    if not called.counts_trainings:
        return text
    whys = [attempt for attempt in state.trials.attempts if not attempt.valid]
    return text + (f" (invalid: {', '.join(foreign(one.job, 12) for one in whys[:8])})" if whys else "")


def selection_text(state: RunState, merit: Merit) -> str:
    """Who selected, and what the choice cost and carried over."""
    called = names(state)
    if state.selected is None:
        who = "unknown"
    else:
        who = "the agent" if state.selected.by == "agent" else f"the policy {foreign(state.selected.policy, 40)}"
    parts = [f"selected by {who}", f"{called.seen} regret {delta_text(merit.regret)}"]
    if merit.transfer is not None:
        parts.append(f"transfer ({called.counted} − {called.seen}) {delta_text(merit.transfer)}")
    return "; ".join(parts)


def peak_text(merit: Merit, seen: str = "validation") -> str:
    """The peak on validation (or what it is called) and what came after it."""
    if merit.peak is None:
        return "no peak"
    gain = f", {delta_text(merit.gain_over_initial)} over P0" if merit.gain_over_initial is not None else ""
    where = f"peak {foreign(merit.peak_id or '', 12)} {seen} {percent(merit.peak)}{gain}"
    return f"{where} after {duration(merit.seconds_to_peak)}; {merit.after_peak}"


def designs_text(designs: Mapping[Component, int]) -> str:
    """``D 4 · T 1 · H 6``: candidates that moved each component."""
    return " · ".join(f"{LETTERS[component]} {count(designs.get(component, 0))}" for component in COMPONENTS)
