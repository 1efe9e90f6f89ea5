"""`runner doctor`, read as a new user would: here, as root's child, and where user namespaces are forbidden."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

import runner
from isolation.bwrap import python_mounts
from isolation.sandbox import start
from isolation.spec import Mount, SandboxSpec
from runner import doctor
from runner.doctor import Check

ROOT = Path(runner.__file__).parents[1]
WORDS = [sys.executable, "-P", "-m", "runner", "doctor"]
GROUPS = {"walls", "machine", "prepared"}
needs_user = pytest.mark.skipif(os.getuid() == 0, reason="tests/root tries it as root")


def doctored(*words: str, runs: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*WORDS, "--runs", str(runs), *words], capture_output=True, text=True, timeout=120, cwd=ROOT, check=False
    )


@needs_user
def test_here_every_wall_stands_and_is_said_in_one_line_each(tmp_path: Path) -> None:
    done = doctored(runs=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every wall stands: runs can start." in done.stdout and "Walls" in done.stdout
    assert all(len(line) < 300 for line in done.stdout.splitlines())


@needs_user
def test_a_program_reads_the_same_checks(tmp_path: Path) -> None:
    done = doctored("--json", runs=tmp_path)
    checks = [Check(**fields) for fields in json.loads(done.stdout)]
    assert {check.group for check in checks} == GROUPS and done.returncode == doctor.exit_code(checks) == 0
    assert len({check.name for check in checks}) == len(checks)
    assert {"profiles", "seccomp", "memory", "disk", "clock", "gpu", "subuid", "model-env"} <= {c.name for c in checks}
    assert all(check.why and check.do for check in checks if check.state in ("missing", "weak"))


@needs_user
async def test_where_namespaces_are_forbidden_it_says_what_to_type(tmp_path: Path) -> None:
    packages = [Mount(ROOT / name, f"/opt/ours/{name}") for name in ("isolation", "grader", "runner", "tasks")]
    spec = SandboxSpec(
        "research",
        (*WORDS, "--runs", "/tmp/runs", "--json"),
        mounts=(*python_mounts(Path(sys.executable)), *packages),
        env={"PYTHONPATH": "/opt/ours", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    box = await start(spec, stdout=PIPE, stderr=PIPE)
    assert box.stdout is not None and box.stderr is not None
    try:
        out, err = await box.stdout.read(), await box.stderr.read()
        code = await box.wait()
    finally:
        await box.kill()
    assert code == doctor.MISSING_WALL, err.decode()
    checks: list[dict[str, Any]] = json.loads(out)
    (gone,) = [check for check in checks if check["state"] == "missing"]
    assert gone["name"] == "namespaces" and "no sandbox could be started: bwrap: " in gone["what"]
    assert gone["why"] and gone["do"] and "share" not in gone["do"], "never advises to share the network"


def test_missing_walls_refuse_and_weak_ones_are_recorded() -> None:
    weak = Check("walls", "cgroup", "weak", "no cgroup", "soft", "Start as root")
    gone = Check("walls", "seccomp", "missing", "no filter", "keyrings", "Install libseccomp2")
    note = Check("prepared", "model-env", "note", "not there", "runs need it", "Type: runner prepare")
    assert doctor.exit_code([weak, note]) == 0 and "Weak, and recorded in every run: cgroup." in doctor.text([weak])
    assert doctor.exit_code([weak, gone]) == 3
    shown = doctor.text([weak, gone, note])
    assert shown.endswith("Runs are refused here: seccomp missing.") and "Do: Install libseccomp2" in shown


def test_a_small_or_full_machine_is_told(tmp_path: Path) -> None:
    assert doctor._memory(4 << 30).state == "note" and doctor._memory(64 << 30).state == "ok"
    assert doctor._disk(tmp_path / "not" / "there").name == "disk"
    assert doctor._clock(0.0, 0.0).state == "note" and "suspended 90 s" in doctor._clock(2e9, 90.0).what
    site = tmp_path / "lib" / "python3.11" / "site-packages" / "lm_eval"
    site.mkdir(parents=True)
    assert "lm_eval" in doctor._benchmarks(tmp_path).what and doctor._benchmarks(tmp_path / "lib").state == "ok"
