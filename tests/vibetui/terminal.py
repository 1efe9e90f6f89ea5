"""A real terminal for the real command: a pseudo-terminal whose every byte is kept."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

PATIENCE_S = 60.0  # only ever spent by a test that fails

_SEQUENCE = re.compile(rb"\x1b\[[0-9;?<>=$ ]*[A-Za-z]|\x1b[78=>]")


class Terminal:
    """`vibetui WORDS` in a terminal of 120 × 36 cells."""

    def __init__(self, words: Sequence[str], home: Path, *, command: Sequence[str] | None = None) -> None:
        self._command = list(command or [sys.executable, "-P", "-m", "vibetui"])
        self._command += list(words)
        self._home = home
        self.everything = b""
        self._seen_from = 0

    def __enter__(self) -> Terminal:
        self.fd, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 36, 120, 0, 0))
        self.before = termios.tcgetattr(child)
        self.slave = child
        known = {
            **os.environ,
            "TERM": "xterm-256color",
            "HOME": str(self._home),
            "XDG_STATE_HOME": str(self._home / "state"),
        }
        known.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            self._command, stdin=child, stdout=child, stderr=child, env=known, start_new_session=True, cwd=self._home
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.hang_up()

    def hang_up(self) -> None:
        """Close the terminal, as when its window is closed."""
        for fd in (self.slave, self.fd):
            if fd >= 0:
                os.close(fd)
        self.slave = self.fd = -1

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self.fd], [], [], seconds)
        if not ready:
            return False
        self.everything += os.read(self.fd, 1 << 16)
        return True

    def until(self, text: str) -> None:
        """Read until ``text`` was painted since the last key."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if text in self.painted():
                return
            self._read(0.1)
        raise AssertionError(f"{text!r} was not painted:\n{self.painted()[-3000:]}")

    def painted(self) -> str:
        """What was painted since the last key, without the sequences."""
        return _SEQUENCE.sub(b"", self.everything[self._seen_from :]).decode("utf-8", "replace")

    def press(self, keys: str) -> None:
        """Type; what is painted before it does not count any more."""
        while self._read(0):
            pass
        self._seen_from = len(self.everything)
        os.write(self.fd, keys.encode())

    def ended(self) -> int:
        """Read to the end of the process and return its status."""
        end = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and time.monotonic() < end:
            self._read(0.1)
        while self._read(0):
            pass
        return self.process.wait(timeout=1)

    def restored(self) -> bool:
        """Is the terminal as it was: its modes, its screen, its cursor, its mouse?"""
        modes = termios.tcgetattr(self.slave) == self.before
        left = self.everything.rfind(b"\x1b[?1049l") > self.everything.rfind(b"\x1b[?1049h")
        shown = self.everything.rfind(b"\x1b[?25h") > self.everything.rfind(b"\x1b[?25l")
        mouse = self.everything.rfind(b"\x1b[?1000l") >= self.everything.rfind(b"\x1b[?1000h")
        return modes and left and shown and mouse

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the viewer."""
        self.process.send_signal(number)
