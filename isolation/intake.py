"""The one reader of files that an agent, a trainer or a task wrote: a folder becomes a content-addressed snapshot.

The walk runs in a sandbox of its own (:mod:`isolation.inside.intake`); this side never opens a path of the source. It
takes what the sandbox left in a staging folder, hashes it again and moves it into the store::

    store/objects/<aa>/<sha256>      every content once, 0444
    store/manifests/<id>.json        {"bytes", "files": [[path, sha256, size], ...]}; id = first 16 hex of its sha256
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import unicodedata
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isolation import bwrap
from isolation.clean import clean_line
from isolation.files import fsync_dir, write_atomic
from isolation.inside.intake import MAX_DEPTH, MAX_PATH
from isolation.problem import IntakeError
from isolation.sandbox import start
from isolation.spec import Limits, Mount, SandboxSpec

MAX_FILES = 50_000
TIMEOUT_SECONDS = 900.0

_ID = re.compile(r"[0-9a-f]{16}")
_SHA = re.compile(r"[0-9a-f]{64}")
_BLOCK = 1 << 20
_LINE_BYTES = MAX_PATH * 12 + 4096
_INSIDE = Path(__file__).absolute().parent / "inside" / "intake.py"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One regular file of a snapshot: its relative POSIX path, the hash and size (bytes) of its content."""

    path: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a snapshot holds. Equal paths and contents give the equal ``id``; modes and empty folders do not count."""

    id: str
    files: tuple[FileEntry, ...]
    bytes: int


async def snapshot(source: Path, store: Path, *, max_bytes: int, max_files: int = MAX_FILES) -> Manifest:
    """Copies the folder ``source`` into ``store`` and returns its manifest.

    Raises IntakeError, with a cleaned path, for anything but regular files and folders, for names, depths, counts and
    sizes out of bounds; the store is then unchanged.
    """
    spec, staging = _plan(source, store, max_bytes, min(max_files, MAX_FILES))
    try:
        entries = await _copied(spec, clean_line(str(source), 200), max_files)
        return await asyncio.to_thread(_admit, store, staging / "out", entries, max_bytes)
    finally:
        await asyncio.to_thread(shutil.rmtree, staging, True)


async def snapshot_trusted(source: Path, store: Path) -> Manifest:
    """As :func:`snapshot`, for templates of our own: the same walls, a size bound that no template reaches."""
    return await snapshot(source, store, max_bytes=1 << 30)


def _plan(source: Path, store: Path, max_bytes: int, max_files: int) -> tuple[SandboxSpec, Path]:
    """The sandbox of one walk, and the staging folder in ``store`` that it may write."""
    source = source.absolute()
    if source.is_symlink() or not source.is_dir():
        raise IntakeError("not a folder", where=clean_line(str(source), 200))
    for folder in (store, store / "objects", store / "manifests"):
        folder.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix="staging-", dir=store))
    (staging / "out").mkdir()
    return _spec(source, staging / "out", max_bytes, max_files), staging


def _spec(source: Path, out: Path, max_bytes: int, max_files: int) -> SandboxSpec:
    base = bwrap.base_python()
    mounts = (
        *bwrap.python_mounts(base),
        Mount(_INSIDE, "/opt/intake.py"),
        Mount(source, "/in"),
        Mount(out, "/out", writable=True),
    )
    argv = (str(base), "-I", "-S", "-B", "/opt/intake.py", "/in", "/out", str(max_bytes), str(max_files))
    seconds = 60 + max_bytes // (100 << 20)
    limits = Limits(memory=2 << 30, pids=16, cpu_seconds=seconds, file_bytes=max_bytes + 1, tmp_bytes=1 << 20)
    return SandboxSpec("intake", argv, mounts=mounts, limits=limits, hostname="intake")


async def _copied(spec: SandboxSpec, where: str, max_files: int) -> list[FileEntry]:
    """Runs the walk in its sandbox and returns what it says it copied, in the order of the staged files."""
    box = await start(spec, stdout=PIPE, line_limit=_LINE_BYTES)
    assert box.stdout is not None
    entries: list[FileEntry] = []
    done = False
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            async for answer in _answers(box.stdout):
                if "refused" in answer:
                    raise IntakeError(clean_line(str(answer["refused"]), 200), where=_shown(answer.get("path")))
                if "done" in answer:
                    done = answer["done"] == len(entries)
                elif len(entries) < max_files:
                    entries.append(_entry(answer))
            code = await box.wait()
    except TimeoutError:
        raise IntakeError("reading it took too long", where=where) from None
    finally:
        await box.kill()
    if code != 0 or not done:
        raise IntakeError(f"it could not be read ({box.death(code) or 'incomplete'})", where=where)
    return entries


async def _answers(stream: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
    while True:
        try:
            line = await stream.readline()
        except ValueError:
            raise IntakeError("an answer of the intake sandbox is too long", where="intake") from None
        if not line:
            return
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise IntakeError("the intake sandbox gave a broken answer", where="intake")
        yield answer


def _shown(path: object) -> str:
    """A refused path as a person may see it; what is not UTF-8 is shown escaped."""
    text = str(path).encode("utf-8", "surrogateescape" if _escapable(str(path)) else "replace")
    return clean_line(text.decode("utf-8", "backslashreplace"), 200) or "(a name that cannot be shown)"


def _escapable(text: str) -> bool:
    return all(not 0xD800 <= ord(c) <= 0xDFFF or 0xDC80 <= ord(c) <= 0xDCFF for c in text)


def _entry(answer: dict[str, Any]) -> FileEntry:
    """A file as the sandbox describes it; everything in it is checked again."""
    path, digest, size = answer.get("path"), answer.get("sha256"), answer.get("size")
    good = isinstance(path, str) and isinstance(digest, str) and isinstance(size, int) and size >= 0
    if not good or not _SHA.fullmatch(str(digest)):
        raise IntakeError("the intake sandbox gave a broken answer", where="intake")
    assert isinstance(path, str) and isinstance(digest, str) and isinstance(size, int)
    check_path(path)
    return FileEntry(path, digest, size)


def check_path(path: str) -> None:
    """Raises IntakeError unless ``path`` is a relative, printable, NFC path without ``.`` or ``..``."""
    parts = path.split("/")
    good = all(part not in ("", ".", "..") for part in parts) and len(parts) <= MAX_DEPTH
    printable = path.isprintable() and unicodedata.normalize("NFC", path) == path
    if not (good and printable and len(path.encode("utf-8", "replace")) <= MAX_PATH):
        raise IntakeError("a path that no snapshot may hold", where=_shown(path))


def _admit(store: Path, out: Path, entries: list[FileEntry], max_bytes: int) -> Manifest:
    """Hashes the staged files again, moves them into the store, writes the manifest."""
    if sum(entry.size for entry in entries) > max_bytes:
        raise IntakeError(f"more than {max_bytes} bytes in all", where="intake")
    _check_tree(entries)
    folder = os.open(out, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    touched: set[Path] = set()
    try:
        for number, entry in enumerate(entries):
            _verify(folder, str(number), entry)
            target = _object(store, entry.sha256)
            if not target.exists():
                target.parent.mkdir(exist_ok=True)
                os.rename(str(number), target, src_dir_fd=folder)
                touched.add(target.parent)
    finally:
        os.close(folder)
    for changed in (*sorted(touched), store / "objects"):
        fsync_dir(changed)
    return _write_manifest(store, entries)


def _check_tree(entries: Iterable[FileEntry]) -> None:
    """No path twice, no file that is also a folder."""
    files: set[str] = set()
    folders: set[str] = set()
    for entry in entries:
        if entry.path in files:
            raise IntakeError("a path twice in one snapshot", where=_shown(entry.path))
        files.add(entry.path)
        parts = entry.path.split("/")
        folders.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
    if files & folders:
        raise IntakeError("a file and a folder of one name", where=_shown(min(files & folders)))


def _verify(folder: int, name: str, entry: FileEntry) -> None:
    """The staged file is a plain one of the said size and hash; it becomes 0444 and durable."""
    try:
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        raise IntakeError(f"a copied file is missing ({error.strerror})", where=_shown(entry.path)) from None
    with os.fdopen(handle, "rb") as stream:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1 or info.st_size != entry.size:
            raise IntakeError("a copied file is not what was announced", where=_shown(entry.path))
        if hashlib.file_digest(stream, "sha256").hexdigest() != entry.sha256:
            raise IntakeError("a copied file has another hash than announced", where=_shown(entry.path))
        os.fchmod(handle, 0o444)
        os.fsync(handle)


def _object(store: Path, sha256: str) -> Path:
    return store / "objects" / sha256[:2] / sha256


def _encoded(entries: Iterable[FileEntry]) -> bytes:
    ordered = sorted(entries, key=lambda item: item.path)
    rows = [[entry.path, entry.sha256, entry.size] for entry in ordered]
    body = {"bytes": sum(entry.size for entry in ordered), "files": rows}
    return json.dumps(body, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def _write_manifest(store: Path, entries: list[FileEntry]) -> Manifest:
    data = _encoded(entries)
    name = hashlib.sha256(data).hexdigest()[:16]
    path = store / "manifests" / f"{name}.json"
    if not path.exists() or path.read_bytes() != data:
        write_atomic(path, data, 0o444)
    return Manifest(name, tuple(sorted(entries, key=lambda item: item.path)), sum(entry.size for entry in entries))


def load_manifest(store: Path, id: str) -> Manifest:
    """The manifest of a snapshot. Raises IntakeError for an unknown id and for a manifest that was changed."""
    if not _ID.fullmatch(id):
        raise IntakeError("not a snapshot id", where=clean_line(id, 40))
    try:
        data = (store / "manifests" / f"{id}.json").read_bytes()
    except OSError:
        raise IntakeError("no such snapshot", where=id) from None
    if hashlib.sha256(data).hexdigest()[:16] != id:
        raise IntakeError("the manifest was changed after the snapshot", where=id)
    body = json.loads(data)
    files = tuple(FileEntry(str(path), str(digest), int(size)) for path, digest, size in body["files"])
    for entry in files:
        check_path(entry.path)
    return Manifest(id, files, int(body["bytes"]))


def holds(store: Path, id: str, folder: Path) -> bool:
    """Whether ``folder``, which :func:`materialise` made, still is the snapshot: its files and no others, every hash
    checked. What a crash of the machine left need not be; nothing else may have written there."""
    manifest = load_manifest(store, id)
    here = [Path(place, name) for place, _, names in os.walk(folder) for name in names]
    if {path.relative_to(folder).as_posix() for path in here} != {entry.path for entry in manifest.files}:
        return False
    return all(_is_entry(folder / entry.path, entry) for entry in manifest.files)


def _is_entry(path: Path, entry: FileEntry) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with os.fdopen(handle, "rb") as stream:
        info = os.fstat(handle)
        whole = stat.S_ISREG(info.st_mode) and info.st_size == entry.size
        return whole and hashlib.file_digest(stream, "sha256").hexdigest() == entry.sha256


def materialise(store: Path, id: str, dest: Path) -> None:
    """Copies a snapshot out into ``dest`` (missing or empty): files 0644, folders 0755, every hash checked.

    The tree appears whole or not at all. Raises IntakeError where the store or ``dest`` is not as it should be.
    """
    manifest = load_manifest(store, id)
    if dest.is_symlink() or (dest.exists() and (not dest.is_dir() or any(dest.iterdir()))):
        raise IntakeError("the place for a snapshot is not an empty folder", where=str(dest))
    dest.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{dest.name[:64]}.", dir=dest.parent))
    try:
        for entry in manifest.files:
            target = building / entry.path
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy_out(_object(store, entry.sha256), target, entry)
        for folder, _, _ in os.walk(building):
            Path(folder).chmod(0o755)
        building.replace(dest)
    except BaseException:
        with contextlib.suppress(OSError):
            shutil.rmtree(building)
        raise


def _copy_out(source: Path, target: Path, entry: FileEntry) -> None:
    digest = hashlib.sha256()
    try:
        with source.open("rb") as reader, target.open("xb") as writer:
            while block := reader.read(_BLOCK):
                digest.update(block)
                writer.write(block)
    except OSError as error:
        raise IntakeError(f"a stored file cannot be copied ({error.strerror})", where=entry.path) from error
    if digest.hexdigest() != entry.sha256:
        raise IntakeError("a stored file was changed after the snapshot", where=entry.path)
    target.chmod(0o644)
