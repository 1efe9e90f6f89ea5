"""A matrix of two scopes and three seeds with real runs: killed in the middle of its third cell, and gone on with."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from run_kit import RUNNER, command, descendants

from grader.ledger import Ledger
from runner.matrix import digest_of
from runner.record.journal import load, verify
from runner.record.rundir import RunDir, list_runs

pytestmark = [pytest.mark.long, pytest.mark.timeout(3000)]
CELLS = 6
_NEVER = threading.Event()


def plan(folder: Path) -> Path:
    """Two scopes × three seeds of a run as small as one can be."""
    sets = []
    for split, count in (("validation", 12), ("hidden", 12)):
        file = folder / f"{split}.toml"
        file.write_text(f'seed = "test-{split}"\nproblems = {count}\n')
        sets.append(f"{split}_file={file}")
    file = folder / "matrix.toml"
    file.write_text(
        'scopes = ["data", "data+trainer+harness"]\nseeds = [0, 1, 2]\n'
        f'[run]\nproblems = "mini"\nmodel = "tiny"\nprofile = "laptop"\nbudget = "60s"\nset = {sets!r}\n'
    )
    return file


@contextmanager
def started(file: Path, runs: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The matrix in a process of its own; whatever is left of it is killed at the end of the block."""
    with (runs.parent / "matrix.log").open("ab") as log:
        argv = [*RUNNER, "matrix", str(file), "--runs", str(runs)]
        process = subprocess.Popen(argv, stdout=log, stderr=log, cwd=runs.parent, start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def third_in_research(process: subprocess.Popen[bytes], runs: Path) -> RunDir:
    """The third run, once its agent is at work."""
    while process.poll() is None:
        found = sorted(list_runs(runs), key=lambda run: run.name)
        if len(found) == 3 and found[2].journal_file.exists() and load(found[2].journal_file).agent.running:
            return found[2]
        _NEVER.wait(0.1)
    raise AssertionError((runs.parent / "matrix.log").read_text()[-3000:])


def test_no_cell_runs_twice_and_none_is_lost(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    file = plan(tmp_path)
    with started(file, runs) as first:
        killed = third_in_research(first, runs)
        below = descendants(first.pid)
        first.kill()
        first.wait()
        for pid in below:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    before = {run.name: run.journal_file.read_bytes() for run in list_runs(runs) if run.name != killed.name}
    done = command("matrix", str(file), runs=runs, timeout=2000)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert f"to resume ({killed.name})" in done.stdout and "NOT DONE" not in done.stdout
    found = list_runs(runs)
    assert len(found) == CELLS and max(Counter(map(digest_of, found)).values()) == 1
    for run in found:
        state = load(run.journal_file)
        assert state.finished is not None and state.finished.status == "ok" and verify(run.journal_file).ok
        assert state.hidden is not None and Ledger(run.sealed).claimed() == state.hidden.candidate
        assert state.head.resumes == (1 if run.name == killed.name else 0)
    for name, content in before.items():
        assert next(run for run in found if run.name == name).journal_file.read_bytes() == content
    again = command("matrix", str(file), runs=runs, timeout=200)
    assert again.returncode == 0 and again.stdout.count(": done (") == CELLS
