"""``runner reference``: a fixed system (a human-made instruct model, say) under a task's own decoding and harness.

It is a run in which nobody researches: the given model with the task's initial harness is P0, is validated, is selected
by the policy ``reference`` and has the one hidden test, claimed in a ledger of its own. Its agent is called
``reference``, so that every table draws it as a line and ranks it nowhere.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from isolation.problem import BenchError
from runner.config import RunConfig
from runner.loop import baseline, hidden_test
from runner.opening import opened, printer, start_event
from runner.record.events import PhaseChanged, RunFinished, Selected
from runner.record.journal import Journal
from runner.record.rundir import RunDir
from runner.record.state import INITIAL
from runner.report.gather import REFERENCE
from runner.report.publish import front_page, publish_or_less
from runner.research.budget import Budget


def as_reference(config: RunConfig) -> RunConfig:
    """The configuration with nobody in it."""
    return config.model_copy(update={"agent": REFERENCE})


async def start(config: RunConfig, runs: Path, *, wait: bool, as_json: bool) -> int:
    """Evaluate the reference in a new run folder below ``runs``; returns the exit code."""
    config = as_reference(config)
    rundir = RunDir.create(runs, config.task, datetime.now())
    rundir.write_config(config.to_toml(), config.digest())
    lock = rundir.acquire()
    budget = Budget(config.budget)
    journal = Journal.create(rundir.journal_file, budget.el)
    out = printer(config, as_json)
    journal.subscribe(out)
    try:
        journal.append(start_event(config, rundir), sync=True)
        await _evaluate(config, rundir, journal, budget, wait=wait)
        out.finish(journal.state, front_page(rundir))
        return 0
    except BenchError as error:
        if journal.state.finished is None:
            journal.append(RunFinished(status="failed", reason=str(error)), sync=True)
        raise
    finally:
        journal.close()
        lock.release()


async def _evaluate(config: RunConfig, rundir: RunDir, journal: Journal, budget: Budget, *, wait: bool) -> None:
    async with opened(config, rundir, journal, budget, wait=wait, resumed=False) as run:
        await baseline(run)
        journal.append(Selected(candidate=INITIAL, by="policy", policy=REFERENCE, final=True), sync=True)
        await hidden_test(run, run.registry.candidates[INITIAL])
        journal.append(PhaseChanged(phase="reporting"))
        journal.append(RunFinished(status="ok"), sync=True)
        publish_or_less(rundir, journal.state)
