"""Files that are either the old one or the new one, whatever happens in between."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write_atomic(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Writes ``data`` to ``path``: a temporary file beside it, fsync, rename, fsync of the folder."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:64]}.", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    fsync_dir(path.parent)


def write_all(handle: int, data: bytes) -> None:
    """Writes all of ``data``, however little the kernel takes at once. Raises OSError with some of it written."""
    while data:
        data = data[os.write(handle, data) :]


def fsync_tree(path: Path) -> None:
    """Makes everything below the folder ``path`` durable, and the names in it."""
    for folder, _, names in os.walk(path):
        for name in names:
            handle = os.open(Path(folder) / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        fsync_dir(Path(folder))


def fsync_dir(path: Path) -> None:
    """Makes the names in the folder ``path`` durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
