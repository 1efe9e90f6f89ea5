"""What a model, a base or a harness is, as a digest of its files: two evaluations of the same are the same.

Reads only what the gate and intake have accepted; those trees hold regular files alone.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from grader.errors import GraderError
from grader.protocol import ModelRef

_WHOLE = 1 << 30
_ENDS = 1 << 20


def tree_digest(root: Path) -> str:
    """sha256 over names, sizes and contents below ``root``; of files above 1 GiB, the first and last MiB.

    A model card (.md) decides nothing and is left out.
    """
    digest = hashlib.sha256()
    for path in sorted(path for path in root.rglob("*") if path.is_file() and path.suffix != ".md"):
        digest.update(f"{path.relative_to(root).as_posix()}\0{path.stat().st_size}\0".encode())
        digest.update(_content(path))
    return digest.hexdigest()


def model_identity(models_dir: Path, model: ModelRef, base: str) -> str:
    """The base's digest for the base; else the base's and that of the gated files of ``model``."""
    if model.format == "base":
        return base
    folder = models_dir / model.id
    files = folder / ("adapter" if model.format == "adapter" else "weights")
    if not files.is_dir():
        raise GraderError(f"there is no {model.format} of {model.id}", where=str(files), do="Train it again")
    return hashlib.sha256(f"{base}\0{model.format}\0{tree_digest(files)}".encode()).hexdigest()


def subject_identity(model: str, harness_dir: Path) -> str:
    """One word for (model, harness)."""
    return hashlib.sha256(json.dumps([model, tree_digest(harness_dir)]).encode()).hexdigest()


def _content(path: Path) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        if path.stat().st_size > _WHOLE:
            digest.update(file.read(_ENDS))
            file.seek(-_ENDS, 2)
        while chunk := file.read(_ENDS):
            digest.update(chunk)
    return digest.digest()
