"""How far a component moved: the differ's answer (from a sandbox), checked, for the record and for the views."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from grader.strict import StrictError, parse_object
from isolation.files import write_atomic
from isolation.intake import load_manifest
from runner.record.events import DiffSize
from runner.research.lab import Lab
from runner.research.sandbox import capture, differ_spec
from tasks.spec import Component, Frozen

_ANSWER_BYTES = 16 << 20
_TIMEOUT_S = 90.0
_Count = Annotated[int, Field(ge=0)]


class Difference(Frozen):
    """What the differ says: counts of lines (code) or rows (data), a unified patch, and the data summary."""

    added: _Count
    removed: _Count
    files: _Count
    patch: str
    notes: tuple[str, ...]
    data: dict[str, Any] | None = None

    @property
    def size(self) -> DiffSize:
        return DiffSize(added=self.added, removed=self.removed, files=self.files)


async def compare(lab: Lab, component: Component, old: str, new: str) -> Difference | None:
    """The difference between two snapshots of a component; None when it could not be made in its limits."""
    files = changed_files(lab.rundir.store, old, new)
    task = {"kind": "data" if component == "data" else "code", "files": files}
    code, output = await capture(differ_spec(lab), json.dumps(task).encode(), limit=_ANSWER_BYTES, timeout_s=_TIMEOUT_S)
    if code != 0:
        return None
    try:
        return Difference.model_validate(parse_object(output))
    except (StrictError, ValidationError):
        return None


def changed_files(store: Path, old: str, new: str) -> list[dict[str, str | None]]:
    """The files of two snapshots whose contents differ, by path."""
    before = {entry.path: entry.sha256 for entry in load_manifest(store, old).files}
    after = {entry.path: entry.sha256 for entry in load_manifest(store, new).files}
    paths = sorted(before.keys() | after.keys())
    rows: list[dict[str, str | None]] = [{"path": p, "old": before.get(p), "new": after.get(p)} for p in paths]
    return [row for row in rows if row["old"] != row["new"]]


def write_difference(folder: Path, component: Component, difference: Difference | None) -> None:
    """Write diffs/data.json, or diffs/<component>.patch with its notes at the end. Foreign text, as it was."""
    folder.mkdir(parents=True, exist_ok=True)
    if difference is None:
        write_atomic(folder / f"{component}.patch", b"# no diff: it took too long or too much memory\n")
    elif difference.data is not None:
        write_atomic(folder / "data.json", json.dumps(difference.data, ensure_ascii=False).encode())
    else:
        text = difference.patch + "".join(f"# {note}\n" for note in difference.notes)
        write_atomic(folder / f"{component}.patch", text.encode())
