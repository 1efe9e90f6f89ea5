"""Ends the sandboxes that were being started when their starter died. Standard library only; one for each starter.

Lines on stdin, a socket that only the starter holds: ``P`` bubblewrap was spawned, ``P I`` the pid of its init is
known, ``P -`` it stands and dies by itself. At the end of stdin whatever was not said to stand is killed: an init that
waits to be released would wait for ever, and nothing in the kernel ends it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys


def take(line: str, starting: dict[int, int]) -> None:
    """Takes in one line; ``starting`` maps bubblewrap to a pidfd of its init, or -1."""
    words = line.split()
    outer = int(words[0])
    before = starting.pop(outer, -1)
    if before >= 0:
        os.close(before)
    if words[1:] == ["-"]:
        return
    starting[outer] = -1
    if words[1:]:
        with contextlib.suppress(ProcessLookupError):
            starting[outer] = os.pidfd_open(int(words[1]))


def end(outer: int, init: int) -> None:
    """Kills one that was being started: by its init, or, where that is not known yet, by its process group."""
    if init >= 0:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(init, signal.SIGKILL)
        select.select([init], [], [], 10)
    while members := [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _group(pid) == outer]:  # noqa: PTH208
        for pid in members:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        os.sched_yield()


def _group(pid: int) -> int:
    """The process group of a living process, 0 for any other."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:  # noqa: PTH123
        fields = stat.read().rpartition(")")[2].split()
        return 0 if fields[0] in "ZX" else int(fields[2])
    return 0


def main() -> None:
    """Listens until the starter is gone, then clears up after it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    starting: dict[int, int] = {}
    for line in sys.stdin:
        take(line, starting)
    for outer, init in starting.items():
        end(outer, init)


if __name__ == "__main__":
    main()
