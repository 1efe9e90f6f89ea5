"""What remains open, shown: a lock on a file that two sandboxes can read is seen from one to the other."""

from __future__ import annotations

import os
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from isolation.bwrap import base_python, python_mounts
from isolation.sandbox import Sandbox, start
from isolation.spec import Mount, SandboxSpec

HOLD = """
import fcntl, sys
f = open("/shared/file")
fcntl.flock(f, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
LOOK = """
import fcntl
f = open("/shared/file")
try:
    fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("free")
except BlockingIOError:
    print("taken")
"""


async def sandbox(code: str, shared: Path) -> Sandbox:
    python = base_python()
    mounts = (*python_mounts(python), Mount(shared, "/shared"))
    return await start(
        SandboxSpec("harness", (str(python), "-I", "-S", "-c", code), mounts=mounts), stdin=PIPE, stdout=PIPE
    )


async def said(code: str, shared: Path) -> str:
    box = await sandbox(code, shared)
    assert box.stdout is not None
    out = await box.stdout.read()
    await box.kill()
    return out.decode().strip()


@pytest.mark.skipif(os.getuid() == 0, reason="sandboxes are never started by root")
async def test_a_lock_on_a_shared_file_is_seen_and_ends_with_its_sandbox(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("read-only for both")
    holder = await sandbox(HOLD, tmp_path)
    assert holder.stdout is not None and await holder.stdout.readline() == b"held\n"
    assert await said(LOOK, tmp_path) == "taken", "one bit crossed: the residual risk that is stated"
    await holder.kill()
    assert await said(LOOK, tmp_path) == "free"
