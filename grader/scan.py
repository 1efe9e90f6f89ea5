"""Compares an agent's texts with graded problems: a reader's sandbox opens the files, the vault compares.

The reader holds no problem and the vault opens no file of an agent's; what passes between them is bounded lines of
text. This side looks into neither. A finding names places and ids, never a word of a problem.
"""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader.errors import GraderError
from grader.protocol import Foreign, Overlap, ScanPart, ScanResult
from grader.strict import LineReader, StrictError
from grader.vault_client import Vault
from isolation import bwrap, sandbox
from isolation.clean import clean_line
from isolation.spec import Limits, Mount, SandboxSpec
from tasks.spec import SplitName

SECONDS = 900.0
KEPT = 200
_LINE = 4 << 20
_INSIDE = Path(__file__).resolve().parent / "inside"
_FILES = ("scan_read.py", "scan_views.py", "scan_blobs.py")
_LIMITS = Limits(memory=3 << 30, pids=16, cpu_seconds=int(SECONDS), tmp_bytes=1 << 20)


@dataclass(slots=True)
class _Found:
    """What a part was found to hold so far."""

    part: str
    overlaps: dict[tuple[str, int, str], Overlap] = field(default_factory=dict)
    foreign: dict[str, Foreign] = field(default_factory=dict)
    unchecked: dict[str, None] = field(default_factory=dict)
    bytes: int = 0
    broken: bool = False

    def fact(self, fact: dict[str, Any]) -> None:
        """Takes in what the reader says of a file, apart from its texts."""
        path = clean_line(str(fact["path"]), 200)
        if "left_out" in fact:
            self.unchecked[f"{self.part}/{path}: {clean_line(str(fact['left_out']), 100)}"] = None
            return
        before = self.foreign.get(path, Foreign(part=self.part, path=path))
        what = clean_line(str(fact.get("weights", before.what)), 60)
        size = before.bytes + int(fact.get("opaque", 0))
        self.foreign[path] = Foreign(part=self.part, path=path, what=what, bytes=size)

    def piece(self, piece: dict[str, Any], hits: Sequence[tuple[int, str, str]]) -> None:
        """Takes in what the vault found in one piece of text."""
        path, via = clean_line(str(piece["path"]), 200), clean_line(str(piece["via"]), 80)
        for offset, problem, how in hits:
            line = int(piece["line"]) + (offset if piece["moves"] else 0)
            found = Overlap(part=self.part, path=path, line=line, problem=problem, how=how, via=via)
            self.overlaps.setdefault((path, line, problem), found)


