"""What may be set of a trainer that is fixed: the keys of its recipe.toml that the run lists, and nothing beside them.

The trainer of a snapshot is compared with the task's own: every file but the recipe byte for byte, the recipe key by
key. All that was changed and may not be is told at once.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from isolation.clean import clean_line
from isolation.intake import Manifest, load_manifest

RECIPE = "recipe.toml"
_RECIPE_BYTES = 64 << 10
_TOLD = 24


class NotPermitted(Exception):
    """One line that names every violation, and what may be set."""


def check(store: Path, own: str, trainer: Manifest, fields: Sequence[str]) -> None:
    """Raises NotPermitted where ``trainer`` differs from the snapshot ``own`` in more than ``fields`` of its recipe."""
    if trainer.id == own:
        return
    before = {entry.path: entry.sha256 for entry in load_manifest(store, own).files}
    after = {entry.path: entry.sha256 for entry in trainer.files}
    found = [*_files(before, after)]
    if RECIPE in before and RECIPE in after and before[RECIPE] != after[RECIPE]:
        found += _keys(_table(store, before[RECIPE]), _table(store, after[RECIPE]), fields)
    if found:
        told = "; ".join(found[:_TOLD]) + (f"; and {len(found) - _TOLD} more" if len(found) > _TOLD else "")
        raise NotPermitted(f"{told}. Put these back; of trainer/{RECIPE} may be set: {', '.join(fields)}")


def _files(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for path in sorted(before.keys() | after.keys()):
        name = clean_line(f"trainer/{path}", 80)
        if path not in after:
            yield f"{name} is gone"
        elif path not in before:
            yield f"{name} is new"
        elif path != RECIPE and before[path] != after[path]:
            yield f"{name} was changed"


def _table(store: Path, digest: str) -> dict[str, Any] | str:
    """A recipe as the trainer reads it, or why it cannot be read. The text is the agent's: its size is bounded."""
    path = store / "objects" / digest[:2] / digest
    if path.stat().st_size > _RECIPE_BYTES:
        return f"is larger than {_RECIPE_BYTES >> 10} KiB"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        return f"is not valid TOML ({clean_line(str(error), 120) or type(error).__name__})"


def _keys(before: dict[str, Any] | str, after: dict[str, Any] | str, fields: Sequence[str]) -> Iterator[str]:
    if isinstance(before, str) or isinstance(after, str):
        yield f"trainer/{RECIPE} {after if isinstance(after, str) else before}"
        return
    for key in dict.fromkeys((*before, *after)):
        if key in fields and key in after:
            continue
        name = clean_line(key, 40)
        if key not in after:
            yield f"{name} is gone"
        elif key not in before:
            yield f"{name} is new"
        elif not _equal(before[key], after[key]):
            yield f"{name} was changed from {_shown(before[key])} to {_shown(after[key])}"


def _equal(one: Any, other: Any) -> bool:
    """Of one type and one value: 1, 1.0 and true are three values of a recipe."""
    try:
        return type(one) is type(other) and repr(one) == repr(other)
    except (RecursionError, ValueError):
        return False


def _shown(value: Any) -> str:
    try:
        return clean_line(repr(value), 40)
    except (RecursionError, ValueError):
        return "(a value that cannot be shown)"
