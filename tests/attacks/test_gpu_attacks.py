"""Attacks on a shared accelerator. What needs one is marked ``real`` and skipped elsewhere."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from isolation import bwrap
from isolation.privilege import bench_home
from isolation.sandbox import start
from isolation.spec import Limits, Mount, SandboxSpec

PYTHON = bench_home(os.environ) / "model-env" / "bin" / "python"
NODES = [*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev").glob("dxg")]


def needs_gpu(test: Any) -> Any:
    """Marks a test that a machine without a GPU cannot run."""
    for mark in (
        pytest.mark.real,
        pytest.mark.skipif(not NODES, reason="there is no GPU here"),
        pytest.mark.skipif(not PYTHON.exists(), reason="the model environment is missing: run `runner prepare`"),
    ):
        test = mark(test)
    return test


MARK = 0x5EC12E75


async def on_the_device(code: str) -> str:
    """What Python code prints in a training sandbox with the accelerator."""
    spec = SandboxSpec(
        "training", (str(PYTHON), "-c", code), mounts=bwrap.python_mounts(PYTHON), accelerator=True,
        limits=Limits(pids=1024, open_files=4096),
    )  # fmt: skip
    box = await start(spec, stdout=PIPE)
    assert box.stdout is not None
    try:
        async with asyncio.timeout(240):
            return (await box.stdout.read()).decode()
    finally:
        await box.kill()


FILL = f"""
import torch
held = [torch.full((1 << 28,), {MARK}, dtype=torch.int64, device="cuda") for _ in range(4)]
torch.cuda.synchronize()
print("filled")
"""
LOOK = f"""
import torch
found = 0
for _ in range(4):
    piece = torch.empty(1 << 28, dtype=torch.int64, device="cuda")
    found += int((piece == {MARK}).sum())
    held = globals().setdefault("held", []) + [piece]
print(found)
"""


@needs_gpu
async def test_memory_of_a_process_that_ended_holds_nothing_of_it() -> None:
    """Tensors of a grader are written over the memory that a trainer gets next; the trainer finds none of them."""
    assert await on_the_device(FILL) == "filled\n"
    assert await on_the_device(LOOK) == "0\n"


INSIDE = """
import os, socket
names = [os.path.join(at, n) for top in ("/run", "/tmp", "/var", "/dev") for at, _, ns in os.walk(top) for n in ns]
print([n for n in names if "mps" in n or "persistenced" in n or "fabricmanager" in n])
"""


@needs_gpu
async def test_nothing_of_the_drivers_daemons_is_inside() -> None:
    assert await on_the_device(INSIDE) == "[]\n"


PLAIN = {
    "core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero",
    "console",
}  # fmt: skip


@pytest.mark.parametrize("profile", ["research", "harness", "vault", "intake", "gate"])
@pytest.mark.skipif(os.getuid() == 0, reason="sandboxes are never started by root")
async def test_research_and_harness_have_no_device(profile: Any) -> None:
    """Also where the machine has one: /dev holds plain nodes alone, and nothing can be added to it."""
    python = bwrap.base_python()
    code = "import os; print(sorted(os.listdir('/dev'))); print(os.path.exists('/sys/module'))"
    mounts: tuple[Mount, ...] = bwrap.python_mounts(python)
    box = await start(SandboxSpec(profile, (str(python), "-I", "-S", "-c", code), mounts=mounts), stdout=PIPE)
    assert box.stdout is not None
    out = (await box.stdout.read()).decode().splitlines()
    await box.kill()
    assert set(eval(out[0])) <= PLAIN and out[1] == "False"
