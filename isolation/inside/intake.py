"""Inside the intake sandbox: copies a hostile folder, file by file, into /out and says on stdout what it copied.

``intake.py SOURCE OUT MAX_BYTES MAX_FILES``. One JSON line a file: ``{"path", "size", "sha256"}``, its bytes in
``OUT/<line number>``; at the end ``{"done": files}``, or ``{"refused": why, "path": where}``. Nothing is ever opened by
a path: every step is relative to an open folder, never through a link, and its kind is asked of what was opened.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import sys
import unicodedata
from collections.abc import Iterator

MAX_DEPTH = 32
MAX_PATH = 1024
SKIPPED = frozenset({"__pycache__"})
"""Folders that Python makes by itself while code is tried out; never part of a snapshot."""

_BLOCK = 1 << 20
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class Refused(Exception):
    """What was found cannot be part of a snapshot: ``why`` and the relative path."""

    def __init__(self, why: str, path: str) -> None:
        super().__init__(why)
        self.why = why
        self.path = path


def check_name(name: str, path: str) -> None:
    """Raises Refused unless ``name`` is printable NFC UTF-8 and ``path`` is short and shallow enough."""
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        raise Refused("the name is not UTF-8", path) from None
    if not name.isprintable():
        raise Refused("the name holds characters that cannot be printed", path)
    if unicodedata.normalize("NFC", name) != name:
        raise Refused("the name is not in Unicode normal form C", path)
    if len(encoded) > MAX_PATH:
        raise Refused(f"the path is longer than {MAX_PATH} bytes", path)
    if path.count("/") >= MAX_DEPTH:
        raise Refused(f"folders are nested deeper than {MAX_DEPTH}", path)


def open_entry(folder: int, name: str, path: str) -> tuple[int, os.stat_result]:
    """Opens one entry of ``folder`` and asks the descriptor what it is; only files and folders are let through."""
    try:
        handle = os.open(name, _OPEN, dir_fd=folder)
    except OSError as error:
        raise Refused(_why_not(folder, name, error), path) from None
    info = os.fstat(handle)
    if stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode):
        return handle, info
    os.close(handle)
    raise Refused(f"{_KINDS.get(stat.S_IFMT(info.st_mode), 'not a regular file')} is not allowed", path)


def _why_not(folder: int, name: str, error: OSError) -> str:
    """Words for a failed open; the kind is only looked up to be named."""
    try:
        kind = _KINDS.get(stat.S_IFMT(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode), "")
    except OSError:
        kind = ""
    if error.errno == errno.ELOOP or kind:
        return f"{kind or 'a link'} is not allowed"
    return f"cannot be read ({os.strerror(error.errno or 0)})"


def names_in(folder: int, path: str, allowed: int) -> list[str]:
    """The sorted names in an open folder; Refused as soon as there are more than ``allowed``."""
    names: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            names.append(entry.name)
            if len(names) > allowed:
                raise Refused("too many files", path)
    return sorted(names, reverse=True)


def walk(root: int, max_files: int) -> Iterator[tuple[str, int, os.stat_result]]:
    """Yields (path, descriptor, stat) of every regular file below ``root``; closes each after it was used.

    An explicit stack, at most MAX_DEPTH open folders: no recursion for a deep tree to exhaust. Entries count as files.
    """
    seen = 0
    first = os.dup(root)
    stack: list[tuple[int, str, list[str]]] = [(first, "", names_in(first, ".", max_files))]
    try:
        while stack:
            folder, prefix, names = stack[-1]
            if not names:
                os.close(stack.pop()[0])
                continue
            name = names.pop()
            path = prefix + name
            check_name(name, path)
            seen += 1
            if seen > max_files:
                raise Refused("too many files", path)
            handle, info = open_entry(folder, name, path)
            if stat.S_ISDIR(info.st_mode):
                if name in SKIPPED:
                    os.close(handle)
                else:
                    stack.append((handle, f"{path}/", []))
                    stack[-1][2].extend(names_in(handle, path, max_files - seen))
                continue
            try:
                yield path, handle, info
            finally:
                os.close(handle)
    finally:
        for folder, _, _ in stack:
            os.close(folder)


def copy(source: int, target: int, size: int) -> tuple[str, int]:
    """Copies at most ``size`` bytes, however much the file has grown since; returns (sha256, bytes) of the copy."""
    digest = hashlib.sha256()
    left = size
    while left > 0:
        block = os.read(source, min(_BLOCK, left))
        if not block:
            break
        left -= len(block)
        digest.update(block)
        view = memoryview(block)
        while view:
            view = view[os.write(target, view) :]
    return digest.hexdigest(), size - left


def run(source: str, out: str, max_bytes: int, max_files: int) -> None:
    """The whole copy; prints as it goes."""
    root = os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    place = os.open(out, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    total = count = 0
    for path, handle, info in walk(root, max_files):
        total += info.st_size  # a sparse file is charged for what it claims to hold
        if total > max_bytes:
            raise Refused(f"more than {max_bytes} bytes in all", path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        target = os.open(str(count), flags, 0o600, dir_fd=place)
        try:
            digest, size = copy(handle, target, info.st_size)
        finally:
            os.close(target)
        print(json.dumps({"path": path, "size": size, "sha256": digest}))
        count += 1
    print(json.dumps({"done": count}))


def main(argv: list[str]) -> int:
    """0 when all was copied, 3 when something was refused."""
    try:
        run(argv[0], argv[1], int(argv[2]), int(argv[3]))
    except Refused as refusal:
        print(json.dumps({"refused": refusal.why, "path": refusal.path[:4096]}))
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
