"""The recorded run, played again at speed: a thread writes its journal line by line, as the runner once did.

The folder is a temporary one; the lock is held as by a runner, so that every screen behaves as with a live run.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

from runner.record.rundir import RunDir, RunLock
from vibetui import recorded

TARGET_S = 45.0  # a newcomer sees it all in less than a minute
_LONGEST_PAUSE_S = 2.0


class Replay(threading.Thread):
    """Plays the recorded journal into a run folder below ``root``; ``speed`` None makes it last TARGET_S."""

    def __init__(self, root: Path, speed: float | None = None) -> None:
        super().__init__(name="replay", daemon=True)
        self.run_dir: RunDir = recorded.unpack(root, without=(recorded.JOURNAL,))
        self._lines = [line for line in recorded.journal().split(b"\n") if line]
        times = [float(json.loads(line)["t"]) for line in self._lines]
        self._at = [t - times[0] for t in times]
        self.speed = speed if speed is not None else max(1.0, self._at[-1] / TARGET_S)
        self._over = threading.Event()
        self._lock: RunLock | None = None

    def label(self) -> str:
        """What the head says, so that nobody takes it for a run of theirs."""
        return f"DEMO ×{self.speed:.0f}" if self.speed >= 1 else f"DEMO ×{self.speed:.2f}"

    def start(self) -> None:
        """Take the lock, write the first line, go on in the thread."""
        self._lock = self.run_dir.acquire()
        super().start()

    def stop(self) -> None:
        """End soon, and let the lock go."""
        self._over.set()
        if self.is_alive():
            self.join(timeout=5)
        if self._lock is not None:
            self._lock.release()

    def run(self) -> None:
        """Write each line at its time."""
        began, behind = time.monotonic(), 0.0
        fd = os.open(self.run_dir.journal_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            for at, line in zip(self._at, self._lines, strict=True):
                due = began + at / self.speed - behind
                wait = due - time.monotonic()
                if wait > _LONGEST_PAUSE_S:
                    behind += wait - _LONGEST_PAUSE_S
                    wait = _LONGEST_PAUSE_S
                if wait > 0 and self._over.wait(wait):
                    return
                os.write(fd, line + b"\n")
        finally:
            os.close(fd)
        if self._lock is not None:
            self._lock.release()
