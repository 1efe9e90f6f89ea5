"""Run folders made for a test: one that is empty, and one whose initial system is being evaluated."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from runner.record import events as ev
from runner.record.journal import Journal
from runner.record.rundir import RunDir


def fresh(tmp_path: Path) -> RunDir:
    """A run folder in which nothing has happened."""
    run = RunDir(tmp_path / "runs" / "aime" / "2026-11-30T12-00-00-7f3a")
    for name in ("control", "logs"):
        (run.path / name).mkdir(parents=True)
    return run


def started(run: RunDir, boot: str, now: Callable[[], float] = time.time) -> Journal:
    """A journal whose run evaluates its initial system: 34 of 120 problems are done."""
    journal = Journal.create(run.journal_file, lambda: 0.0, now=now)
    journal.append(
        ev.RunStarted(
            run=run.name, task="aime", problems="mini", model="tiny", agent="scripted", scope=("data",), seed=0,
            samples=1, profile="laptop", protocol="vibetraining",
            budget=ev.BudgetLimits(wall_s=1200.0, tokens=420_000, money=5.0),
            config_digest="d" * 64, boot_id=boot, version="0.1.0", comparable=True,
        )
    )  # fmt: skip
    journal.append(ev.PhaseChanged(phase="baseline"))
    journal.append(
        ev.CandidateCreated(
            candidate="c00", parent=None, model="m00", data="d" * 16, trainer="t" * 16, harness="h" * 16
        )
    )
    journal.append(ev.ValidationStarted(job="j000", candidate="c00", eval="e001", problems=120, samples=1))
    journal.append(ev.ValidationProgress(job="j000", candidate="c00", done=34, total=120))
    return journal
