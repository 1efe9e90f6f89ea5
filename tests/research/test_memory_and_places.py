"""How memory is shared, and that nothing secret lies in a folder that every sandbox is given."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest
from phase_kit import config

from grader.protocol import EngineConfig
from isolation.problem import SandboxError
from runner.opening import check_places
from runner.record.rundir import RunDir
from runner.research.memory import ENGINE_LEAST, GIB, engine_memory, plan_memory

TINY = Path(__file__).parents[2] / "tasks" / "models" / "tiny"


def test_an_engine_gets_what_its_model_needs_and_never_the_machine(tmp_path: Path) -> None:
    assert engine_memory(EngineConfig(), TINY, 32 * GIB) == ENGINE_LEAST
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "config.json").write_text(json.dumps({"num_hidden_layers": 40, "max_position_embeddings": 40_000}))
    blank = engine_memory(EngineConfig(), tmp_path, 64 * GIB)
    assert blank == 7 * GIB, "a configuration that says too little counts as the largest"
    with (tmp_path / "model.safetensors").open("wb") as stream:
        stream.truncate(2 * GIB)
    assert engine_memory(EngineConfig(), tmp_path, 64 * GIB) == 19 * GIB
    assert engine_memory(EngineConfig(device="cuda"), tmp_path, 64 * GIB) == 9 * GIB
    for total in (4 * GIB, 8 * GIB, 16 * GIB):
        engine = engine_memory(EngineConfig(), tmp_path, total)
        assert engine <= max(total // 2, total - total // 4 - 3 * GIB) and plan_memory(total, engine).training > 0


@pytest.mark.parametrize("secret", ["hidden_file", "validation_file"])
def test_problems_that_every_sandbox_could_read_start_no_run(tmp_path: Path, secret: str) -> None:
    rundir = RunDir.create(tmp_path / "runs", "aime", datetime(2026, 11, 30))
    base = tmp_path / "base"
    base.mkdir()
    apart = tmp_path / "problems.jsonl"
    apart.touch()
    check_places(config(base_dir=str(base), **{secret: str(apart)}), rundir)
    (base / "problems.jsonl").touch()
    link = tmp_path / "link.jsonl"
    link.symlink_to("/usr/bin/env")
    for place in (base / "problems.jsonl", Path("/usr/bin/env"), link):
        with pytest.raises(SandboxError, match="would be open to every sandbox"):
            check_places(config(base_dir=str(base), **{secret: str(place)}), rundir)


def test_a_run_inside_the_model_starts_not(tmp_path: Path) -> None:
    rundir = RunDir.create(tmp_path / "runs", "aime", datetime(2026, 11, 30))
    with pytest.raises(SandboxError, match="the run's folder would be open"):
        check_places(config(base_dir=str(tmp_path)), rundir)
