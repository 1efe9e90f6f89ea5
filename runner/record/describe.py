"""The one formatter: numbers as people read them, and one clean line per event.

Everything that shows a run (plain output, views, reports, the terminal interface) takes its words from here, so that
the same number looks the same everywhere. Foreign text goes through :func:`foreign` and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from runner.record import events as ev
from runner.record.events import Event
from runner.record.format import (
    NONE,
    clock,
    count,
    delta_text,
    diff_cell,
    diff_text,
    duration,
    foreign,
    letters,
    money,
    number,
    percent,
    score_text,
    share,
    signed,
    size_text,
    split_text,
    tokens,
    waiting_share,
)
from runner.record.naming import names, names_of
from runner.record.state import INITIAL, RunState, validation_of

__all__ = [
    "NONE",
    "Tone",
    "clock",
    "count",
    "delta_text",
    "describe",
    "diff_cell",
    "diff_text",
    "duration",
    "foreign",
    "letters",
    "money",
    "number",
    "percent",
    "score_text",
    "share",
    "signed",
    "size_text",
    "split_text",
    "taught_text",
    "tokens",
    "tone",
    "waiting_share",
]

_QUIET = (
    ev.JobQueued,
    ev.LeaseChanged,
    ev.BudgetTick,
    ev.AgentTurn,
    ev.TrainProgress,
    ev.ValidationProgress,
    ev.HiddenProgress,
)
Tone = Literal["normal", "quiet", "good", "bad", "strong"]

# -- events ----------------------------------------------------------------------------------------------------------


def describe(event: Event, state: RunState) -> str:
    """One clean line for one event; ``state`` is that after the event (an older or newer one only loses detail)."""
    words = _WORDS[type(event.payload)]
    return foreign(words(event.payload, state), 400)


def tone(event: Event) -> Tone:
    """How loud the line is: what a person must see is ``bad`` or ``strong``."""
    said = event.payload
    if isinstance(said, ev.Integrity | ev.Warned | ev.EditRefused | ev.Unknown):
        return "bad"
    if isinstance(said, ev.TrainFinished | ev.ValidationFinished | ev.SampleFinished):
        return "good" if said.status == "ok" else "bad"
    if isinstance(said, ev.RunFinished | ev.HiddenFinished):
        return "strong" if said.status == "ok" else "bad"
    if isinstance(said, ev.RunStarted | ev.PhaseChanged | ev.Selected | ev.RunResumed | ev.HumanAction):
        return "strong"
    quiet = (
        ev.JobQueued
        | ev.LeaseChanged
        | ev.BudgetTick
        | ev.AgentTurn
        | ev.TrainProgress
        | ev.ValidationProgress
        | ev.HiddenProgress
    )
    return "quiet" if isinstance(said, quiet) else "normal"


def _because(error: str) -> str:
    return f": {foreign(error, 160)}" if error else ""


def _saying(hypothesis: str) -> str:
    return f" “{foreign(hypothesis)}”" if hypothesis else ""


def _run_started(said: ev.RunStarted, _: RunState) -> str:
    about = f"{said.task} · {said.problems} · model {said.model} · agent {said.agent} · scope {letters(said.scope)}"
    limit = f", money {money(said.budget.money)}" if said.budget.money is not None else ""
    rules = f" · protocol {foreign(said.protocol, 40)}" if said.protocol != "vibetraining" else ""
    return f"run {said.run}: {about} · seed {said.seed} · budget {duration(said.budget.wall_s)}{limit}{rules}"


def _isolation(said: ev.IsolationChecked, _: RunState) -> str:
    parts = []
    if said.weak:
        parts.append("weak walls: " + ", ".join(foreign(wall, 60) for wall in said.weak))
    if said.allowed:
        parts.append("MISSING walls, allowed: " + ", ".join(foreign(wall, 60) for wall in said.allowed))
    return "; ".join(parts) or "all walls hold"


def _task_loaded(said: ev.TaskLoaded, state: RunState) -> str:
    called = names_of(state.run.protocol if state.run else "", same=said.same)
    counts = f"{count(said.validation.count)} {called.seen} problems, {count(said.hidden.count)} {called.counted}"
    return f"{counts}; engine {foreign(said.engine, 60)}"


def _phase(said: ev.PhaseChanged, _: RunState) -> str:
    return f"phase: {said.phase.replace('_', ' ')}"


def _agent_started(said: ev.AgentStarted, _: RunState) -> str:
    return f"agent {said.agent} {said.version}".rstrip() + (" goes on" if said.resumed else " starts")


def _agent_turn(said: ev.AgentTurn, _: RunState) -> str:
    return f"agent turn {count(said.n)}: " + " ".join(part for part in (foreign(said.tool, 40), said.summary) if part)


def _agent_ended(said: ev.AgentEnded, _: RunState) -> str:
    code = "" if said.exit_code is None else f", exit {said.exit_code}"
    return f"agent ended: {said.reason}{code}" + ("" if said.signal is None else f", signal {said.signal}")


def _candidate(said: ev.CandidateCreated, _: RunState) -> str:
    if said.parent is None:
        return f"candidate {said.candidate} = model {said.model} + the harness of the task"
    moved = f"{letters(said.components)} against {said.parent} ({diff_text(said.diff)})"
    return f"candidate {said.candidate} = model {said.model}: {moved}{_saying(said.hypothesis)}"


def _refused(said: ev.EditRefused, _: RunState) -> str:
    return f"edit refused: {said.component} {foreign(said.where, 80)}{_because(said.reason)}"


def _queued(said: ev.JobQueued, _: RunState) -> str:
    return f"{said.job} ({said.verb}) waits"


def _train_started(said: ev.TrainStarted, _: RunState) -> str:
    return f"{said.job} trains from {', '.join(said.parents) or 'the base'}{_saying(said.hypothesis)}"


def _train_progress(said: ev.TrainProgress, _: RunState) -> str:
    loss = "" if said.loss is None else f", loss {number(said.loss, 3)}"
    return f"{said.job} training: step {count(said.step)}/{count(said.steps)}{loss}"


def _train_finished(said: ev.TrainFinished, state: RunState) -> str:
    made = f" → model {said.model}" if said.model else ""
    counted = _attempt(said.job, state)
    return f"{said.job} training {said.status}{made} in {duration(said.seconds)}{counted}{_because(said.error)}"


def _attempt(job: str, state: RunState) -> str:
    """Which attempt a job decided, where attempts are counted."""
    if not names(state).counts_trainings:
        return ""
    mine = next((one for one in reversed(state.trials.attempts) if one.job == job), None)
    return f" [attempt {mine.n}: {'valid' if mine.valid else 'INVALID'}]" if mine else ""


def _model(said: ev.ModelCreated, _: RunState) -> str:
    moved = "NO CHANGE against its parent" if said.no_change else f"moved {number(said.delta_norm, 4)}"
    moved = "" if said.format == "base" else f", {moved}"
    return f"model {said.model} ({said.format}, {size_text(said.bytes)}{moved}){taught_text(said.taught)}"


def taught_text(taught: ev.Taught | None) -> str:
    """What of a teacher is in a model's data, as far as it can be seen."""
    if taught is None:
        return ""
    rows = "an unknown number of" if taught.rows is None else count(taught.rows)
    of = f" of {count(taught.of)}" if taught.of is not None else ""
    return f"; data after samples of the teacher {foreign(taught.teacher, 60)}: {rows}{of} rows hold its words"


