"""The journal: one writer, one ``write()`` per line, chained by sha256. Reading never fails.

A line is the envelope and one payload, flat JSON, ASCII only (so that printing the file to a terminal is safe)::

    {"v": schema, "seq": 1…, "t": Unix seconds, "el": budget seconds, "kind": …, "prev": …, …payload…, "sum": …}

``prev`` is the sha256 of the previous raw line without its newline (64 zeros for the first); ``sum`` covers the line's
own bytes before it, so that a change in the newest line is seen too. A torn last line is not there yet.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from isolation.files import fsync_dir
from runner.record.error import JournalError
from runner.record.events import SCHEMA_VERSION, Event, Payload
from runner.record.fold import fold
from runner.record.follow import Follower
from runner.record.line import MAX_LINE, MAX_WRITE, encode, parse_line, shortened, sum_holds
from runner.record.state import RunState

__all__ = ["Chain", "Journal", "JournalError", "load", "read", "verify"]

GENESIS = "0" * 64

Clock = Callable[[], float]
Subscriber = Callable[[Event, RunState], None]


@dataclass(frozen=True, slots=True)
class Chain:
    """What :func:`verify` found. ``first_bad`` is a line number from 1; ``end`` the bytes of the good lines."""

    ok: bool
    lines: int
    first_bad: int | None = None
    why: str = ""
    torn: bool = False
    end: int = 0
    head: str = GENESIS
    seq: int = 0
    schema: int = 0


# -- reading ---------------------------------------------------------------------------------------------------------


def read(path: Path, *, skip: frozenset[str] = frozenset()) -> Iterator[Event]:
    """Every event of a journal, oldest first; a torn last line is not there yet. ``skip`` leaves kinds out unread."""
    with Follower(path, skip=skip) as follower:
        while events := follower.poll():
            yield from events


def load(path: Path, *, skip: frozenset[str] = frozenset()) -> RunState:
    """The state that a journal folds to."""
    state = RunState()
    for event in read(path, skip=skip):
        state = fold(state, event)
    return state


def _raw_lines(file: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """Raw lines without newline, and whether the newline was there. A line over MAX_LINE comes out cut."""
    while raw := file.readline(MAX_LINE + 1):
        complete = raw.endswith(b"\n")
        while not complete and len(raw) > MAX_LINE and (more := file.readline(MAX_LINE)):
            complete = more.endswith(b"\n")
        yield (raw[:-1] if raw.endswith(b"\n") else raw), complete


def verify(path: Path) -> Chain:
    """Check every line's sum, place and link; a torn tail is reported and is not an error."""
    head, seq, end, schema = GENESIS, 0, 0, 0
    with path.open("rb") as file:
        for raw, complete in _raw_lines(file):
            if not complete:
                return Chain(True, seq, torn=True, end=end, head=head, seq=seq, schema=schema)
            why = _fault(raw, seq + 1, head)
            if why:
                return Chain(False, seq, first_bad=seq + 1, why=why, end=end, head=head, seq=seq, schema=schema)
            schema = max(schema, parse_line(raw, seq + 1).v)
            head, seq, end = hashlib.sha256(raw).hexdigest(), seq + 1, end + len(raw) + 1
    return Chain(True, seq, end=end, head=head, seq=seq, schema=schema)


def _fault(raw: bytes, seq: int, head: str) -> str:
    """Why a complete line does not belong at ``seq`` after ``head``; empty when it does."""
    if len(raw) > MAX_LINE:
        return "the line is too long"
    if not sum_holds(raw):
        return "the line's sum does not match"
    event = parse_line(raw, seq)
    if event.v < 1 or event.seq != seq:
        return f"the line is not event {seq}"
    return "" if event.prev == head else "the line does not follow the one before it"


# -- writing ---------------------------------------------------------------------------------------------------------


class Journal:
    """The one writer of a run's journal. Holds the folded state and tells subscribers of every event it wrote."""

    def __init__(self, path: Path, fd: int, clock: Clock, now: Clock, chain: Chain, state: RunState) -> None:
        """Use :meth:`create` or :meth:`reopen`."""
        self.path = path
        self._fd = fd
        self._clock = clock
        self._now = now
        self._head = chain.head
        self._seq = chain.seq
        self._end = chain.end
        self._state = state
        self._subscribers: list[Subscriber] = []

    @classmethod
    def create(cls, path: Path, clock: Clock, *, now: Clock = time.time) -> Journal:
        """A new journal at ``path``, which must not exist. ``clock`` gives the budget seconds, ``now`` Unix time."""
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise JournalError("a journal is there already", where=str(path), do="resume the run instead") from None
        except OSError as error:
            raise JournalError(_said(error), where=str(path)) from error
        fsync_dir(path.parent)
        return cls(path, fd, clock, now, Chain(True, 0), RunState())

    @classmethod
    def reopen(cls, path: Path, clock: Clock, *, now: Clock = time.time) -> Journal:
        """Go on with a journal: verifies the whole chain and cuts a torn last line."""
        try:
            chain = verify(path)
        except OSError as error:
            raise JournalError(_said(error), where=str(path), do="start a new run") from error
        if not chain.ok:
            where = f"{path} line {chain.first_bad}"
            raise JournalError(f"the record is broken: {chain.why}", where=where, do="start a new run; view this one")
        if chain.schema > SCHEMA_VERSION:
            newer = f"schema {chain.schema} is newer than {SCHEMA_VERSION}"
            raise JournalError(newer, where=str(path), do="resume with the version that wrote it")
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        if chain.torn:
            os.ftruncate(fd, chain.end)
            os.fsync(fd)
        return cls(path, fd, clock, now, chain, load(path))

    @property
    def state(self) -> RunState:
        """What all events so far fold to."""
        return self._state

    def subscribe(self, callback: Subscriber) -> None:
        """Call ``callback(event, state after it)`` for every event written from now on."""
        self._subscribers.append(callback)

    def append(self, payload: Payload, *, sync: bool = False) -> Event:
        """Write one event; with ``sync`` it is on the disk when this returns. Raises JournalError on a full disk."""
        t, el = round(self._now(), 3), round(self._clock(), 3)
        event = Event(v=SCHEMA_VERSION, seq=self._seq + 1, t=t, el=el, prev=self._head, payload=payload)
        raw = encode(event)
        if len(raw) > MAX_WRITE:
            event = shortened(event)
            raw = encode(event)
        if len(raw) > MAX_WRITE:
            raise JournalError(f"an event of {len(raw)} bytes is too big", where=str(event.payload.kind))
        self._write(raw + b"\n", sync)
        self._seq, self._end, self._head = event.seq, self._end + len(raw) + 1, hashlib.sha256(raw).hexdigest()
        self._state = fold(self._state, event)
        for callback in self._subscribers:
            callback(event, self._state)
        return event

    def _write(self, line: bytes, sync: bool) -> None:
        do = "free disk space, then resume"
        try:
            written = os.write(self._fd, line)
            if sync and written == len(line):
                os.fsync(self._fd)
        except OSError as error:
            raise JournalError(_said(error), where=str(self.path), do=do) from error
        if written != len(line):
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._end)
            raise JournalError("the disk is full", where=str(self.path), do=do)

    def close(self) -> None:
        """Put everything on the disk and close; harmless when closed."""
        if self._fd >= 0:
            os.fsync(self._fd)
            os.close(self._fd)
            self._fd = -1


def _said(error: OSError) -> str:
    return (error.strerror or "cannot be used").lower()
