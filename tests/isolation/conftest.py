"""Real sandboxes need an ordinary user: as root, run the tests through ``python -P -m isolation.privilege --``."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import PIPE
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from isolation import bwrap
from isolation.sandbox import start, use_pidfd_children
from isolation.spec import Mount, SandboxSpec

use_pidfd_children()
needs_user = pytest.mark.skipif(os.getuid() == 0, reason="sandboxes are never started by root")


@dataclass(frozen=True)
class Result:
    """How one sandbox ended and what it printed."""

    code: int
    out: str
    err: str
    death: str


def spec_of(what: str | tuple[str, ...], **more: Any) -> SandboxSpec:
    """A harness sandbox of Python code (str) or a command (tuple)."""
    python = bwrap.base_python()
    mounts: tuple[Mount, ...] = more.pop("mounts", ())
    if isinstance(what, str):
        mounts = (*bwrap.python_mounts(python), *mounts)
        what = (str(python), "-I", "-S", "-c", what)
    return SandboxSpec(more.pop("profile", "harness"), what, mounts=mounts, **more)


async def run_box(what: str | tuple[str, ...], **more: Any) -> Result:
    """Runs it to its end."""
    box = await start(spec_of(what, **more), stdout=PIPE, stderr=PIPE)
    assert box.stdout is not None and box.stderr is not None
    try:
        async with asyncio.timeout(60):
            out, err = await asyncio.gather(box.stdout.read(), box.stderr.read())
            code = await box.wait()
    finally:
        await box.kill()
    return Result(code, out.decode(errors="replace"), err.decode(errors="replace"), box.death(code))


@pytest.fixture
def run() -> Callable[..., Any]:
    """run_box, skipped for root."""
    if os.getuid() == 0:
        pytest.skip("sandboxes are never started by root")
    return run_box


@pytest.fixture
def spec() -> Callable[..., SandboxSpec]:
    """spec_of, skipped for root."""
    if os.getuid() == 0:
        pytest.skip("sandboxes are never started by root")
    return spec_of


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[str], Path]:
    """Makes folders in the test's own place."""

    def make(name: str) -> Path:
        place = tmp_path / name
        place.mkdir(parents=True, exist_ok=True)
        return place

    return make