def _validation_started(said: ev.ValidationStarted, state: RunState) -> str:
    work = f"{count(said.problems)} problems" + (f" × {count(said.samples)} samples" if said.samples > 1 else "")
    return f"{names(state).seen} of {said.candidate} starts: {work}"


def _validation_progress(said: ev.ValidationProgress, state: RunState) -> str:
    return f"{names(state).seen} of {said.candidate}: {count(said.done)}/{count(said.total)}"


def _validation_finished(said: ev.ValidationFinished, state: RunState) -> str:
    what, counted = f"{names(state).seen} of {said.candidate}", _attempt(said.job, state)
    if said.score is None:
        return f"{what} {said.status} after {duration(said.seconds)}{counted}{_because(said.error)}"
    how = " (recorded before)" if said.repeat else " (cached)" if said.cached else f" in {duration(said.seconds)}"
    late = "" if said.status == "ok" else f" [{said.status}: does not count]"
    return f"{what}: {score_text(said.score)}{_against(said, state)}{how}{late}{counted}"


def _against(said: ev.ValidationFinished, state: RunState) -> str:
    """Differences to P0 and to the parent, where they are known and are others."""
    if said.score is None or said.candidate == INITIAL:
        return ""
    known = state.candidates.get(said.candidate)
    names = dict.fromkeys(name for name in (INITIAL, known.parent if known else None) if name)
    scores = ((name, validation_of(state, name)) for name in names)
    parts = [f"{delta_text(said.score.score - other.score)} to {_p0(name)}" for name, other in scores if other]
    return f", {', '.join(parts)}" if parts else ""


def _p0(candidate: str) -> str:
    return "P0" if candidate == INITIAL else candidate


def _sample_started(said: ev.SampleStarted, _: RunState) -> str:
    return f"{said.job} asks the teacher {foreign(said.model, 60)}: {count(said.prompts)} prompts × {count(said.n)}"


