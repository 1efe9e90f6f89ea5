"""Going on with a run that crashed or was stopped: what its journal says is still owed."""

from __future__ import annotations

import time
from pathlib import Path

from runner.config import ConfigError, RunConfig
from runner.record.events import (
    Payload,
    Phase,
    RunResumed,
    SampleFinished,
    SampleStarted,
    TrainFinished,
    ValidationFinished,
)
from runner.record.journal import Journal
from runner.record.liveness import boot_id
from runner.record.rundir import RunDir
from runner.record.state import INITIAL, JobState, RunState
from runner.research.budget import Budget
from runner.research.replies import settle


def frozen_config(rundir: RunDir) -> RunConfig:
    """The configuration that the run began with. Raises ConfigError when run.toml was changed since."""
    text, digest = rundir.read_config()
    config = RunConfig.from_toml(text, str(rundir.config_file))
    if config.digest() != digest:
        raise ConfigError("is not the configuration the run began with", where=str(rundir.config_file), do="Restore it")
    return config


def take_up(journal: Journal, budget: Budget) -> None:
    """Restore the budget from the journal and record the time that the runner was down; it is not charged."""
    state = journal.state
    gap = max(0.0, time.time() - state.t)
    budget.restore(state.budget, el=state.el, gap_s=gap)
    phase = last_phase(state)
    journal.append(RunResumed(boot_id=boot_id(), gap_s=round(gap, 3), phase=phase), sync=True)


def last_phase(state: RunState) -> Phase:
    """The phase in which the run was interrupted."""
    before = [mark.phase for mark in state.phases if mark.phase not in ("finished", "waiting")]
    return before[-1] if before else "starting"


def owes_research(state: RunState) -> bool:
    """Whether the research phase is still to come, or was cut. What counts is the phase that the work had reached, not
    that the run waits for the machine; an agent whose end was its last is never started again."""
    return last_phase(state) in ("starting", "baseline", "research") and not state.agent.over


def owes_closing(state: RunState) -> bool:
    """Whether the research phase ended with its agent, and the runner died before it had closed it."""
    return last_phase(state) == "research" and state.agent.over


def open_jobs(state: RunState) -> list[JobState]:
    """Jobs that had not ended: the running one first, then those that waited."""
    running = [state.current] if state.current is not None else []
    return [*running, *state.queue]


def owed_validation(state: RunState) -> JobState | None:
    """The validation that ran when the runner died; its committed waves are not run again."""
    job = state.current
    return job if job is not None and job.verb == "validate" and job.candidate and job.eval else None


def open_evaluation(state: RunState, candidate: str) -> str | None:
    """The unfinished evaluation of ``candidate``, to be gone on with."""
    job = owed_validation(state)
    return job.eval if job is not None and job.candidate == candidate else None


def lost_jobs(state: RunState, samples: Path) -> list[Payload]:
    """The ends of the jobs that a crash took: everything but a validation that was running, which goes on unless the
    research phase is over. What of a teacher's replies had come is kept in ``samples`` under its name: it is paid for.
    """
    owed = None if state.agent.over else owed_validation(state)
    return [_lost(job, samples) for job in open_jobs(state) if owed is None or job.id != owed.id]


def _lost(job: JobState, samples: Path) -> Payload:
    error = "the runner was down; charged to the crash, not to the agent"
    if job.verb == "train":
        return TrainFinished(job=job.id, status="lost", seconds=0.0, error=error)
    if job.lesson is not None:
        return _lost_lesson(job.lesson, samples, error)
    if job.verb == "sample":
        return SampleFinished(job=job.id, model="", prompts=0, n=0, status="lost", seconds=0.0, error=error)
    return ValidationFinished(job=job.id, candidate=INITIAL, eval="", status="lost", seconds=0.0, error=error)


def _lost_lesson(asked: SampleStarted, samples: Path, error: str) -> SampleFinished:
    """The end of a teacher's sampling: a part of it is there, or nothing."""
    replies = settle(samples, asked.sample) if asked.sample else 0
    if replies:
        error += f"; partial: {replies} of {asked.prompts * asked.n} replies are kept in {asked.sample}"
    return SampleFinished(
        job=asked.job,
        model=asked.model,
        prompts=asked.prompts,
        n=asked.n,
        status="lost",
        seconds=0.0,
        error=error,
        teacher=True,
        sample=asked.sample if replies else "",
        replies=replies,
    )
