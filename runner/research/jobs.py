"""The desk's jobs: one runs, one may wait. They belong to the desk; clients only watch them.

The jobs decide the label of each budget second: the verb of the running job while a client is blocked on it, ``wait``
while one is blocked on a job that has not got the lease, ``think`` otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

from isolation.problem import BenchError
from runner.record.events import (
    JobQueued,
    JobStatus,
    Payload,
    SampleFinished,
    TrainFinished,
    ValidationFinished,
    Verb,
    Warned,
)
from runner.record.journal import JournalError
from runner.research.budget import Label
from runner.research.candidate import INITIAL
from runner.research.lab import Lab
from runner.research.lease import Holder

Answer = dict[str, Any]
MAX_JOBS = 2
MOST_JOBS = 10_000  # of a research phase: each is lines in the journal, and one that is cancelled at once costs nothing
_HOLDERS: dict[Verb, Holder] = {"train": "training", "validate": "grading", "sample": "sampling"}
_LABELS: dict[Verb, Label] = {"train": "train", "validate": "grade", "sample": "sample"}


class Refusal(Exception):
    """One line for the agent that says what to do; ``more`` goes into the answer (a log, say)."""

    def __init__(self, line: str, **more: Any) -> None:
        super().__init__(line)
        self.line = line
        self.more = more


@dataclass(slots=True, eq=False)
class Job:
    """One order of the agent. It is kept for `vibe wait`, but nothing of what the agent sent with it."""

    id: str
    verb: Verb
    state: Literal["queued", "running", "done"] = "queued"
    note: str = ""
    after: Job | None = None
    lease: bool = True  # False: it needs no accelerator
    model: str | None = None  # of a training: what it made
    stop: JobStatus = "cancelled"  # what it counts as when its task is cancelled
    answer: Answer = field(default_factory=dict)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    watchers: int = 0
    task: asyncio.Task[None] | None = None

    def say(self, note: str) -> None:
        """Progress in one line: the clients that wait see it."""
        self.note = note


class Jobs:
    """All jobs of a research phase. After :meth:`close` nothing starts any more."""

    def __init__(self, lab: Lab, new_id: Callable[[], str], on_crash: Callable[[], None]) -> None:
        self._lab = lab
        self._on_crash = on_crash
        self._new_id = new_id
        self.by_id: dict[str, Job] = {}
        self.closing = False
        self._ended = ""
        self.crash: BaseException | None = None  # an error that is the runner's own: the loop must end the run

    @property
    def active(self) -> list[Job]:
        """Jobs that are not done, in their order."""
        return [job for job in list(self.by_id.values())[-MAX_JOBS:] if job.state != "done"]

    def check_room(self) -> None:
        """Raise the Refusal that a new job would get now, if any."""
        spent = self._lab.budget.exhausted()
        if self.closing or spent:
            raise Refusal(f"the research phase is over{spent and f' ({spent})'}: nothing new is started")
        if len(self.by_id) >= MOST_JOBS:
            raise Refusal(f"all {MOST_JOBS} jobs of this run are used: select a candidate and finish")
        if len(active := self.active) >= MAX_JOBS:
            first, second = active[0].id, active[1].id
            raise Refusal(f"{first} runs and {second} waits: only one may wait. Do `vibe wait {first}` first")

    def submit(
        self,
        verb: Verb,
        prepare: Callable[[Job], Awaitable[None]],
        execute: Callable[[Job], Awaitable[Answer]],
        *,
        lease: bool = True,
    ) -> Job:
        """Take an order: ``prepare`` runs at once (snapshots), ``execute`` when its turn has come. Raises Refusal when
        there is no room.

        ``lease`` False: it runs in its turn like any other, and leaves the accelerator alone.
        """
        self.check_room()
        active = self.active
        job = Job(self._new_id(), verb, after=active[-1] if active else None, lease=lease)
        self.by_id[job.id] = job
        self._lab.journal.append(JobQueued(job=job.id, verb=verb))
        job.task = asyncio.create_task(self._live(job, prepare, execute))
        return job

    def cancel(self, job: Job, why: JobStatus) -> None:
        """End a job; what it becomes in the record is ``why``."""
        if job.state != "done" and job.task is not None and not job.task.cancelling():
            job.stop = why  # once: a second cancellation would break into the first one's cleaning up
            job.task.cancel()

    async def close(self, why: str) -> None:
        """Empty the queue, cut training and sampling, let a running validation finish (it is late). ``why`` is told
        to the clients that wait."""
        self.closing = True
        self._ended = why
        for job in self.active:
            if not (job.verb == "validate" and job.state == "running"):
                self.cancel(job, "cut")
        await asyncio.gather(*(job.task for job in self.active if job.task is not None), return_exceptions=True)

    @contextmanager
    def watching(self, job: Job) -> Iterator[None]:
        """While the block runs, a client is blocked on ``job``."""
        job.watchers += 1
        self.relabel()
        try:
            yield
        finally:
            job.watchers -= 1
            self.relabel()

    def relabel(self) -> None:
        """Switch the budget to the label that holds now: the first that fits."""
        watched = [job for job in self.active if job.watchers]
        running = next((job for job in watched if job.state == "running"), None)
        label: Label = _LABELS[running.verb] if running else ("wait" if watched else "think")
        if label != self._lab.budget.label:
            self._lab.budget.switch(label)

    async def _live(
        self, job: Job, prepare: Callable[[Job], Awaitable[None]], execute: Callable[[Job], Awaitable[Answer]]
    ) -> None:
        """A job's whole life; whatever happens it ends with an answer and an event, or the run ends with it."""
        try:
            await self._lived(job, prepare, execute)
        except Exception as error:
            self.crash = error
            self._on_crash()
        finally:
            job.state, job.after = "done", None
            job.answer = job.answer or {"ok": False, "text": f"{job.id} failed inside the runner. Try it once more"}
            job.done.set()
            self.relabel()

    async def _lived(
        self, job: Job, prepare: Callable[[Job], Awaitable[None]], execute: Callable[[Job], Awaitable[Answer]]
    ) -> None:
        """Prepare, wait, run; what the agent or the machine did wrong is an answer. Raises JournalError: a record that
        lacks an event is none, however soon there is room on the disk again."""
        started = False
        try:
            await prepare(job)
            if job.after is not None:
                await job.after.done.wait()
            async with self._lab.lease.hold(_HOLDERS[job.verb], job.id) if job.lease else nullcontext():
                job.state, started = "running", True
                self.relabel()
                job.say("running")
                job.answer = {"ok": True, **await execute(job)}
        except Refusal as refusal:
            job.answer = {"ok": False, "text": refusal.line, **refusal.more}
            if not started:
                self._never_started(job, "refused", refusal.line)
        except asyncio.CancelledError:
            job.answer = {"ok": False, "text": f"{job.id} was {job.stop}" + (f": {self._ended}" if self._ended else "")}
            if not started:
                self._never_started(job, job.stop, "")
        except JournalError:
            raise
        except BenchError as error:
            job.answer = {"ok": False, "text": f"{job.id} failed: {error}. Try it once more"}
            self._lab.journal.append(Warned(what=f"{job.verb} failed: {error}", where=job.id))
            if not started:
                self._never_started(job, "failed", str(error))

    def _never_started(self, job: Job, status: JobStatus, error: str) -> None:
        """The end of a job that was queued and never got its turn. Its validation had no candidate yet: it is booked
        on c00, whose recorded score no event changes."""
        end: Payload
        match job.verb:
            case "train":
                end = TrainFinished(job=job.id, status=status, seconds=0.0, error=error)
            case "validate":
                end = ValidationFinished(
                    job=job.id, candidate=INITIAL, eval="", status=status, seconds=0.0, error=error
                )
            case "sample":
                end = SampleFinished(job=job.id, model="", prompts=0, n=0, status=status, seconds=0.0, error=error)
        self._lab.journal.append(end)
