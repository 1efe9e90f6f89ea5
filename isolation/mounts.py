"""Which host folders a program needs, at which names: links on the way are followed, never guessed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_LINK_LIMIT = 40


@dataclass(frozen=True, slots=True)
class Kept:
    """``source`` (a real path) must be found at ``target`` again."""

    source: Path
    target: Path
    writable: bool = False


def names_of(path: Path) -> list[Path]:
    """Every absolute name under which ``path`` is reached: itself, then what each link on the way leads to.

    The last one is the real path. A missing path gives an empty list.
    """
    found: list[Path] = []
    current = Path(os.path.normpath(path.absolute()))
    for _ in range(_LINK_LIMIT):
        found.append(current)
        following = _one_link(current)
        if following is None:
            return found if current.exists() else []
        current = following
    return []


def _one_link(path: Path) -> Path | None:
    """``path`` with its first link replaced by what it says, or None when there is no link in it."""
    for part in (*reversed(path.parents), path):
        if part.is_symlink():
            target = part.parent / part.readlink()
            return Path(os.path.normpath(target / path.relative_to(part)))
    return None


def kept_places(read: Iterable[Path], write: Iterable[Path]) -> list[Kept]:
    """The binds that keep ``read`` and ``write`` reachable under all their names, outermost first."""
    places: dict[Path, Kept] = {}
    for paths, writable in ((read, False), (write, True)):
        for path in paths:
            names = names_of(path)
            for name in names:
                places[name] = Kept(names[-1], name, writable)
    return [places[target] for target in sorted(places)]


def python_folders(python: Path) -> list[Path]:
    """The folders an interpreter needs: its virtual environment and the base installation, under every name."""
    folders: list[Path] = []
    exe = python.absolute()
    environment = exe.parent.parent
    config = environment / "pyvenv.cfg"
    if config.is_file():
        folders.append(environment)
        base = _base_of(config)
        if base is not None:
            folders.append(base)
    folders += [name.parent.parent for name in names_of(exe)]
    found: dict[Path, None] = {}
    for folder in folders:
        for name in names_of(folder):
            found[name] = None
    return [folder for folder in found if (folder / "bin").is_dir()]


def _base_of(config: Path) -> Path | None:
    """The installation that a pyvenv.cfg names as ``home``."""
    for line in config.read_text(encoding="utf-8", errors="replace").splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "home" and value.strip():
            return Path(value.strip()).parent
    return None
