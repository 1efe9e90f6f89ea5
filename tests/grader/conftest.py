"""What the tests of the gate share."""

from __future__ import annotations

from pathlib import Path

import pytest
from gate_kit import Bench, bench

from isolation.sandbox import use_pidfd_children


@pytest.fixture
def made(tmp_path: Path) -> Bench:
    """A gate with its base, and a place for what it lets through."""
    use_pidfd_children()
    return bench(tmp_path)
