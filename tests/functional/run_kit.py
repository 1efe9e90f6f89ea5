"""Whole runs for tests: start the real command, follow its journal, kill what it started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from runner.record.events import Event
from runner.record.follow import Follower
from runner.record.rundir import RunDir, list_runs

RUNNER = [sys.executable, "-P", "-m", "runner"]
_NEVER = threading.Event()


def command(*words: str, runs: Path, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    """One `runner` command to its end."""
    return subprocess.run(
        [*RUNNER, *words, "--runs", str(runs)], capture_output=True, text=True, timeout=timeout, cwd=runs, check=False
    )


def descendants(pid: int) -> dict[int, str]:
    """Every process below ``pid`` with its command line, as the host sees them."""
    parents: dict[int, int] = {}
    words: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                words[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    below: dict[int, str] = {}
    frontier = {pid}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier} - set(below)
        below.update({child: words[child] for child in frontier})
    return below


class LiveRun:
    """A run in a process of its own."""

    def __init__(self, process: subprocess.Popen[bytes], rundir: RunDir) -> None:
        self.process = process
        self.rundir = rundir

    def wait_for(self, wanted: Callable[[Event], bool], *, after: int = 0, timeout: float = 240) -> Event:
        """The first event after ``after`` that is ``wanted``; fails when the run ends without it."""
        with Follower(self.rundir.journal_file) as follower:
            for _ in range(int(timeout / 0.02)):
                for event in follower.poll():
                    if event.seq > after and wanted(event):
                        return event
                if self.process.poll() is not None:
                    break
                _NEVER.wait(0.02)
        raise AssertionError(f"the event never came; the run ended with {self.process.poll()}")

    def find(self, word: str, timeout: float = 60) -> list[int]:
        """Pids below the run whose command line has ``word``, as soon as there are some."""
        for _ in range(int(timeout / 0.05)):
            found = [pid for pid, line in descendants(self.process.pid).items() if word in line]
            if found or self.process.poll() is not None:
                return found
            _NEVER.wait(0.05)
        return []

    def kill(self, *pids: int) -> None:
        """SIGKILL; the runner itself without arguments."""
        for pid in pids or (self.process.pid,):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not pids:
            self.process.wait()


@contextmanager
def live(*words: str, runs: Path) -> Iterator[LiveRun]:
    """A started run: its newest folder below ``runs``, known from its journal. Killed at the end of the block."""
    log = (runs / "output.log").open("ab")
    process = subprocess.Popen(
        [*RUNNER, *words, "--runs", str(runs)], stdout=log, stderr=log, cwd=runs, start_new_session=True
    )
    before = {run.name for run in list_runs(runs)} if "resume" not in words else set()
    try:
        rundir = None
        while rundir is None and process.poll() is None:
            found = [run for run in list_runs(runs) if run.name not in before and run.journal_file.exists()]
            rundir = found[0] if found else None
            _NEVER.wait(0.02)
        if rundir is None:
            raise AssertionError((runs / "output.log").read_text())
        yield LiveRun(process, rundir)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        log.close()


def rows(folder: Path) -> list[dict[str, object]]:
    """problems.jsonl of one evaluation."""
    return [json.loads(line) for line in (folder / "problems.jsonl").read_text().splitlines()]
