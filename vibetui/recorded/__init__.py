"""The recorded run that ships with the package: its archive, and how it is laid out as a run folder again."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from runner.record.rundir import RunDir

ARCHIVE = Path(__file__).parent / "run.tar.xz"
JOURNAL = "journal.jsonl"


def unpack(root: Path, *, without: Iterable[str] = ()) -> RunDir:
    """Lay the recorded run out as ``root/aime/<run>`` and return it; ``without`` leaves files out by relative path."""
    left_out, name = frozenset(without), ""
    with tarfile.open(ARCHIVE, "r:xz") as tar:
        for member in tar:
            name, _, inside = member.name.partition("/")
            content = tar.extractfile(member)
            if content is None or inside in left_out or ".." in PurePosixPath(inside).parts:
                continue
            path = root / "aime" / name / inside
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.read())
    run = RunDir(root / "aime" / name)
    run.control.mkdir(exist_ok=True)
    return run


def journal() -> bytes:
    """The recorded journal."""
    with tarfile.open(ARCHIVE, "r:xz") as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is not None and member.name.endswith(f"/{JOURNAL}"):
                return content.read()
    raise FileNotFoundError(JOURNAL)
