"""How memory is shared, and that nothing secret lies in a folder that every sandbox is given."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from phase_kit import config

from grader.protocol import EngineConfig
from isolation.problem import SandboxError
from runner.config import ConfigError, LlmConfig
from runner.opening import check_places, shared_memory
from runner.record.rundir import RunDir
from runner.research.memory import ENGINE_LEAST, GIB, beside_memory, engine_memory, plan_memory

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


def served_here(*models: Path) -> dict[str, Any]:
    """The tables of an agent's model and a teacher that this machine serves."""
    tables = ("llm", "agent_model"), ("teacher", "teacher_model")
    found: dict[str, Any] = {}
    for (table, name), model in zip(tables, models, strict=False):
        found |= {table: LlmConfig(style="openai", base_url="http://localhost", local=str(model)), name: "local:x"}
    return found


def test_an_engine_beside_the_graders_has_a_share_and_training_gives_it(tmp_path: Path) -> None:
    alone = shared_memory(config(base_dir=str(TINY)), 32 * GIB)[1]
    assert alone.beside == {}
    engine, plan = shared_memory(config(base_dir=str(TINY), **served_here(TINY, TINY)), 32 * GIB)
    (share,) = plan.beside.values()
    assert share.batch == 8 and 3 * GIB < share.memory < 4 * GIB, "one engine for both"
    assert plan.training == alone.training - share.memory
    assert plan.research + plan.training + engine + share.memory <= 32 * GIB
    other = tmp_path / "large"
    other.mkdir()
    with (other / "model.safetensors").open("wb") as stream:
        stream.truncate(2 * GIB)
    plan = shared_memory(config(base_dir=str(TINY), **served_here(TINY, other)), 64 * GIB)[1]
    assert set(plan.beside) == {str(TINY), str(other)} and plan.beside[str(other)].memory >= 15 * GIB


def test_an_engine_with_little_memory_answers_fewer_at_once_and_one_with_too_little_starts_no_run(
    tmp_path: Path,
) -> None:
    (tmp_path / "model.safetensors").touch()
    sizes = {"num_hidden_layers": 30, "num_key_value_heads": 3, "num_attention_heads": 9, "head_dim": 64}
    (tmp_path / "config.json").write_text(json.dumps({**sizes, "max_position_embeddings": 8192}))
    batches = [beside_memory([str(tmp_path)], total, 4 * GIB)[str(tmp_path)] for total in (16 * GIB, 10 * GIB)]
    assert [share.batch for share in batches] == [8, 1] and batches[0].memory > batches[1].memory
    with pytest.raises(ConfigError) as error:
        shared_memory(config(base_dir=str(TINY), **served_here(tmp_path)), 8 * GIB)
    assert "\n" not in str(error.value) and "it needs 3.4 GiB of memory" in str(error.value)
    assert "2.0 are left" in str(error.value) and "--set engine_memory" in str(error.value)


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


@pytest.mark.parametrize("table", ["llm", "teacher"])
def test_a_key_that_every_sandbox_could_read_starts_no_run(tmp_path: Path, table: str) -> None:
    rundir = RunDir.create(tmp_path / "runs", "aime", datetime(2026, 11, 30))
    base = tmp_path / "base"
    base.mkdir()
    (base / "key").touch()
    where = LlmConfig(style="openai", base_url="https://a.example", key_file=str(base / "key"))
    with pytest.raises(SandboxError, match=r"the key of the .* would be open to every sandbox"):
        check_places(config(base_dir=str(base), **{table: where}), rundir)


def test_a_run_inside_the_model_starts_not(tmp_path: Path) -> None:
    rundir = RunDir.create(tmp_path / "runs", "aime", datetime(2026, 11, 30))
    with pytest.raises(SandboxError, match="the run's folder would be open"):
        check_places(config(base_dir=str(tmp_path)), rundir)
