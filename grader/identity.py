"""What a model, a base or a harness is, as a digest of its files: two evaluations of the same are the same.

Reads only what the gate and intake have accepted; those trees hold regular files alone.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from grader.errors import GraderError
from grader.protocol import ModelRef

_ADAPTER = "adapter_config.json"


def tree_digest(root: Path, *, cards: bool = True) -> str:
    """sha256 over names, sizes and contents below ``root``; of a model without its ``cards`` (.md), which decide
    nothing. A harness may well read its prompt from such a file.

    Every byte counts, however large the file: weights that differ only in the middle are another model. Files are read
    side by side, because the shards of a large base would take a minute one after the other.
    """
    return _digest(_files(root, cards))


def model_identity(models_dir: Path, model: ModelRef, base: str) -> str:
    """The base's digest for the base; else the base's and that of the gated files of ``model``.

    Raises GraderError for files that are not those of which ``model`` speaks: what was selected is graded, or nothing.
    """
    if model.base_sha256 not in ("", base):
        raise GraderError("the base model is not the one the run began with", where="base model", do="Restore it")
    if model.format == "base":
        return base
    folder = models_dir / model.id
    files = folder / ("adapter" if model.format == "adapter" else "weights")
    if not files.is_dir():
        raise GraderError(f"there is no {model.format} of {model.id}", where=str(files), do="Train it again")
    found = _files(files, cards=False)
    if model.sha256 not in ("", _gated(found)):
        raise GraderError(f"{model.id} is not what the gate let through", where=str(files), do="Restore its files")
    return hashlib.sha256(f"{base}\0{model.format}\0{_digest(found)}".encode()).hexdigest()


def subject_identity(model: str, harness_dir: Path) -> str:
    """One word for (model, harness)."""
    return hashlib.sha256(json.dumps([model, tree_digest(harness_dir)]).encode()).hexdigest()


def _files(root: Path, cards: bool) -> list[tuple[str, int, bytes]]:
    """Name, size and sha256 of every file below ``root``, sorted."""
    paths = sorted(path for path in root.rglob("*") if path.is_file() and (cards or path.suffix != ".md"))
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as readers:
        contents = list(readers.map(_content, paths))
    names = [path.relative_to(root).as_posix() for path in paths]
    return [(name, path.stat().st_size, content) for name, path, content in zip(names, paths, contents, strict=True)]


def _digest(files: Sequence[tuple[str, int, bytes]]) -> str:
    digest = hashlib.sha256()
    for name, size, content in files:
        digest.update(f"{name}\0{size}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _gated(files: Sequence[tuple[str, int, bytes]]) -> str:
    """``GateResult.sha256`` of these files: a line ``<sha256>  <name>`` for weights and an adapter's configuration."""
    told = [(name, content) for name, _, content in files if name.endswith(".safetensors") or name == _ADAPTER]
    return hashlib.sha256("".join(f"{content.hex()}  {name}\n" for name, content in sorted(told)).encode()).hexdigest()


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
