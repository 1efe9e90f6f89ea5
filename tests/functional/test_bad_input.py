"""Bad input gets one line (what, where, what to do) and its exit code."""

from __future__ import annotations

import json
import shutil

import pytest
from run_kit import command

from runner.record.journal import load
from runner.record.rundir import RunDir, list_runs

PROBLEM = {"problem_idx": 1, "problem": "What is 1+1?", "answer": 2}


def one_line(done, code: int, *words: str) -> None:
    assert done.returncode == code, (done.returncode, done.stderr)
    lines = [line for line in done.stderr.splitlines() if line]
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0], lines[0]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--task", "aim"), 4, ("aim", "Did you mean 'aime'?")),
        (("--task", "aime", "--profile", "lap"), 2, ("lap", "laptop")),
        (("--task", "aime", "--scope", "dat"), 2, ("dat", "Did you mean 'data'?")),
        (("--task", "aime", "--budget", "soon"), 2, ("soon", "20m")),
        (("--task", "aime", "--budget", "-5"), 2, ("budget",)),
        (("--task", "aime", "--set", "engine.wav=3"), 2, ("engine.wav", "Did you mean 'wave'?")),
        (("--task", "aime", "--set", "engine.wave=many"), 2, ("engine.wave",)),
        (("--task", "aime", "--samples", "0"), 2, ("samples",)),
        (("--task", "aime", "--agent", "scriptd"), 2, ("scriptd", "Did you mean 'scripted'?")),
        (("--task", "aime", "--model", "no-such-model"), 2, ("runner prepare --model no-such-model",)),
        (("--task", "aime", "--model", "/nowhere/model"), 2, ("/nowhere/model", "config.json")),
        (("--task", "aime", "--problems", "nothing.jsonl"), 2, ("nothing.jsonl", "no such file")),
        (("--task", "aime", "--config", "nothing.toml"), 2, ("nothing.toml", "cannot be read")),
        (("statsu",), 2, ("Did you mean 'status'?",)),
        (("resume", "no-such-run"), 6, ("no runs here",)),
    ],
)
def test_one_line_and_its_exit_code(tmp_path, words, code, said):
    one_line(command(*words, runs=tmp_path), code, *said)
    assert list_runs(tmp_path) == [], "a refused run left a folder"


def test_a_model_of_pickles_or_with_code_is_refused(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "pytorch_model.bin").write_bytes(b"x")
    one_line(command("--task", "aime", "--model", str(model), runs=tmp_path), 2, "safetensors")
    (model / "model.safetensors").write_bytes(b"")
    (model / "modeling_own.py").write_text("raise SystemExit('this ran')\n")
    one_line(command("--task", "aime", "--model", str(model), runs=tmp_path), 2, "modeling_own.py", "never run")


def test_malformed_toml_names_the_line(tmp_path):
    (tmp_path / "bad.toml").write_text("task = 'aime'\nseed = = 3\n")
    one_line(command("--config", "bad.toml", runs=tmp_path), 2, "bad.toml", "line 2")


def test_splits_that_overlap_are_refused(tmp_path):
    validation, hidden = tmp_path / "v.jsonl", tmp_path / "h.jsonl"
    validation.write_text(json.dumps(PROBLEM) + "\n")
    hidden.write_text(json.dumps({"problem_idx": 1, "problem": "What  is 1+1?", "answer": 2}) + "\n")
    words = ("--task", "aime", "--problems", str(validation), "--hidden", str(hidden), "--model", "tiny")
    done = command(*words, "--samples", "1", runs=tmp_path, timeout=120)
    one_line(done, 4, "share a problem")


def test_a_malformed_problems_file_names_the_line(tmp_path):
    validation, hidden = tmp_path / "v.jsonl", tmp_path / "h.jsonl"
    validation.write_text(json.dumps(PROBLEM) + "\n{oops\n")
    hidden.write_text(json.dumps({"problem_idx": 1, "problem": "Another one?", "answer": 3}) + "\n")
    words = ("--task", "aime", "--problems", str(validation), "--hidden", str(hidden), "--model", "tiny")
    done = command(*words, "--samples", "1", runs=tmp_path, timeout=120)
    one_line(done, 4, "v.jsonl:2")


def test_a_budget_shorter_than_the_first_validation_is_refused(tmp_path):
    done = command("--task", "aime", "--budget", "1s", "--profile", "laptop", runs=tmp_path, timeout=120)
    one_line(done, 7, "--budget", "shorter than one validation")


@pytest.fixture(scope="module")
def refused_run(tmp_path_factory):
    """A run of one problem that was refused after its first validation."""
    runs = tmp_path_factory.mktemp("refused")
    files = []
    for name, question in (("v", "What is 1+1?"), ("h", "Another one?")):
        files.append(runs / f"{name}.jsonl")
        files[-1].write_text(json.dumps({"problem_idx": 1, "problem": question, "answer": 2}) + "\n")
    words = ("--task", "aime", "--problems", str(files[0]), "--hidden", str(files[1]), "--model", "tiny")
    done = command(*words, "--samples", "1", "--budget", "0.01s", "--profile", "laptop", runs=runs, timeout=240)
    assert done.returncode == 7, done.stderr
    return list_runs(runs)[0]


@pytest.fixture
def begun(refused_run, tmp_path):
    """A copy of that run, below the test's own folder."""
    run = RunDir(tmp_path / "aime" / refused_run.name)
    shutil.copytree(refused_run.path, run.path)
    return run


def test_a_budget_that_was_refused_is_refused_by_resume(begun, tmp_path):
    one_line(command("resume", runs=tmp_path, timeout=120), 7, "--budget", "shorter than one validation")
    assert "research" not in {mark.phase for mark in load(begun.journal_file).phases}


def test_a_changed_configuration_is_not_resumed(begun, tmp_path):
    run = begun
    run.config_file.write_text(run.config_file.read_text().replace("wall_s = 0.01", "wall_s = 99.0"))
    one_line(command("resume", runs=tmp_path), 2, "run.toml", "not the configuration the run began with")


def test_a_changed_journal_is_not_resumed(begun, tmp_path):
    run = begun
    text = run.journal_file.read_text()
    run.journal_file.write_text(text.replace('"seed":0', '"seed":7', 1))
    one_line(command("resume", runs=tmp_path), 6, "line 1", "the record is broken")
