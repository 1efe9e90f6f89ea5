"""Reading a run folder as hostile: no link is followed, no pipe or device is waited for, no read is unbounded."""

from __future__ import annotations

import contextlib
import os
import stat
from array import array
from pathlib import Path

_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK = 1 << 20
LINE_BYTES = 16_384  # of one line of a log that are shown
MOST_LINES = 5_000_000  # of a log; what comes after them is not looked at


def open_inside(root: Path, name: str) -> int | None:
    """A descriptor of the ordinary file ``root/name``, or None; no part of ``name`` may be a link or ``..``."""
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        return None
    with contextlib.suppress(OSError):
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parts[:-1]:
                inner = os.open(part, _DIR, dir_fd=folder)
                os.close(folder)
                folder = inner
            fd = os.open(parts[-1], _FILE, dir_fd=folder)
        finally:
            os.close(folder)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
    return None


def read_inside(root: Path, name: str, limit: int, *, tail: bool = False) -> bytes | None:
    """At most ``limit`` bytes of a file in the run folder, from its start or its end; None where there is none."""
    fd = open_inside(root, name)
    if fd is None:
        return None
    try:
        start = max(0, os.fstat(fd).st_size - limit) if tail else 0
        pieces: list[bytes] = []
        got = 0
        while got < limit and (piece := os.pread(fd, min(_CHUNK, limit - got), start + got)):
            pieces.append(piece)
            got += len(piece)
        return b"".join(pieces)
    except OSError:
        return None
    finally:
        os.close(fd)


def names_inside(root: Path, name: str, limit: int = 20_000) -> list[str]:
    """The names in a folder of the run folder, sorted; at most ``limit`` are looked at."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in name.split("/"):
                inner = os.open(part, _DIR, dir_fd=folder)
                os.close(folder)
                folder = inner
            with os.scandir(folder) as entries:
                for entry in entries:
                    found.append(entry.name)
                    if len(found) >= limit:
                        break
        finally:
            os.close(folder)
    return sorted(found)


class LogFile:
    """The lines of a growing log by number, read from the disk when they are asked for: 8 bytes of memory a line."""

    def __init__(self, root: Path, name: str) -> None:
        """Nothing is read before :meth:`grow`."""
        self.root, self.name = root, name
        self._fd: int | None = None
        self._starts = array("Q", [0])
        self._end = 0
        self._known: tuple[int, int] = (0, 0)

    def close(self) -> None:
        """Let the file go."""
        if self._fd is not None:
            os.close(self._fd)
        self._fd, self._starts, self._end = None, array("Q", [0]), 0

    def copy(self) -> LogFile:
        """The lines as they are now, for another thread; it closes what it got."""
        other = LogFile(self.root, self.name)
        other._fd = None if self._fd is None else os.dup(self._fd)
        other._starts, other._end = self._starts[:], self._end
        return other

    def grow(self, most: int = 1 << 40) -> int:
        """Find the lines in what was written since, about ``most`` bytes of it at once; returns the bytes taken.

        A replaced file begins again.
        """
        if self._fd is not None and self._replaced():
            self.close()
        if self._fd is None:
            self._fd = open_inside(self.root, self.name)
        took = 0
        with contextlib.suppress(OSError):
            while self._may_go_on(took, most) and (piece := os.pread(self._fd or 0, _CHUNK, self._end)):
                at = piece.find(b"\n")
                while at >= 0:
                    self._starts.append(self._end + at + 1)
                    at = piece.find(b"\n", at + 1)
                self._end += len(piece)
                took += len(piece)
        return took

    def _may_go_on(self, took: int, most: int) -> bool:
        return self._fd is not None and took < most and len(self._starts) < MOST_LINES

    def _replaced(self) -> bool:
        fresh = open_inside(self.root, self.name)
        if fresh is None or self._fd is None:
            return True
        try:
            new, old = os.fstat(fresh), os.fstat(self._fd)
            return (new.st_dev, new.st_ino) != (old.st_dev, old.st_ino) or new.st_size < self._end
        finally:
            os.close(fresh)

    def __len__(self) -> int:
        """Lines, the unfinished last one with them."""
        return len(self._starts) - 1 + (self._end > self._starts[-1])

    def __getitem__(self, number: int) -> str:
        """Line ``number`` from 0; bytes that are no text become �."""
        if self._fd is None or not 0 <= number < len(self):
            return ""
        start = self._starts[number]
        end = self._starts[number + 1] - 1 if number + 1 < len(self._starts) else self._end
        with contextlib.suppress(OSError):
            return os.pread(self._fd, min(end - start, LINE_BYTES), start).decode("utf-8", "replace")
        return ""
