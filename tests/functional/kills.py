"""A run that is killed again and again: each kill waits for an event of the run's journal, then strikes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from run_kit import LiveRun, descendants, live

from runner.record import events as ev
from runner.record.events import Event
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

    ``when``: the kind of event that is waited for, after the last kill; ``phase`` of a PhaseChanged.
    """

    victim: str
    when: type[object]
    phase: str = ""

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


def suffer(kills: Sequence[Kill], words: Sequence[str], runs: Path, said: Callable[[str], None] = print) -> RunDir:
    """Start the run ``words`` and carry it through all ``kills`` to its end, which must be a good one.

    Each `runner resume` finds the machine in use: a run that waits is still in the phase that it was in.
    """
    pending, seen = list(kills), 0
    while True:
        busy = in_use() if words[0] == "resume" else None
        with live(*words, runs=runs) as run:
            if busy is not None:
                seen = run.wait_for(Kill(RUNNER, ev.PhaseChanged, "waiting").due, after=seen).seq
                busy.release()
            while pending:
                kill = pending.pop(0)
                event = run.wait_for(kill.due, after=seen)
                number = len(kills) - len(pending)
                said(f"{number} of {len(kills)}: {kill.victim or 'the runner'} at {event.payload.kind}")
                seen = event.seq
                if kill.victim == RUNNER:
                    run.kill()
                    break
                strike(run, kill.victim)
            else:
                assert run.process.wait() == 0, (runs / "output.log").read_text()[-3000:]
                return list_runs(runs)[0]
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
    Kill(RUNNER, ev.PhaseChanged, "selecting"),
    Kill(RUNNER, ev.Selected),
    Kill(RUNNER, ev.PhaseChanged, "hidden_test"),
    Kill(RUNNER, ev.HiddenClaimed),
    Kill(ENGINE, ev.HiddenProgress),
    Kill(GRADER, ev.HiddenProgress),
    Kill(RUNNER, ev.HiddenProgress),
    Kill(RUNNER, ev.HiddenFinished),
    Kill(RUNNER, ev.PhaseChanged, "reporting"),
)
