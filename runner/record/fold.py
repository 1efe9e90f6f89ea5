"""``fold(state, event)``: the one meaning of every event. Pure, total, and the same event twice changes nothing.

A handler gets the state, the payload and the new mark, and makes one new state. Small parts are replaced, and what
can grow without bound is counted and kept only up to a limit, so that ten times the events take ten times the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from runner.record import events as ev
from runner.record.attempts import after_training, after_validation
from runner.record.events import Event
from runner.record.state import (
    CandidateState,
    Group,
    JobState,
    Mark,
    ModelState,
    PhaseMark,
    Progress,
    RunState,
    Seen,
    Trials,
)

_KEPT = 20  # notices kept of one kind
_KINDS = 64  # kinds told apart; the rest is counted as "other"
_MARKS = 64  # phases and requests kept
_QUEUE = 16

K = TypeVar("K")
V = TypeVar("V")
Ended = ev.TrainFinished | ev.ValidationFinished | ev.SampleFinished


def fold(state: RunState, event: Event) -> RunState:
    """The state after ``event``. An event that was folded already, or an older one, changes nothing."""
    old = state.mark
    if event.v < 1:
        return _damaged(state, event)
    if event.seq <= old.seq:
        return state
    mark = Mark(event.seq, max(event.t, old.t), max(event.el, old.el), old.events + 1, old.damaged, old.damaged_line)
    return _HANDLERS[type(event.payload)](state, event.payload, mark)


def _damaged(state: RunState, event: Event) -> RunState:
    """Lines that cannot be read have no number of their own: they are told apart by the line they stand in."""
    old = state.mark
    if event.seq <= old.damaged_line:
        return state
    return replace(state, mark=replace(old, damaged=old.damaged + 1, damaged_line=event.seq))


def _put(mapping: Mapping[K, V], key: K, value: V) -> dict[K, V]:
    return {**mapping, key: value}


# -- the run ---------------------------------------------------------------------------------------------------------


def _run_started(state: RunState, said: ev.RunStarted, mark: Mark) -> RunState:
    head = replace(state.head, started=said, started_t=mark.t, boot_id=said.boot_id)
    return replace(state, mark=mark, head=head)


def _isolation(state: RunState, said: ev.IsolationChecked, mark: Mark) -> RunState:
    """A resumed run is checked again: what was once weak or allowed stays on the card."""
    old = state.head.isolation or said
    weak = tuple(dict.fromkeys((*old.weak, *said.weak)))[:_KINDS]
    allowed = tuple(dict.fromkeys((*old.allowed, *said.allowed)))[:_KINDS]
    return replace(
        state, mark=mark, head=replace(state.head, isolation=ev.IsolationChecked(weak=weak, allowed=allowed))
    )


def _task_loaded(state: RunState, said: ev.TaskLoaded, mark: Mark) -> RunState:
    return replace(state, mark=mark, head=replace(state.head, task=said))


def _phase(state: RunState, said: ev.PhaseChanged, mark: Mark) -> RunState:
    phases = (*state.phases, PhaseMark(said.phase, mark.t, mark.el))[-_MARKS:]
    return replace(state, mark=mark, phase=said.phase, phases=phases)


def _resumed(state: RunState, said: ev.RunResumed, mark: Mark) -> RunState:
    """A run that was stopped had said that it was over; now it is not."""
    old = state.head
    head = replace(old, boot_id=said.boot_id, resumes=old.resumes + 1, gap_s=old.gap_s + said.gap_s)
    phases = (*state.phases, PhaseMark(said.phase, mark.t, mark.el))[-_MARKS:]
    agent = replace(state.agent, running=False)
    outcome = replace(state.outcome, finished=None)
    return replace(state, mark=mark, head=head, phase=said.phase, phases=phases, agent=agent, outcome=outcome)


def _finished(state: RunState, said: ev.RunFinished, mark: Mark) -> RunState:
    outcome = replace(state.outcome, finished=said, finished_t=mark.t)
    return replace(state, mark=mark, phase="finished", outcome=outcome)


def _tick(state: RunState, said: ev.BudgetTick, mark: Mark) -> RunState:
    return replace(state, mark=mark, budget=said)


# -- the agent -------------------------------------------------------------------------------------------------------


def _agent_started(state: RunState, said: ev.AgentStarted, mark: Mark) -> RunState:
    old = state.agent
    version, session = said.version or old.version, said.session or old.session
    agent = replace(old, name=said.agent, version=version, session=session, starts=old.starts + 1, running=True)
    return replace(state, mark=mark, agent=replace(agent, ended="", over=False, exit_code=None))


def _agent_turn(state: RunState, said: ev.AgentTurn, mark: Mark) -> RunState:
    old = state.agent
    session = said.session or old.session
    agent = replace(old, turns=old.turns + 1, saying=said.summary, tool=said.tool, session=session)
    return replace(state, mark=mark, agent=agent)


def _agent_ended(state: RunState, said: ev.AgentEnded, mark: Mark) -> RunState:
    over = said.final or said.reason in ("finished", "deadline")  # a journal of before ``final`` says the reason only
    agent = replace(state.agent, running=False, ended=said.reason, over=over, exit_code=said.exit_code)
    return replace(state, mark=mark, agent=agent)


# -- candidates and models -------------------------------------------------------------------------------------------


def _with_candidate(trials: Trials, candidate: CandidateState) -> Trials:
    return replace(trials, candidates=_put(trials.candidates, candidate.id, candidate))


def _candidate_created(state: RunState, said: ev.CandidateCreated, mark: Mark) -> RunState:
    """The first word about a candidate is the one that counts: its id stands for (model, harness)."""
    old = state.candidates.get(said.candidate)
    if old is not None and old.model:
        return replace(state, mark=mark)
    made = replace(
        old or CandidateState(said.candidate),
        parent=said.parent,
        model=said.model,
        data=said.data,
        trainer=said.trainer,
        harness=said.harness,
        components=said.components,
        diff=said.diff,
        hypothesis=said.hypothesis,
        el=mark.el,
    )
    return replace(state, mark=mark, trials=_with_candidate(state.trials, made))


def _model_created(state: RunState, said: ev.ModelCreated, mark: Mark) -> RunState:
    job = state.jobs.get(said.job) if said.job else None
    running = state.current if state.current and state.current.id == said.job else None
    hypothesis = (job or running or JobState("", "train")).hypothesis
    models = _put(state.models, said.model, ModelState(said, mark.el, hypothesis))
    return replace(state, mark=mark, trials=replace(state.trials, models=models))


# -- jobs ------------------------------------------------------------------------------------------------------------


def _begin(state: RunState, mark: Mark, job: JobState, total: int) -> RunState:
    """``job`` runs now. One that still ran was lost without a word."""
    work, trials = state.work, state.trials
    if work.current is not None and work.current.id != job.id:
        lost = replace(work.current, status="lost")
        trials = replace(trials, jobs=_put(trials.jobs, lost.id, lost))
    queued = next((item for item in work.queue if item.id == job.id), None)
    begun = replace(
        job,
        status="running",
        queued_el=queued.queued_el if queued else mark.el,
        started_el=mark.el,
        started_t=mark.t,
    )
    queue = tuple(item for item in work.queue if item.id != job.id)
    work = replace(work, current=begun, progress=Progress(0, total), queue=queue)
    return replace(state, mark=mark, work=work, trials=trials)


def _end(state: RunState, mark: Mark, verb: ev.Verb, said: Ended) -> RunState:
    """The job of ``said`` is over, wherever it stood."""
    work = state.work
    running = work.current is not None and work.current.id == said.job
    known = work.current if running else next((item for item in work.queue if item.id == said.job), None)
    ended = replace(
        known or JobState(said.job, verb, queued_el=mark.el),
        status=said.status,
        seconds=said.seconds,
        error=said.error,
    )
    queue = tuple(item for item in work.queue if item.id != said.job)
    work = replace(
        work,
        current=None if running else work.current,
        progress=Progress() if running else work.progress,
        queue=queue,
    )
    return replace(state, mark=mark, work=work, trials=replace(state.trials, jobs=_put(state.jobs, ended.id, ended)))


def _job_queued(state: RunState, said: ev.JobQueued, mark: Mark) -> RunState:
    job = JobState(said.job, said.verb, queued_el=mark.el)
    queue = (*(item for item in state.queue if item.id != said.job), job)[-_QUEUE:]
    return replace(state, mark=mark, work=replace(state.work, queue=queue))


def _train_started(state: RunState, said: ev.TrainStarted, mark: Mark) -> RunState:
    return _begin(state, mark, JobState(said.job, "train", hypothesis=said.hypothesis), 0)


def _progressed(state: RunState, mark: Mark, job: str, progress: Progress) -> RunState:
    if state.current is None or state.current.id != job:
        return replace(state, mark=mark)
    return replace(state, mark=mark, work=replace(state.work, progress=progress))


def _train_progress(state: RunState, said: ev.TrainProgress, mark: Mark) -> RunState:
    return _progressed(state, mark, said.job, Progress(said.step, said.steps, said.loss))


def _train_finished(state: RunState, said: ev.TrainFinished, mark: Mark) -> RunState:
    after = _end(state, mark, "train", said)
    job = replace(after.jobs[said.job], model=said.model or "")
    attempts = after_training(state.trials.attempts, said)
    return replace(after, trials=replace(after.trials, jobs=_put(after.jobs, job.id, job), attempts=attempts))


def _validation_started(state: RunState, said: ev.ValidationStarted, mark: Mark) -> RunState:
    job = JobState(said.job, "validate", candidate=said.candidate, eval=said.eval)
    after = _begin(state, mark, job, said.problems * said.samples)
    old = after.candidates.get(said.candidate, CandidateState(said.candidate))
    if old.validation is not None:
        return after
    return replace(after, trials=_with_candidate(after.trials, replace(old, status="validating", eval=said.eval)))


def _validation_progress(state: RunState, said: ev.ValidationProgress, mark: Mark) -> RunState:
    return _progressed(state, mark, said.job, Progress(said.done, said.total))


def _validation_finished(state: RunState, said: ev.ValidationFinished, mark: Mark) -> RunState:
    after = _end(state, mark, "validate", said)
    old = after.candidates.get(said.candidate, CandidateState(said.candidate))
    attempts = after_validation(state.trials.attempts, said, known=old.validation is not None)
    after = replace(after, trials=replace(after.trials, attempts=attempts))
    if old.validation is not None or said.repeat:  # the first valid score is the score
        return after
    if said.status == "ok" and said.score is not None:
        return replace(after, trials=_newly_valid(after.trials, old, said, mark.el))
    late = said.score if said.status == "late" else None
    changed = replace(old, status=_unscored(said), late=late, eval=said.eval, error=said.error, seconds=said.seconds)
    return replace(after, trials=_with_candidate(after.trials, changed))


def _unscored(said: ev.ValidationFinished) -> Any:
    """``ok`` without a score is no validation."""
    return "failed" if said.status == "ok" else said.status


def _newly_valid(trials: Trials, old: CandidateState, said: ev.ValidationFinished, el: float) -> Trials:
    candidate = replace(
        old,
        status="ok",
        validation=said.score,
        validated_el=el,
        eval=said.eval,
        error="",
        cached=said.cached,
        seconds=said.seconds,
    )
    best = trials.candidates[trials.best].validation if trials.best else None
    rises = said.score is not None and (best is None or said.score.score > best.score)
    after = _with_candidate(trials, candidate)
    return replace(after, valid=(*trials.valid, candidate.id), best=candidate.id if rises else trials.best)


def _sample_started(state: RunState, said: ev.SampleStarted, mark: Mark) -> RunState:
    return _begin(state, mark, JobState(said.job, "sample", model=said.model, lesson=said), said.prompts * said.n)


def _sample_finished(state: RunState, said: ev.SampleFinished, mark: Mark) -> RunState:
    return _end(state, mark, "sample", said)


def _lease(state: RunState, said: ev.LeaseChanged, mark: Mark) -> RunState:
    """A sampling has no start of its own: it starts when it gets the lease."""
    queued = next((job for job in state.queue if job.id == said.job and job.verb == "sample"), None)
    after = _begin(state, mark, queued, 0) if queued is not None and said.holder == "sampling" else state
    return replace(after, mark=mark, work=replace(after.work, lease=said))


# -- the end ---------------------------------------------------------------------------------------------------------


def _selected(state: RunState, said: ev.Selected, mark: Mark) -> RunState:
    old = state.selected
    if old is not None and old.final:
        return replace(state, mark=mark)
    return replace(state, mark=mark, outcome=replace(state.outcome, selected=said))


def _claimed(state: RunState, said: ev.HiddenClaimed, mark: Mark) -> RunState:
    claimed = state.outcome.claimed or said.candidate
    return replace(state, mark=mark, outcome=replace(state.outcome, claimed=claimed))


def _hidden_progress(state: RunState, said: ev.HiddenProgress, mark: Mark) -> RunState:
    outcome = replace(state.outcome, progress=Progress(said.done, said.total), note=said.note)
    return replace(state, mark=mark, outcome=outcome)


def _hidden_finished(state: RunState, said: ev.HiddenFinished, mark: Mark) -> RunState:
    hidden = state.hidden or said
    return replace(state, mark=mark, outcome=replace(state.outcome, hidden=hidden))


# -- what was noticed ------------------------------------------------------------------------------------------------


def _noticed(groups: Mapping[str, Group], seen: Seen) -> Mapping[str, Group]:
    name = seen.what.what if seen.what.what in groups or len(groups) < _KINDS else "other"
    old = groups.get(name, Group())
    first = (*old.first, seen) if len(old.first) < _KEPT else old.first
    return _put(groups, name, Group(old.count + 1, first))


def _integrity(state: RunState, said: ev.Integrity, mark: Mark) -> RunState:
    groups = _noticed(state.notes.integrity, Seen(mark.seq, mark.el, said))
    return replace(state, mark=mark, notes=replace(state.notes, integrity=groups))


def _warned(state: RunState, said: ev.Warned, mark: Mark) -> RunState:
    groups = _noticed(state.notes.warnings, Seen(mark.seq, mark.el, said))
    return replace(state, mark=mark, notes=replace(state.notes, warnings=groups))


def _edit_refused(state: RunState, said: ev.EditRefused, mark: Mark) -> RunState:
    refused = _put(state.notes.refused, said.component, state.notes.refused.get(said.component, 0) + 1)
    return replace(state, mark=mark, notes=replace(state.notes, refused=refused))


def _human(state: RunState, said: ev.HumanAction, mark: Mark) -> RunState:
    actions = (*state.notes.actions, said.action)[-_MARKS:]
    return replace(state, mark=mark, notes=replace(state.notes, actions=actions))


def _unknown(state: RunState, said: ev.Unknown, mark: Mark) -> RunState:
    old = state.notes.unknown
    kind = said.kind if said.kind in old or len(old) < _KINDS else "other"
    return replace(state, mark=mark, notes=replace(state.notes, unknown=_put(old, kind, old.get(kind, 0) + 1)))


_HANDLERS: dict[type, Callable[[RunState, Any, Mark], RunState]] = {
    ev.RunStarted: _run_started,
    ev.IsolationChecked: _isolation,
    ev.TaskLoaded: _task_loaded,
    ev.PhaseChanged: _phase,
    ev.RunResumed: _resumed,
    ev.RunFinished: _finished,
    ev.BudgetTick: _tick,
    ev.AgentStarted: _agent_started,
    ev.AgentTurn: _agent_turn,
    ev.AgentEnded: _agent_ended,
    ev.CandidateCreated: _candidate_created,
    ev.ModelCreated: _model_created,
    ev.JobQueued: _job_queued,
    ev.TrainStarted: _train_started,
    ev.TrainProgress: _train_progress,
    ev.TrainFinished: _train_finished,
    ev.ValidationStarted: _validation_started,
    ev.ValidationProgress: _validation_progress,
    ev.ValidationFinished: _validation_finished,
    ev.SampleStarted: _sample_started,
    ev.SampleFinished: _sample_finished,
    ev.LeaseChanged: _lease,
    ev.Selected: _selected,
    ev.HiddenClaimed: _claimed,
    ev.HiddenProgress: _hidden_progress,
    ev.HiddenFinished: _hidden_finished,
    ev.Integrity: _integrity,
    ev.Warned: _warned,
    ev.EditRefused: _edit_refused,
    ev.HumanAction: _human,
    ev.Unknown: _unknown,
}
