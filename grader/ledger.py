"""The ledger of the hidden test: which one candidate may meet hidden problems, and what became of it.

Two files below a 0700 folder that no sandbox mounts. ``claim.json`` is the claim: made whole by link(2), so one process
of many wins, and never replaced. ``ledger.jsonl`` is what followed, one line each, appended under a lock with one write
and an fsync; each line carries the sha256 of the line before it. A last line without its end is a crash in mid-write:
it never happened, and the next append removes it. Anything else that does not fit is tampering, and is refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.errors import GraderError
from isolation.files import fsync_dir

_GENESIS = "0" * 64
_OWN_FIELDS = frozenset(("v", "seq", "kind", "prev"))
_MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the ledger. ``seq`` counts from 0; ``fields`` are the caller's."""

    seq: int
    kind: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Claim:
    """Who holds the hidden test."""

    run: str
    candidate: str


class Ledger:
    """The ledger below ``sealed_dir``, which is made (0700) if it is missing. Every method raises GraderError on a
    ledger that was tampered with; any number of processes may use one at a time."""

    def __init__(self, sealed_dir: Path) -> None:
        self._dir = sealed_dir
        self._path = sealed_dir / "ledger.jsonl"
        self._claim_path = sealed_dir / "claim.json"
        _private_folder(sealed_dir)

    def claim(self, run: str, candidate: str) -> None:
        """Claims the hidden test for ``candidate``, durably, before the first hidden problem is handed out.

        The same claim again is a resume. GraderError where another candidate or run holds it.
        """
        wanted = Claim(run, candidate)
        with self._locked() as handle:
            entries = self._verified(handle)
            held = self._held(entries)
            if held is None:
                self._write_claim(wanted)
            elif held != wanted:
                raise GraderError(
                    f"{held.candidate} of run {held.run} holds the hidden test: {candidate} of {run} is refused",
                    where=str(self._path),
                    do="A run has one hidden test. Resume it, or start a new run",
                )
            if not entries:
                # Also the claim of one that died between link(2) and its sync: nothing follows a name that may vanish.
                fsync_dir(self._dir)
                _append(handle, entries, "claimed", {"run": run, "candidate": candidate})

    def claimed(self) -> str | None:
        """The candidate that holds the hidden test."""
        with self._locked() as handle:
            held = self._held(self._verified(handle))
        return held.candidate if held else None

    def record(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Appends a line and returns when it is on the disk. ``fields`` must be JSON; their names not our own.

        GraderError before a claim: the first line of a ledger is its claim.
        """
        if kind == "claimed" or _OWN_FIELDS & set(fields):
            raise ValueError("a claim is made by claim(), and v, seq, kind and prev are the ledger's own")
        with self._locked() as handle:
            entries = self._verified(handle)
            if self._held(entries) is None or not entries:
                raise GraderError("nothing is claimed yet", where=str(self._path), do="Claim before recording")
            _append(handle, entries, kind, fields)

    def read(self) -> list[Entry]:
        """All whole lines, verified."""
        with self._locked() as handle:
            entries = self._verified(handle)
        self._held(entries)
        return entries

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """The ledger file, open and locked. The kernel frees the lock of a process that died."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            handle = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise GraderError(f"cannot open the ledger ({error.strerror})", where=str(self._path)) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield handle
        finally:
            os.close(handle)

    def _verified(self, handle: int) -> list[Entry]:
        entries: list[Entry] = []
        previous = _GENESIS
        for line in _whole_lines(handle, self._path):
            entry = _parse(line, len(entries), previous)
            if entry is None:
                raise self._tampered(f"line {len(entries) + 1} does not follow from the line before it")
            entries.append(entry)
            previous = hashlib.sha256(line).hexdigest()
        return entries

    def _held(self, entries: list[Entry]) -> Claim | None:
        """The claim, on which both files must agree. The file comes first, so it may be alone after a crash."""
        lines = [
            Claim(str(e.fields.get("run")), str(e.fields.get("candidate"))) for e in entries if e.kind == "claimed"
        ]
        held = self._read_claim()
        if len(lines) > 1 or (lines and lines[0] != held) or (entries and not lines):
            raise self._tampered("its claim and claim.json do not agree")
        return held

    def _read_claim(self) -> Claim | None:
        try:
            handle = os.open(self._claim_path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise GraderError(f"cannot open the claim ({error.strerror})", where=str(self._claim_path)) from None
        with os.fdopen(handle, "rb") as stream:
            data = stream.read(1 << 16)
        try:
            fields = json.loads(data)
            return Claim(run=_text(fields["run"]), candidate=_text(fields["candidate"]))
        except (ValueError, KeyError, TypeError):
            raise self._tampered("claim.json is not a claim") from None

    def _write_claim(self, claim: Claim) -> None:
        """Whole or not at all, and only if there is none: link(2) refuses an existing name."""
        data = json.dumps({"run": claim.run, "candidate": claim.candidate}).encode() + b"\n"
        handle, name = tempfile.mkstemp(prefix=".claim.", dir=self._dir)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            self._claim_path.hardlink_to(temporary)
        except FileExistsError:
            raise self._tampered("claim.json appeared beside the lock") from None
        finally:
            temporary.unlink(missing_ok=True)

    def _tampered(self, what: str) -> GraderError:
        return GraderError(
            f"the ledger was changed by something else: {what}",
            where=str(self._path),
            do="The hidden test of this run cannot be trusted. Start a new run",
        )


def _private_folder(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        pass
    else:
        fsync_dir(path.parent)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise GraderError("is not a folder of this user", where=str(path), do="Remove it, or start a new run")
    if stat.S_IMODE(found.st_mode) & 0o077:
        path.chmod(0o700)


def _whole_lines(handle: int, path: Path) -> list[bytes]:
    """Lines without their ends; what follows the last end is a torn write and is left out."""
    size = os.fstat(handle).st_size
    if size > _MAX_BYTES:
        raise GraderError("is larger than any ledger", where=str(path), do="Start a new run")
    data = bytearray()
    while len(data) < size:
        chunk = os.pread(handle, min(1 << 20, size - len(data)), len(data))
        if not chunk:
            break
        data += chunk
    return bytes(data).split(b"\n")[:-1]


def _parse(line: bytes, seq: int, previous: str) -> Entry | None:
    try:
        fields = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or not isinstance(fields.get("kind"), str):
        return None
    if fields.get("v") != 1 or fields.get("seq") != seq or fields.get("prev") != previous:
        return None
    return Entry(seq, fields["kind"], {name: value for name, value in fields.items() if name not in _OWN_FIELDS})


def _append(handle: int, entries: list[Entry], kind: str, fields: Mapping[str, Any]) -> None:
    """One write at the end of the last whole line, then fsync. The caller holds the lock."""
    size = os.fstat(handle).st_size
    data = os.pread(handle, size, 0)
    whole = data.rfind(b"\n") + 1
    if whole < size:
        os.ftruncate(handle, whole)
    lines = data[:whole].split(b"\n")
    previous = hashlib.sha256(lines[-2]).hexdigest() if entries else _GENESIS
    entry = {"v": 1, "seq": len(entries), "kind": kind, **fields, "prev": previous}
    line = json.dumps(entry, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"
    written = os.write(handle, line)
    if written != len(line):
        os.ftruncate(handle, whole)
        raise GraderError("the disk is full: a ledger line could not be written", do="Free space and resume")
    os.fsync(handle)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value
