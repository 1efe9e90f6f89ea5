"""What the task tests share: one comparing child process, and the published problem files where a machine has them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.aime.equivalence import Equivalence


@pytest.fixture(scope="session")
def comparer() -> Iterator[Equivalence]:
    """One child for all tests that compare expressions."""
    equivalence = Equivalence(cpu_s=30.0, wall_s=120.0)
    yield equivalence
    equivalence.close()


@pytest.fixture(scope="session")
def published() -> dict[int, Path]:
    """Real AIME files by year: below $VIBETRAINING_SHARED, or a folder `shared` beside the checkout."""
    beside = Path(__file__).resolve().parents[3] / "shared"
    folder = Path(os.environ.get("VIBETRAINING_SHARED", beside)) / "data" / "aime"
    files = {year: folder / f"aime_{year}.jsonl" for year in (2024, 2025, 2026)}
    if not all(os.access(path, os.R_OK) for path in files.values()):
        pytest.skip("the published AIME files are not on this machine")
    return files
