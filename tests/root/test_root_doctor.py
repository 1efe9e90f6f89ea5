"""`runner doctor` started by root: it answers as the ordinary user that a run would be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="shows what only root can show")


def test_it_leaves_root_and_every_wall_stands(tmp_path: Path) -> None:
    words = [sys.executable, "-P", "-m", "runner", "doctor", "--json", "--runs", str(tmp_path / "runs")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert checks["user"]["state"] == "ok" and checks["user"]["what"].startswith("uid ")
    assert "uid 0" not in checks["user"]["what"] and "not root" in checks["user"]["what"]
    assert not [name for name, check in checks.items() if check["state"] == "missing"]
    assert checks["profiles"]["state"] == "ok"
