"""Starting `runner` as a process of its own: a new session, nothing inherited from this terminal.

A viewer never holds a run. What the child says goes into a file; from it comes the name of the run folder.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from runner.record.rundir import RunDir, holder_alive, list_runs
from vibetui.text import one_line

_WAIT_S = 120.0
_LOOK_S = 0.1


class StartError(Exception):
    """The run did not start; the text is what `runner` said."""


def command(words: Sequence[str]) -> list[str]:
    """The very command that a person would type, by this interpreter."""
    return [sys.executable, "-P", "-m", "runner", *words]


def start(words: Sequence[str], runs: Path, leaving: threading.Event | None = None) -> RunDir:
    """Start `runner WORDS` detached; returns its run folder once there is one. Raises StartError where it refuses.

    ``leaving`` ends the wait, never the run: the viewer is being closed.
    """
    leaving = leaving or threading.Event()
    before = {run.path for run in list_runs(runs)}
    child, said = _spawn(words)
    until = time.monotonic() + _WAIT_S
    while time.monotonic() < until and not leaving.is_set():
        ended = child.poll()
        for run in list_runs(runs):
            if run.path not in before and (holder_alive(run.lock_file) or _names(said, run)):
                return run
        if ended is not None:
            raise _refused(said, ended)
        leaving.wait(_LOOK_S)
    raise StartError(f"no run folder after {_WAIT_S:.0f} s; see {said}")


def resume(run: RunDir, leaving: threading.Event | None = None) -> None:
    """Start `runner resume RUN` detached; returns when it holds the run. Raises StartError where it refuses."""
    leaving = leaving or threading.Event()
    child, said = _spawn(["resume", str(run.path.resolve())])
    until = time.monotonic() + _WAIT_S
    while time.monotonic() < until and not leaving.is_set():
        if holder_alive(run.lock_file):
            return
        if child.poll() is not None:
            raise _refused(said, child.returncode)
        leaving.wait(_LOOK_S)
    raise StartError(f"not resumed after {_WAIT_S:.0f} s; see {said}")


def _spawn(words: Sequence[str]) -> tuple[subprocess.Popen[bytes], Path]:
    fd, name = tempfile.mkstemp(prefix="vibetui-runner-", suffix=".log")
    try:
        child = subprocess.Popen(
            command(words),
            stdin=subprocess.DEVNULL,
            stdout=fd,
            stderr=fd,
            start_new_session=True,
            close_fds=True,
        )
    finally:
        os.close(fd)
    return child, Path(name)


def _names(said: Path, run: RunDir) -> bool:
    return re.search(rf"\b{re.escape(run.name)}\b", _text(said)) is not None


def _text(said: Path) -> str:
    try:
        return said.read_bytes()[:65536].decode("utf-8", "replace")
    except OSError:
        return ""


def _refused(said: Path, status: int | None) -> StartError:
    """What the child said, once; its file is not needed any more."""
    words = _last_words(said) or f"runner ended with status {status}"
    said.unlink(missing_ok=True)
    return StartError(words)


def _last_words(said: Path) -> str:
    return "\n".join(one_line(part, 300) for part in _text(said).strip().splitlines()[-4:])
