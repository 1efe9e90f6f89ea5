"""The starter of a sandbox dies at any moment of the start: nothing waits, nothing runs, nothing is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.getuid() == 0, reason="sandboxes are never started by root")

# Each moment is a place in isolation.sandbox or isolation.limits at which the starter kills itself.
MOMENTS = {
    "spawned, without its options": "async def spawn(*a, **k):\n    await plain(*a, **k)\n    die()\n"
    "plain, asyncio.create_subprocess_exec = asyncio.create_subprocess_exec, spawn",
    "its options sent": "sandbox._Status = lambda *_: die()",
    "its init waits at the gate": "limits.apply = lambda *_, **__: die()",
    "the gate is open": "async def settled(*_):\n    die()\nsandbox._settled = settled",
}
STARTER = """
import asyncio, os, signal, sys
from isolation import limits, sandbox
from isolation.spec import SandboxSpec
def die():
    os.kill(os.getpid(), signal.SIGKILL)
{moment}
async def main():
    await sandbox.start(SandboxSpec("harness", ("/bin/sleep", "1000"), pass_fds=(int(sys.argv[1]),)))
    print("started")
sandbox.use_pidfd_children()
asyncio.run(main())
"""


@pytest.mark.parametrize("moment", list(MOMENTS))
async def test_nothing_is_left_of_a_start_whose_starter_was_killed(moment: str) -> None:
    held, lifeline = os.pipe()
    program = STARTER.replace("{moment}", MOMENTS[moment])
    starter = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", program, str(lifeline), pass_fds=(lifeline,), stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    os.close(lifeline)
    out, _ = await starter.communicate()
    assert starter.returncode == -signal.SIGKILL and out == b""
    stream = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(held, "rb", buffering=0)
    )
    try:
        async with asyncio.timeout(30):
            assert await stream.read() == b"", "the last process that inherited the pipe has ended"
    finally:
        transport.close()
