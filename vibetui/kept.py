"""A person's own small files: what was copied, the trace of a fault. Never a run's."""

from __future__ import annotations

import os
from pathlib import Path


def default_state_dir() -> Path:
    """Where a person's own small files of this program lie."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "vibetraining-bench"


def written(path: Path, text: str) -> str:
    """Write a small private file; returns why it could not be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="utf-8", errors="replace") as file:  # noqa: PTH123  an open descriptor
            file.write(text)
    except OSError as error:
        return error.strerror or "cannot be written"
    return ""
