"""Who may use the accelerator (or, without one, the cores): a lock between runs, a fair lease inside a run."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import re
import stat
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, Protocol

from isolation.clean import clean_line
from isolation.problem import BenchError
from runner.record.events import LeaseChanged, Payload

Holder = Literal["training", "grading", "sampling"]
LOCK_DIR = Path("/run/lock")
_DEVICE = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")
_FLOCK = "hhqqi4x"  # struct flock on 64-bit Linux: type, whence, start, length, pid
_POLL_S = 0.5


class LeaseError(BenchError):
    """The machine lock is held by another run, or cannot be used."""


class Appender(Protocol):
    """The one method of the journal that a lease needs."""

    def append(self, payload: Payload, *, sync: bool = False) -> object: ...


class Lease:
    """One holder at a time, first come first served; every change is journaled."""

    def __init__(self, journal: Appender, charge: Callable[[float], None] | None = None) -> None:
        """``charge`` is told the seconds of each hold when it ends (accelerator time)."""
        self._journal = journal
        self._charge = charge
        self._lock = asyncio.Lock()  # wakes its waiters in the order they came
        self.holder: Holder | None = None

    @asynccontextmanager
    async def hold(self, holder: Holder, job: str | None = None) -> AsyncIterator[None]:
        """Wait for the lease, hold it for the block, and give it back however the block ends."""
        async with self._lock:
            loop = asyncio.get_running_loop()
            began = loop.time()
            self.holder = holder
            self._journal.append(LeaseChanged(holder=holder, job=job))
            try:
                yield
            finally:
                self.holder = None
                self._journal.append(LeaseChanged(holder=None))
                if self._charge is not None:
                    self._charge(loop.time() - began)


class MachineLock:
    """A held machine lock; the kernel drops it when the process ends."""

    def __init__(self, fd: int, path: Path) -> None:
        self._fd = fd
        self.path = path

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


async def machine_lock(
    device: str, *, wait: bool, on_wait: Callable[[str], None], owner: str, folder: Path = LOCK_DIR
) -> MachineLock:
    """Take the lock of ``device`` ("cpu", "gpu0") for this process's life.

    Every local user shares the lock file. If another run holds it: with ``wait``, call ``on_wait(who)`` once and
    try until it is free; without, raise :class:`LeaseError`. ``owner`` is the line that others are shown.
    """
    if not _DEVICE.fullmatch(device):
        raise LeaseError("not a device name", where=device)
    path = folder / f"vibetraining-bench-{device}.lock"
    fd = _open_lock(path)
    try:
        told = False
        while not _try_lock(fd):
            who = clean_line(os.pread(fd, 200, 0).decode("utf-8", "replace")).strip() or "another run"
            if not wait:
                raise LeaseError(
                    f"{device} is in use by {who}", where=str(path), do="Wait for it, or run without --no-wait"
                )
            if not told:
                on_wait(who)
                told = True
            await asyncio.sleep(_POLL_S)
    except BaseException:
        os.close(fd)
        raise
    os.ftruncate(fd, 0)
    os.pwrite(fd, owner.encode()[:200], 0)
    return MachineLock(fd, path)


def _open_lock(path: Path) -> int:
    """Open the shared lock file, making it if need be. Without O_CREAT first: the kernel's protected_regular
    refuses O_CREAT on another user's file in a sticky folder."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        try:
            fd = os.open(path, flags)
        except FileNotFoundError:
            try:
                fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
                os.fchmod(fd, 0o666)  # the umask must not shut other users out
            except FileExistsError:
                fd = os.open(path, flags)
    except OSError as error:
        raise LeaseError(
            f"the machine lock cannot be opened ({error.strerror})", where=str(path), do="Remove it or make it writable"
        ) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise LeaseError("the machine lock is not a regular file", where=str(path), do="Remove it")
    return fd


def _try_lock(fd: int) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True
