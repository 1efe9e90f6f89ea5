"""What a model, a base or a harness is, as a digest of its files: two evaluations of the same are the same.

Reads only what the gate and intake have accepted; those trees hold regular files alone.
"""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from grader.errors import GraderError
from grader.protocol import ModelRef


def tree_digest(root: Path, *, cards: bool = True) -> str:
    """sha256 over names, sizes and contents below ``root``; of a model without its ``cards`` (.md), which decide
    nothing. A harness may well read its prompt from such a file.

    Every byte counts, however large the file: weights that differ only in the middle are another model. Files are read
    side by side, because the shards of a large base would take a minute one after the other.
    """
    digest = hashlib.sha256()
    paths = sorted(path for path in root.rglob("*") if path.is_file() and (cards or path.suffix != ".md"))
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as readers:
        for path, content in zip(paths, readers.map(_content, paths), strict=True):
            digest.update(f"{path.relative_to(root).as_posix()}\0{path.stat().st_size}\0".encode())
            digest.update(content)
    return digest.hexdigest()


def model_identity(models_dir: Path, model: ModelRef, base: str) -> str:
    """The base's digest for the base; else the base's and that of the gated files of ``model``."""
    if model.format == "base":
        return base
    folder = models_dir / model.id
    files = folder / ("adapter" if model.format == "adapter" else "weights")
    if not files.is_dir():
        raise GraderError(f"there is no {model.format} of {model.id}", where=str(files), do="Train it again")
    return hashlib.sha256(f"{base}\0{model.format}\0{tree_digest(files, cards=False)}".encode()).hexdigest()


def subject_identity(model: str, harness_dir: Path) -> str:
    """One word for (model, harness)."""
    return hashlib.sha256(json.dumps([model, tree_digest(harness_dir)]).encode()).hexdigest()


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
