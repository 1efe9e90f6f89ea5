"""A matrix of six cells, and the small program that stands in for ``runner`` in it: real processes, folders and locks.

``matrix_program.py matrix ROOT GATE`` runs the matrix; the program it starts is this file again, with the arguments
that ``runner`` would get. Where GATE is a FIFO, the cell of scope data and seed 1 waits in the middle of its run until
someone has opened it for writing and let it go.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from runner.matrix import Cell, Plan, cells, here, locked, run_matrix
from runner.record.events import BudgetLimits, RunFinished, RunResumed, RunStarted
from runner.record.journal import Journal
from runner.record.liveness import boot_id
from runner.record.rundir import RunDir


def digest(arguments: Sequence[str]) -> str:
    return hashlib.sha256(" ".join(arguments).encode()).hexdigest()


def plan() -> list[Cell]:
    return cells(Plan(scopes=("data", "data+harness"), seeds=(0, 1, 2)), digest)


def matrix(root: Path, gate: str) -> None:
    say = partial(print, flush=True)
    with locked(root, wait=True, say=say) as lock:
        program = (sys.executable, "-P", __file__, "cell", gate)
        print("open:", run_matrix(plan(), root, lock, partial(here, program=program), say), flush=True)


def cell(gate: str, words: list[str]) -> None:
    at = words.index("--runs")
    root = Path(words[at + 1])
    if words[0] == "resume":
        run = RunDir(Path(words[1]))
        lock = run.acquire()
        journal = Journal.reopen(run.journal_file, lambda: 1.0)
        journal.append(RunResumed(boot_id=boot_id(), gap_s=1.0, phase="research"))
    else:
        run = RunDir.create(root, "aime", datetime.now())
        run.write_config("", digest(words[:at]))
        lock = run.acquire()
        journal = Journal.create(run.journal_file, lambda: 0.0)
        journal.append(_started(run))
        if "data" in words and words[words.index("--seed") + 1] == "1" and Path(gate).is_fifo():
            with Path(gate).open() as waiting:
                waiting.read()
    journal.append(RunFinished(status="ok"))
    journal.close()
    lock.release()


def _started(run: RunDir) -> RunStarted:
    return RunStarted(
        run=run.name, task="aime", problems="mini", model="tiny", agent="scripted", scope=("data",), seed=0, samples=1,
        profile="laptop", protocol="vibetraining", budget=BudgetLimits(wall_s=1.0), config_digest="", boot_id=boot_id(),
        version="0", comparable=False,
    )  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1] == "matrix":
        matrix(Path(sys.argv[2]), sys.argv[3])
    else:
        os.umask(0o077)
        cell(sys.argv[2], sys.argv[3:])
