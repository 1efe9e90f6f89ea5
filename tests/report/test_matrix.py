"""Every cell once: a matrix that is killed, or whose run is killed, goes on; no cell twice, none lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import matrix_program
import pytest

from runner.cli import main
from runner.config import ConfigError
from runner.matrix import PRESETS, Plan, cells, digest_of, locked, read_plan, standing
from runner.record.journal import load
from runner.record.rundir import RunDir, list_runs

PROGRAM = Path(matrix_program.__file__)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "gate")
    return tmp_path / "gate"


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Matrices that were started; what is left of them is killed at the end."""
    found: list[subprocess.Popen[str]] = []
    yield found
    for process in found:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def start(root: Path, gate: Path, started: list[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    argv = [sys.executable, "-P", str(PROGRAM), "matrix", str(root), str(gate)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    started.append(process)
    return process


def said(process: subprocess.Popen[str], part: str) -> str:
    """Read its lines up to the one that holds ``part``."""
    assert process.stdout is not None
    for line in process.stdout:
        if part in line:
            return line
    raise AssertionError(f"it never said {part!r}")


def child_of(process: subprocess.Popen[str]) -> int:
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])


def all_cells_once(root: Path) -> None:
    runs = list_runs(root)
    assert Counter(map(digest_of, runs)) == Counter(cell.digest for cell in matrix_program.plan())
    for run in runs:
        state = load(run.journal_file)
        assert state.finished is not None and state.finished.status == "ok"


def test_a_killed_matrix_goes_on_after_the_run_it_left_behind(
    tmp_path: Path, gate: Path, started: list[subprocess.Popen[str]]
) -> None:
    root = tmp_path / "runs"
    first = start(root, gate, started)
    with gate.open("w"):  # opens when the third cell waits in the middle of its run
        first.kill()
        first.wait()
        second = start(root, gate, started)
        said(second, "waiting for it")
    assert said(second, "open:").strip() == "open: []"
    all_cells_once(root)


def test_a_killed_run_is_resumed_not_run_again(
    tmp_path: Path, gate: Path, started: list[subprocess.Popen[str]]
) -> None:
    root = tmp_path / "runs"
    first = start(root, gate, started)
    with gate.open("w"):
        child = child_of(first)
        first.kill()
        first.wait()
        os.kill(child, signal.SIGKILL)
    second = start(root, gate, started)
    assert "to resume" in said(second, "cell 3 of 6")
    assert said(second, "open:").strip() == "open: []"
    all_cells_once(root)
    assert sum(load(run.journal_file).head.resumes for run in list_runs(root)) == 1


def test_a_matrix_that_is_done_starts_nothing(tmp_path: Path, started: list[subprocess.Popen[str]]) -> None:
    for _ in range(2):
        process = start(tmp_path / "runs", tmp_path / "no gate", started)
        said(process, "open: []")
        process.wait()
    all_cells_once(tmp_path / "runs")


def test_a_second_matrix_can_refuse_to_wait(tmp_path: Path) -> None:
    said: list[str] = []
    refused = pytest.raises(ConfigError, match="is at work")
    with locked(tmp_path, wait=True, say=said.append), refused, locked(tmp_path, wait=False, say=said.append):
        pass
    assert said == []


def test_a_folder_that_never_began_is_no_cell(tmp_path: Path) -> None:
    cell = matrix_program.plan()[0]
    from datetime import datetime

    run = RunDir.create(tmp_path, "aime", datetime(2026, 11, 30))
    run.write_config("", cell.digest)
    assert standing(cell, list_runs(tmp_path)) == ("to start", None)


def test_a_plan_is_read_whole_or_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "m.toml"
    file.write_text('agents = ["scripted"]\nseeds = [5]\nscopes = ["data"]\n[run]\nbudget = "3m"\nset = ["a.b=1"]\n')
    plan = read_plan(file, None, None, None)
    (cell,) = cells(plan, matrix_program.digest)
    assert cell.arguments == (
        "--task", "aime", "--agent", "scripted", "--seed", "5", "--scope", "data", "--budget", "3m", "--set", "a.b=1",
    )  # fmt: skip
    assert read_plan(file, None, 2, "9m").seeds == (0, 1)
    assert read_plan(file, None, 2, "9m").run.budget == "9m"
    for text, words in (("agents = 3", "agents"), ("seed = [1]", "seed"), ("agents = []", "agents"), ("=", "TOML")):
        file.write_text(text)
        with pytest.raises(ConfigError, match=words):
            read_plan(file, None, None, None)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_plan(tmp_path / "gone.toml", None, None, None)
    with pytest.raises(ConfigError, match="no preset"):
        read_plan(None, "all", None, None)


def test_the_ablation_preset_holds_each_component_alone_and_all_together() -> None:
    plan = read_plan(None, "ablation", 3, "2m")
    assert plan.scopes == PRESETS["ablation"]
    assert {"data", "trainer", "harness", "data+trainer+harness"} <= set(plan.scopes)
    assert len(cells(plan, matrix_program.digest)) == 15


def test_the_same_run_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="the same run as"):
        cells(Plan(scopes=("data", "data")), matrix_program.digest)


def test_the_command_needs_a_file_or_a_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["matrix"]) == 2
    assert "needs a file or a preset" in capsys.readouterr().err