class Scanner:
    """Scans for one vault. What was given and what was scanned is remembered until the index changes: folders here are
    snapshots, which never do."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._indexed: tuple[object, ...] = ()
        self._given: tuple[str, ...] = ()
        self._partial: tuple[str, ...] = ()
        self._wants_replies = True
        self._scanned: dict[str, _Found] = {}

    async def scan(
        self, split: SplitName, parts: Sequence[ScanPart], known: Sequence[str], evals: Sequence[str]
    ) -> ScanResult:
        """Compares; asks once more when the vault had to be started again on the way. Raises GraderError."""
        for attempt in range(2):
            starts = self._vault.starts
            try:
                try:
                    await self._prepare(split, known, evals)
                except ValueError as error:
                    raise GraderError(f"the given material could not be read ({error})", where="scan") from None
                found = [await self._part(part) for part in parts]
            except GraderError:
                if attempt or self._vault.starts == starts:
                    raise
                continue
            if self._vault.starts == starts:
                return self._result(found)
        raise GraderError("the vault does not stay alive while it compares", where="vault", do="Run `runner doctor`")

    async def _part(self, part: ScanPart) -> _Found:
        known = self._scanned.get(part.folder)
        if known is not None and known.part == part.name:
            return known
        found = _Found(part.name)
        done = False
        try:
            async with asyncio.timeout(SECONDS), aclosing(_read([part.folder], ())) as lines:
                async for line in lines:
                    if "done" in line:
                        done, found.bytes = True, int(line["done"])
                    elif "text" in line:
                        found.piece(line, await self._vault.overlap(str(line["text"])))
                    else:
                        found.fact(line)
        except TimeoutError:
            found.unchecked[f"{part.name}: more than can be read in {SECONDS:.0f} s"] = None
            return found
        except (ValueError, KeyError, TypeError):
            done = False  # what was found stays found
        found.broken = not done
        self._scanned[part.folder] = found
        return found

    async def _prepare(self, split: SplitName, known: Sequence[str], evals: Sequence[str]) -> None:
        """The vault's index of ``split``, without what is known, with what the model wrote."""
        replies = tuple(evals) if self._wants_replies else ()
        wanted = (self._vault.starts, split, tuple(known), replies)
        if self._indexed == wanted:
            return
        self._indexed, self._given, self._partial, self._scanned = (), (), (), {}
        self._wants_replies = await self._vault.index(split)
        async with aclosing(_read(known, ())) as lines:
            async for line in lines:
                if "text" in line:
                    self._given = await self._vault.know([str(line["text"])])
        replies = tuple(evals) if self._wants_replies else ()
        async with aclosing(_read((), replies)) as lines:
            async for line in lines:
                if "problem" in line and not await self._vault.replies([(str(line["problem"]), str(line["text"]))]):
                    self._partial = ("the model wrote more than can be compared",)
        self._indexed = (self._vault.starts, split, tuple(known), replies)

    def _result(self, parts: Sequence[_Found]) -> ScanResult:
        rows = sorted(
            (row for part in parts for row in part.overlaps.values()),
            key=lambda row: (row.part, row.path, row.line, row.problem),
        )
        broken = tuple(part.part for part in parts if part.broken)
        unchecked = [*self._partial, *(what for part in parts for what in part.unchecked)]
        unchecked += [f"{part}: it makes its reader fail" for part in broken]
        foreign = [one for part in parts for one in part.foreign.values()]
        return ScanResult(
            status="found" if rows else ("not_checked" if unchecked else "clean"),
            overlaps=tuple(rows[:KEPT]),
            more=max(0, len(rows) - KEPT),
            foreign=tuple(sorted(foreign, key=lambda one: (not one.what, -one.bytes, one.path))[:20]),
            opaque={part.part: sum(one.bytes for one in part.foreign.values()) for part in parts},
            unchecked=tuple(unchecked[:20]),
            broken=broken,
            given=self._given,
            bytes=sum(part.bytes for part in parts),
        )


async def _read(parts: Sequence[str], replies: Sequence[str]) -> AsyncGenerator[dict[str, Any], None]:
    """What the reader says of folders or files, line by line. Raises StrictError for a line that is none of its."""
    if not parts and not replies:
        return
    box = await sandbox.start(_spec(parts, replies), stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    assert box.stdout is not None
    try:
        lines = LineReader(box.stdout, _LINE)
        while (line := await lines.line()) is not None:
            said = json.loads(line)
            if not isinstance(said, dict):
                raise StrictError("not an object")
            yield said
    finally:
        await box.kill()


def _spec(parts: Sequence[str], replies: Sequence[str]) -> SandboxSpec:
    python = bwrap.base_python()
    folders = [*parts, *replies]
    inside = [f"/in/{number}" for number in range(len(folders))]
    request = {"parts": inside[: len(parts)], "replies": inside[len(parts) :]}
    return SandboxSpec(
        profile="intake",
        argv=(str(python), "-S", "-B", "/opt/scan/scan_read.py", json.dumps(request)),
        mounts=(
            *bwrap.python_mounts(python),
            *(Mount(_INSIDE / name, f"/opt/scan/{name}") for name in _FILES),
            *(Mount(Path(folder), place) for folder, place in zip(folders, inside, strict=True)),
        ),
        limits=_LIMITS,
        hostname="reader",
    )
