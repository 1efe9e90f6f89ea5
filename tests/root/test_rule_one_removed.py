"""Rule 1 of isolation (never start bubblewrap as uid 0), taken away: kernel settings can be written from inside."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from isolation import bwrap
from isolation.problem import SandboxError
from isolation.sandbox import start
from isolation.spec import SandboxSpec

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="shows what only root can show")
SETTING = Path("/proc/sys/kernel/core_pattern")
WRITE = f"v = open('{SETTING}').read(); open('{SETTING}', 'w').write(v); print('WRITTEN')"


def test_a_sandbox_of_root_writes_kernel_settings() -> None:
    """The very plan of a harness, started by uid 0; the value that is written is the one that is there."""
    python = bwrap.base_python()
    spec = SandboxSpec("harness", (str(python), "-I", "-S", "-c", WRITE), mounts=bwrap.python_mounts(python))
    with pytest.raises(SandboxError, match="must not be started by root"):
        asyncio.run(start(spec))
    before = SETTING.read_text()
    words = [str(bwrap.find_bwrap()), *bwrap.arguments(spec), "--", *spec.argv]
    done = subprocess.run(words, env={}, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "WRITTEN\n", done.stderr
    assert SETTING.read_text() == before
