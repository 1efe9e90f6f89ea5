"""Real-time priority that root's session has does not reach a sandbox: one process with it stops everybody else."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can raise these limits")
ROOT = Path(__file__).parents[2]
INSIDE = """
import os
for policy, priority in ((os.SCHED_FIFO, 10), (os.SCHED_RR, 1)):
    try: os.sched_setscheduler(0, policy, os.sched_param(priority)); print("REAL TIME")
    except PermissionError: pass
try: os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0)); print("NOT IDLE")
except PermissionError: pass
try: os.nice(-5); print("NICE")
except PermissionError: pass
print("end")
"""
OUTSIDE = f"""
import asyncio, os, resource
from asyncio.subprocess import PIPE
from isolation import bwrap, sandbox
from isolation.spec import Limits, SandboxSpec
sandbox.use_pidfd_children()
assert resource.getrlimit(resource.RLIMIT_RTPRIO) == (50, 50)
python = bwrap.base_python()
spec = SandboxSpec("research", (str(python), "-I", "-S", "-c", {INSIDE!r}), mounts=bwrap.python_mounts(python),
                   limits=Limits(idle=True))
async def main():
    box = await sandbox.start(spec, stdout=PIPE)
    print((await box.stdout.read()).decode(), end="")
    await box.kill()
asyncio.run(main())
"""


def generous() -> None:
    resource.setrlimit(resource.RLIMIT_RTPRIO, (50, 50))
    resource.setrlimit(resource.RLIMIT_NICE, (40, 40))


def may_be_generous() -> bool:
    try:
        subprocess.run(["true"], preexec_fn=generous, check=True)
    except subprocess.SubprocessError:
        return False
    return True


@pytest.mark.skipif(os.getuid() == 0 and not may_be_generous(), reason="this root may not raise its own limits")
def test_a_sandbox_has_no_real_time_priority_whatever_its_starter_has() -> None:
    words = [sys.executable, "-P", "-m", "isolation.privilege", "--", sys.executable, "-c", OUTSIDE]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, preexec_fn=generous, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "end\n", done.stdout + done.stderr
