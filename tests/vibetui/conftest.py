"""The recorded run, laid out once; tests that change something take a copy."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from runner.record.rundir import RunDir
from vibetui.recorded import unpack


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """The recorded run as a folder; not to be changed."""
    return unpack(tmp_path_factory.mktemp("recorded"))


@pytest.fixture
def copied(recorded: RunDir, tmp_path: Path) -> RunDir:
    """A copy of it, to be changed: runs/aime/<run>."""
    return _copy(recorded, tmp_path, recorded.journal_file.read_bytes())


@pytest.fixture
def cut(recorded: RunDir, tmp_path: Path) -> RunDir:
    """The recorded run as it was just before the hidden test ended: its journal stops there."""
    raw = recorded.journal_file.read_bytes()
    return _copy(recorded, tmp_path, raw[: raw.index(b'"kind":"hidden_finished"')].rpartition(b"\n")[0] + b"\n")


def _copy(recorded: RunDir, tmp_path: Path, journal: bytes) -> RunDir:
    """Hard links of everything but the journal: a test that changes another file replaces it."""
    run = RunDir(tmp_path / "runs" / "aime" / recorded.name)
    shutil.copytree(recorded.path, run.path, copy_function=os.link)
    run.journal_file.unlink()
    run.journal_file.write_bytes(journal)
    return run
