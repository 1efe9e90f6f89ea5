"""A run that is killed again and again: each kill waits for an event of the run's journal, then strikes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from run_kit import LiveRun, descendants, live

from runner.record import events as ev
from runner.record.events import Event
from runner.record.journal import load
from runner.record.rundir import RunDir, list_runs
from runner.research.lease import MachineLock, machine_lock

RUNNER = ""
TRAINER = "/in/trainer/train.py"
ENGINE = "transformers_server"
GRADER = "grader.server"
AGENT = "/opt/agents/scripted/main.py"


@dataclass(frozen=True)
class Kill:
    """``victim``: a word of the command lines to kill, or RUNNER: then the run is taken up again by `runner resume`.

    ``when``: the kind of event that is waited for, after the last kill; ``phase`` of a PhaseChanged. ``passing``: the
    moment is over within milliseconds of the one before it, whose kill may have landed after it: it may be missed.
    """

    victim: str
    when: type[object]
    phase: str = ""
    passing: bool = False

    def due(self, event: Event) -> bool:
        return isinstance(event.payload, self.when) and self.phase in ("", getattr(event.payload, "phase", ""))


def strike(run: LiveRun, victim: str) -> None:
    """SIGKILL to everything below the run whose command line has ``victim``."""
    pids = run.find(victim)
    assert pids, (victim, descendants(run.process.pid))
    run.kill(*pids)


def in_use() -> MachineLock:
    """The lock of this machine, held by the test."""
    return asyncio.run(machine_lock("cpu", wait=True, on_wait=print, owner="a test"))


def over(run: RunDir) -> bool:
    """Whether the run had ended well before its runner was killed: nothing is left to go on with."""
    finished = load(run.journal_file).finished
    return finished is not None and finished.status == "ok"


@dataclass
class Ordeal:
    """A table of kills on its way through a run. ``struck``: those that landed; ``resumes``: how often the run had to
    be gone on with."""

    pending: list[Kill]
    seen: int = 0
    struck: list[Kill] = field(default_factory=list)
    resumes: int = 0

    def next(self, run: LiveRun) -> Kill:
        """Wait for the moment of the next kill; of those that pass quickly, for the first that is still to come."""
        sure = next((n for n, kill in enumerate(self.pending) if not kill.passing), len(self.pending) - 1)
        near = self.pending[: sure + 1]
        event = run.wait_for(lambda event: any(kill.due(event) for kill in near), after=self.seen)
        kill = next(kill for kill in near if kill.due(event))
        self.pending = self.pending[self.pending.index(kill) + 1 :]
        self.seen = event.seq
        self.struck.append(kill)
        return kill


def suffer(kills: Sequence[Kill], words: Sequence[str], runs: Path, said: Callable[[str], None] = print) -> Ordeal:
    """Start the run ``words`` and carry it through ``kills`` to its end, which must be a good one.

    Each `runner resume` finds the machine in use: a run that waits is still in the phase that it was in.
    """
    ordeal = Ordeal(list(kills))
    while True:
        going_on = words[0] == "resume" and not over(list_runs(runs)[0])
        busy = in_use() if going_on else None
        with live(*words, runs=runs) as run:
            if busy is not None:
                ordeal.resumes += 1
                ordeal.seen = run.wait_for(Kill(RUNNER, ev.PhaseChanged, "waiting").due, after=ordeal.seen).seq
                busy.release()
            while ordeal.pending and not over(run.rundir):
                kill = ordeal.next(run)
                said(f"{len(ordeal.struck)}: {kill.victim or 'the runner'} at {kill.when.__name__} {kill.phase}")
                if kill.victim == RUNNER:
                    run.kill()
                    break
                strike(run, kill.victim)
            else:
                assert run.process.wait() == 0, (runs / "output.log").read_text()[-3000:]
                assert all(kill.passing for kill in ordeal.pending), ordeal.pending
                return ordeal
        words = ("resume",)


SIX = (
    Kill(RUNNER, ev.ValidationStarted),
    Kill(TRAINER, ev.TrainStarted),
    Kill(ENGINE, ev.ValidationStarted),
    Kill(RUNNER, ev.TrainStarted),
    Kill(GRADER, ev.ValidationStarted),
    Kill(RUNNER, ev.HiddenProgress),
)

# Every phase, each process that can die in it, and both sides of every step that is written down.
ALL_PHASES = (
    Kill(RUNNER, ev.RunStarted),
    Kill(RUNNER, ev.IsolationChecked),
    Kill(RUNNER, ev.TaskLoaded),
    Kill(RUNNER, ev.PhaseChanged, "baseline"),
    Kill(ENGINE, ev.ValidationStarted),
    Kill(GRADER, ev.ValidationProgress),
    Kill(RUNNER, ev.ValidationProgress),
    Kill(RUNNER, ev.PhaseChanged, "research"),
    Kill(RUNNER, ev.AgentStarted),
    Kill(RUNNER, ev.CandidateCreated),
    Kill(RUNNER, ev.ValidationStarted),
    Kill(TRAINER, ev.TrainStarted),
    Kill(RUNNER, ev.TrainStarted),
    Kill(AGENT, ev.TrainProgress),  # not sooner: an agent that dies at once is not started again
    Kill(RUNNER, ev.TrainProgress),
    Kill(RUNNER, ev.ModelCreated),
    Kill(RUNNER, ev.TrainFinished),
    Kill(ENGINE, ev.ValidationStarted),
    Kill(GRADER, ev.ValidationStarted),
    Kill(RUNNER, ev.ValidationFinished),
    Kill(RUNNER, ev.AgentEnded),
    Kill(RUNNER, ev.PhaseChanged, "selecting", passing=True),
    Kill(RUNNER, ev.Selected, passing=True),
    Kill(RUNNER, ev.PhaseChanged, "hidden_test"),
    Kill(RUNNER, ev.HiddenClaimed),
    Kill(ENGINE, ev.HiddenProgress),
    Kill(GRADER, ev.HiddenProgress),
    Kill(RUNNER, ev.HiddenProgress),
    Kill(RUNNER, ev.HiddenFinished),
    Kill(RUNNER, ev.PhaseChanged, "reporting", passing=True),
)