def _sample_finished(said: ev.SampleFinished, _: RunState) -> str:
    who = f"the teacher {foreign(said.model, 60)}" if said.teacher else said.model
    work = f"{count(said.prompts)} prompts × {count(said.n)} with {who}"
    return f"{said.job} sampling {said.status}: {work} in {duration(said.seconds)}{_because(said.error)}"


def _lease(said: ev.LeaseChanged, _: RunState) -> str:
    job = f" ({said.job})" if said.job else ""
    return f"accelerator: {said.holder}{job}" if said.holder else "accelerator: free"


def _tick(said: ev.BudgetTick, state: RunState) -> str:
    limits = state.run.budget if state.run else None
    wall = f"{duration(said.wall_s)} of {duration(limits.wall_s)}" if limits else duration(said.wall_s)
    parts = [wall, split_text(said.split)]
    if said.llm is not None or said.teacher is not None or said.tokens:
        limit = limits.tokens if limits else None
        parts.append(f"tokens {tokens(said.tokens)}" + (f" of {tokens(limit)}" if limit is not None else ""))
        known = limits.money if limits else None
        parts.append(f"money {money(said.money)}" + (f" of {money(known)}" if known is not None else ""))
    return "budget: " + "; ".join(parts)


def _integrity(said: ev.Integrity, _: RunState) -> str:
    return f"INTEGRITY {foreign(said.what, 80)}{_at(said.where)}{_because(said.detail)}"


def _warned(said: ev.Warned, _: RunState) -> str:
    return f"warning: {foreign(said.what, 160)}{_at(said.where)}" + (f". {foreign(said.do, 160)}" if said.do else "")


def _at(where: str) -> str:
    return f" at {foreign(where, 80)}" if where else ""


def _human(said: ev.HumanAction, _: RunState) -> str:
    return f"a person asked to {said.action}"


def _resumed(said: ev.RunResumed, _: RunState) -> str:
    return f"the run goes on in phase {said.phase.replace('_', ' ')} after a gap of {duration(said.gap_s)}"


def _selected(said: ev.Selected, state: RunState) -> str:
    who = "the agent" if said.by == "agent" else f"the policy {said.policy}"
    score = validation_of(state, said.candidate)
    known = f" ({names(state).seen} {score_text(score)})" if score else ""
    return f"{who} selects {said.candidate}{known}" + (", final" if said.final else "")


def _claimed(said: ev.HiddenClaimed, state: RunState) -> str:
    return f"{names(state).test} claimed for {said.candidate}: once, and for no other"


def _hidden_progress(said: ev.HiddenProgress, state: RunState) -> str:
    note = f" {foreign(said.note, 60)}" if said.note else ""
    return f"{names(state).test}{note}: {count(said.done)}/{count(said.total)}"


def _hidden_finished(said: ev.HiddenFinished, state: RunState) -> str:
    crash = " (the candidate crashed the engine)" if said.status == "candidate_crash" else ""
    scores = f"P0 {score_text(said.initial)}, {said.candidate} {score_text(said.selected)}"
    return f"{names(state).test}: {scores}, Δ_test {delta_text(said.delta)}{crash}"


def _finished(said: ev.RunFinished, _: RunState) -> str:
    return f"run finished: {said.status.replace('_', ' ')}{_because(said.reason)}"


def _unknown(said: ev.Unknown, _: RunState) -> str:
    return f"unknown event {foreign(said.kind, 40)!r} ({foreign(said.why, 60)})"


_WORDS: dict[type, Callable[[Any, RunState], str]] = {
    ev.RunStarted: _run_started,
    ev.IsolationChecked: _isolation,
    ev.TaskLoaded: _task_loaded,
    ev.PhaseChanged: _phase,
    ev.AgentStarted: _agent_started,
    ev.AgentTurn: _agent_turn,
    ev.AgentEnded: _agent_ended,
    ev.CandidateCreated: _candidate,
    ev.EditRefused: _refused,
    ev.JobQueued: _queued,
    ev.TrainStarted: _train_started,
    ev.TrainProgress: _train_progress,
    ev.TrainFinished: _train_finished,
    ev.ModelCreated: _model,
    ev.ValidationStarted: _validation_started,
    ev.ValidationProgress: _validation_progress,
    ev.ValidationFinished: _validation_finished,
    ev.SampleStarted: _sample_started,
    ev.SampleFinished: _sample_finished,
    ev.LeaseChanged: _lease,
    ev.BudgetTick: _tick,
    ev.Integrity: _integrity,
    ev.Warned: _warned,
    ev.HumanAction: _human,
    ev.RunResumed: _resumed,
    ev.Selected: _selected,
    ev.HiddenClaimed: _claimed,
    ev.HiddenProgress: _hidden_progress,
    ev.HiddenFinished: _hidden_finished,
    ev.RunFinished: _finished,
    ev.Unknown: _unknown,
}
