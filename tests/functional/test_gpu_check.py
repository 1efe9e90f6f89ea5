"""scripts/gpu_check, up to the point where CUDA is missing; with a GPU, the whole of it (marked real)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "gpu_check.py"


def check(work: Path, *words: str, timeout: float) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", str(SCRIPT), "--work", str(work), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a GPU")
def test_without_cuda_it_says_so_and_measures_nothing(tmp_path):
    done = check(tmp_path, "--model", "tiny", timeout=120)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "engine profile" in done.stdout and "libcuda" in done.stdout
    assert "CUDA is missing" in done.stdout and "not measured" in done.stdout
    assert "problems/min" not in done.stdout


@pytest.mark.long
def test_the_same_stack_runs_on_the_cpu(tmp_path):
    done = check(tmp_path, "--model", "tiny", "--device", "cpu", timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    for word in ("P0 on validation", "T0, 20 steps", "trained:", "problems/min", "gpu_check passed on cpu"):
        assert word in done.stdout


@pytest.mark.real
@pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="needs an NVIDIA GPU")
def test_on_a_gpu(tmp_path):
    done = check(tmp_path, timeout=360)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gpu_check passed on cuda" in done.stdout
