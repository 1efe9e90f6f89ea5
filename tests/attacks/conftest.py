"""Attackers need what the research tests need: a phase with real folders, journal, sandboxes, desk and client."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _research() -> object:
    """The research tests' own fixtures, under a name that no other conftest has."""
    name = "research_phase"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "tests" / "research" / "phase_kit.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


_phase = _research()
short = _phase.short  # type: ignore[attr-defined]
phases = _phase.phases  # type: ignore[attr-defined]
_children = _phase._children  # type: ignore[attr-defined]

from attack_kit import ComparingGrader, open_vault  # noqa: E402  (it builds on the module above)
from catalogue import TESTS  # noqa: E402

from grader.vault_client import Vault  # noqa: E402


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What the catalogue names is an attack, wherever it is tested: `-m attacks` runs all of it."""
    for item in items:
        name = item.nodeid.partition("[")[0].removeprefix("tests/")
        if name in TESTS or name.startswith("attacks/"):
            item.add_marker(pytest.mark.attacks)


@pytest.fixture
async def vault() -> AsyncIterator[Vault]:
    """The real vault with the mini problems, open."""
    if os.getuid() == 0:
        pytest.skip("sandboxes are never started by root")
    opened = await open_vault()
    yield opened
    await opened.close()


@pytest.fixture
async def comparing() -> AsyncIterator[ComparingGrader]:
    """A grader of the research tests that compares texts as the real one does."""
    grader = ComparingGrader()
    yield grader
    await grader.close()
