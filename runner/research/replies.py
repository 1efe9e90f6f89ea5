"""The replies of a teacher on the disk: each is paid for, so none is lost with the process that asked for it.

While they come they lie in NAME.partial.jsonl, in the order in which they came; at the end, or after a crash, in
NAME.jsonl, in the order of the prompts. Both are where the agent reads.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from isolation.files import fsync_dir, write_all, write_atomic

EVERY = 8  # replies between two times that the disk is waited for; the kernel has each at once

Row = Mapping[str, Any]


def whole_file(folder: Path, name: str) -> Path:
    """The replies of the sample ``name``, once no more come."""
    return folder / f"{name}.jsonl"


def partial_file(folder: Path, name: str) -> Path:
    """Its replies while they come."""
    return folder / f"{name}.partial.jsonl"


def taken(folder: Path, name: str) -> bool:
    """Is anything there under ``name``, from whatever run of the program?"""
    return whole_file(folder, name).exists() or partial_file(folder, name).exists()


class Replies:
    """The open file of one sample's replies. :meth:`close` makes it the whole file."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._count = 0
        path = partial_file(folder, name)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        fsync_dir(folder)

    def add(self, row: Row) -> None:
        """Keep one reply."""
        write_all(self._file, _line(row))
        self._count += 1
        if self._count % EVERY == 1:
            os.fsync(self._file)

    def close(self) -> int:
        """No more come; how many there are."""
        os.close(self._file)
        return settle(self._folder, self._name)


def settle(folder: Path, name: str) -> int:
    """Make the whole file of what has come, after an end or a crash wherever it struck; the number of replies."""
    partial, whole = partial_file(folder, name), whole_file(folder, name)
    if partial.exists():
        rows = sorted(_rows(partial), key=lambda row: (row["prompt"], row["sample"]))
        if rows:
            write_atomic(whole, b"".join(map(_line, rows)))
        partial.unlink()
        return len(rows)
    return sum(1 for _ in _rows(whole))


def _rows(path: Path) -> Iterable[Row]:
    """The rows of one of our files; one that a crash or a full disk tore was not there yet."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            with contextlib.suppress(ValueError):
                yield json.loads(line)


def _line(row: Row) -> bytes:
    return json.dumps(row).encode() + b"\n"
