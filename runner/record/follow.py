"""Reading a journal while it grows: bounded work per poll, and nothing in the file can make it fail."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from types import TracebackType

from runner.record.events import Event
from runner.record.line import MAX_LINE, damaged, parse_line

_CHUNK = 1 << 20


class Follower:
    """The new events of a journal, poll by poll. A file that is absent, truncated or replaced is met again later.

    After a truncation or replacement it starts over and counts it in ``restarts``: folding the same events again
    changes nothing, but a viewer that sees ``restarts`` move should begin with an empty state.
    """

    def __init__(self, path: Path, *, skip: frozenset[str] = frozenset()) -> None:
        """``skip`` names kinds to leave out without parsing them (a viewer that only wants a summary)."""
        self.path = path
        self.restarts = 0
        self._skip = tuple(f'"kind":"{kind}"'.encode() for kind in skip)
        self._fd = -1
        self._offset = 0  # of the first byte not yet consumed
        self._line = 0
        self._in_long_line = False

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let the file go; a later poll opens it again from the start."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._offset, self._line, self._in_long_line = -1, 0, 0, False

    def poll(self, max_lines: int = 2000, max_seconds: float | None = None) -> list[Event]:
        """At most ``max_lines`` new events, and no more than about ``max_seconds`` of work; empty: none yet."""
        if not self._ready():
            return []
        until = None if max_seconds is None else time.monotonic() + max_seconds
        events: list[Event] = []
        while len(events) < max_lines and (chunk := self._read()):
            self._consume(chunk, events, max_lines, until)
            if until is not None and time.monotonic() >= until:
                break
        return events

    def _ready(self) -> bool:
        try:
            there = self.path.lstat()  # a link is no journal: it could lead anywhere
        except OSError:
            self._restart()
            return False
        if self._fd >= 0 and not self._same(there):
            self._restart()
        if self._fd < 0:
            with contextlib.suppress(OSError):
                self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        return self._fd >= 0

    def _same(self, there: os.stat_result) -> bool:
        """Is the open file still the one at the path, and is our place in it still the end of a line?"""
        mine = os.fstat(self._fd)
        if (mine.st_dev, mine.st_ino) != (there.st_dev, there.st_ino) or mine.st_size < self._offset:
            return False
        return self._offset == 0 or self._in_long_line or os.pread(self._fd, 1, self._offset - 1) == b"\n"

    def _restart(self) -> None:
        if self._fd >= 0:
            self.restarts += 1
            self.close()

    def _read(self) -> bytes:
        """Bytes from our place: at least one whole line where there is one, else empty at the end of what is there."""
        data = b""
        with contextlib.suppress(OSError):
            while more := os.pread(self._fd, _CHUNK, self._offset + len(data)):
                data += more
                if b"\n" in more or self._in_long_line:
                    return data
                if len(data) > MAX_LINE:
                    self._in_long_line = True
                    return data
        return b""

    def _consume(self, data: bytes, events: list[Event], max_lines: int, until: float | None) -> None:
        start = 0
        if self._in_long_line:
            end = data.find(b"\n")
            if end < 0:
                self._offset += len(data)
                return
            start = end + 1
            self._in_long_line = False
            self._take(b"", events, "the line is too long")
        while len(events) < max_lines and (end := data.find(b"\n", start)) >= 0:
            self._take(data[start:end], events)
            start = end + 1
            if until is not None and time.monotonic() >= until:
                break
        self._offset += start

    def _take(self, raw: bytes, events: list[Event], why: str = "") -> None:
        self._line += 1
        if why or len(raw) > MAX_LINE:
            events.append(damaged(self._line, why or "the line is too long"))
        elif not any(mark in raw for mark in self._skip):
            events.append(parse_line(raw, self._line))
