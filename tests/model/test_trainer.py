"""T0 on the tiny model, as the training sandbox starts it: real trainings of a few steps in the model environment."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import tasks
from runner import places
from runner.config import ConfigError
from tasks.aime import mini
from tasks.aime.text import prompt

T0 = Path(tasks.__file__).parent / "aime" / "workspace" / "trainer"
TINY = places.model_dir("tiny")


@dataclass
class Training:
    """What one call of the trainer left."""

    code: int
    log: str
    metrics: list[dict]
    out: Path
    files: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.files = {path.name: path.read_bytes() for path in sorted(self.out.glob("*"))}


def python() -> Path:
    try:
        return places.model_python()
    except ConfigError as error:
        pytest.skip(str(error))


def rows(count: int) -> str:
    problems = mini.generate("test/trainer", count)
    lines = [{"prompt": prompt(p.question), "completion": mini.solution_calculator(p)} for p in problems]
    return "".join(json.dumps(line) + "\n" for line in lines)


def train(
    folder: Path, data: str, *parents: Path, environment: dict[str, str] | None = None, **recipe: object
) -> Training:
    """Copy T0 into ``folder``, change its recipe, run it on ``data``; ``recipe`` are TOML values by key."""
    trainer, source, out = folder / "trainer", folder / "data", folder / "out"
    shutil.copytree(T0, trainer, ignore=shutil.ignore_patterns("__pycache__"))
    text = (trainer / "recipe.toml").read_text()
    kept = [line for line in text.splitlines() if line.split("=")[0].strip() not in recipe]
    added = [f"{key} = {json.dumps(value)}" for key, value in recipe.items()]
    (trainer / "recipe.toml").write_text("\n".join([*kept, *added]) + "\n")
    source.mkdir()
    (source / "train.jsonl").write_text(data)
    reading, writing = os.pipe()
    command = [str(python()), "-P", str(trainer / "train.py"), "--data", str(source), "--base", str(TINY)]
    for parent in parents:
        command += ["--parent", str(parent)]
    child = {"PATH": os.environ["PATH"], "HOME": str(folder), "VIBE_METRICS": str(writing), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--out", str(out)],
        pass_fds=(writing,),
        env=child | (environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    os.close(writing)
    with os.fdopen(reading) as stream:
        metrics = [json.loads(line) for line in stream]
    return Training(done.returncode, done.stdout, metrics, out)


def tensors(data: bytes) -> dict[str, tuple[str, list[int]]]:
    """Name → (dtype, shape), from a safetensors header."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    return {name: (t["dtype"], t["shape"]) for name, t in header.items() if name != "__metadata__"}


def in_model_environment(script: str, *words: object) -> str:
    done = subprocess.run(
        [python(), "-c", script, *map(str, words)], capture_output=True, text=True, env={"PATH": os.environ["PATH"]}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Training:
    """30 steps of full tuning."""
    settings = {"method": "full", "learning_rate": 2e-3, "max_steps": 30, "batch_size": 4}
    return train(tmp_path_factory.mktemp("full"), rows(72), **settings)


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> tuple[Training, Training]:
    """Two adapters, of different seeds and ranks."""
    settings = {"learning_rate": 1e-2, "max_steps": 3, "batch_size": 2}
    return (
        train(tmp_path_factory.mktemp("a"), rows(18), **settings),
        train(tmp_path_factory.mktemp("b"), rows(18), **settings, rank=4, alpha=16, seed=1),
    )


@pytest.mark.slow
def test_full_tuning_lowers_the_loss_and_says_so(full: Training) -> None:
    assert full.code == 0, full.log
    steps = [line["step"] for line in full.metrics]
    assert steps == [1, 5, 10, 15, 20, 25, 30]
    assert all(set(line) == {"step", "steps", "loss", "lr", "tokens", "seconds"} for line in full.metrics)
    assert {line["steps"] for line in full.metrics} == {30}
    assert full.metrics[-1]["loss"] < full.metrics[0]["loss"] / 2
    for name in ("tokens", "seconds"):
        values = [line[name] for line in full.metrics]
        assert values == sorted(values) and values[0] > 0


@pytest.mark.slow
def test_full_tuning_leaves_one_file_with_the_tensors_of_the_base(full: Training) -> None:
    assert set(full.files) == {"model.safetensors"}
    written = tensors(full.files["model.safetensors"])
    assert written == tensors((TINY / "model.safetensors").read_bytes())
    assert {dtype for dtype, _ in written.values()} == {"BF16"}
    assert full.files["model.safetensors"] != (TINY / "model.safetensors").read_bytes()
    assert (full.out / "model.safetensors").stat().st_mode & 0o777 == 0o644


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes(full: Training, tmp_path: Path) -> None:
    again = train(tmp_path, rows(72), method="full", learning_rate=2e-3, max_steps=30, batch_size=4)
    assert again.files == full.files


@pytest.mark.slow
def test_an_adapter_is_peft_s_two_files_in_bfloat16(adapters: tuple[Training, Training]) -> None:
    for training, rank in zip(adapters, (16, 4), strict=True):
        assert training.code == 0, training.log
        assert set(training.files) == {"adapter_config.json", "adapter_model.safetensors"}
        config = json.loads(training.files["adapter_config.json"])
        assert config["r"] == rank and config["inference_mode"] is True
        assert config["target_modules"] == sorted(config["target_modules"])
        assert {dtype for dtype, _ in tensors(training.files["adapter_model.safetensors"]).values()} == {"BF16"}


DELTAS = """
import sys, torch
from pathlib import Path
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
def weights(folder):
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
    if Path(folder, 'adapter_config.json').exists():
        model = PeftModel.from_pretrained(model, folder).merge_and_unload()
    elif folder != 'base':
        model.load_state_dict(load_file(folder + '/model.safetensors'), strict=False)
    return model.state_dict()
base, one, two, merged = (weights(folder) for folder in ('base', *sys.argv[2:5]))
shares = [float(x) for x in sys.argv[5:7]]
wanted = {k: shares[0] * (one[k] - base[k]) + shares[1] * (two[k] - base[k]) for k in base}
moved = max(float(v.abs().max()) for v in wanted.values())
errors = {k: (merged[k] - base[k] - wanted[k]).abs() for k in base}
off = max(float(v.abs().max()) for v in errors.values())
# bfloat16 keeps eight bits: a correctly rounded weight is within 2**-8 of itself.
ulps = max(float((errors[k] / ((base[k] + wanted[k]).abs() * 2**-8 + 1e-6)).max()) for k in base)
print(moved, off, ulps)
"""


@pytest.mark.slow
def test_merging_adapters_is_an_adapter_and_the_exact_average(
    adapters: tuple[Training, Training], tmp_path: Path
) -> None:
    """Ranks add up, so nothing is lost: the merged delta is the weighted sum of both deltas."""
    one, two = adapters
    merged = train(tmp_path, "", one.out, two.out, method="merge", merge_weights=[0.75, 0.25])
    assert merged.code == 0, merged.log
    assert json.loads(merged.files["adapter_config.json"])["r"] == 20
    moved, off, _ = map(float, in_model_environment(DELTAS, TINY, one.out, two.out, merged.out, 0.75, 0.25).split())
    assert moved > 1e-3
    assert off < moved / 50


@pytest.mark.slow
def test_merging_whole_weights_with_an_adapter_is_whole_weights(
    full: Training, adapters: tuple[Training, Training], tmp_path: Path
) -> None:
    merged = train(tmp_path, "", full.out, adapters[0].out, method="merge")
    assert set(merged.files) == {"model.safetensors"}, merged.log
    told = in_model_environment(DELTAS, TINY, full.out, adapters[0].out, merged.out, 0.5, 0.5)
    moved, _, ulps = map(float, told.split())
    assert moved > 1e-3
    assert ulps <= 1.01


@pytest.mark.slow
def test_lora_from_a_parent_goes_on_with_its_adapter(adapters: tuple[Training, Training], tmp_path: Path) -> None:
    """Its first loss is the parent's last level, not the base's."""
    settings = {"start_from": "parent", "learning_rate": 1e-4, "max_steps": 1, "batch_size": 2}
    after = train(tmp_path, rows(18), adapters[0].out, **settings)
    assert set(after.files) == {"adapter_config.json", "adapter_model.safetensors"}, after.log
    assert after.metrics[0]["loss"] < adapters[0].metrics[0]["loss"]


@pytest.mark.slow
def test_lora_on_whole_weights_is_written_merged(full: Training, tmp_path: Path) -> None:
    """An adapter on other weights than the base's would not fit the base."""
    after = train(tmp_path, rows(18), full.out, start_from="parent", max_steps=1, batch_size=2)
    assert set(after.files) == {"model.safetensors"}, after.log
    assert after.metrics[0]["loss"] < full.metrics[0]["loss"] / 2


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "train.jsonl:2: not an object"),
        ('{"prompt": "x"}', "train.jsonl:2: not an object with prompt and completion (KeyError: 'completion')"),
        ("[1]", "train.jsonl:2: not an object"),
        ('{"prompt": "x", "completion": 5}', "train.jsonl:2: prompt and completion must be texts"),
        ('{"prompt": "x", "completion": ""}', "train.jsonl:2: prompt and completion must be texts"),
        ("[" * 100_000, "train.jsonl:2: not an object with prompt and completion (RecursionError"),
    ],
)
def test_a_bad_row_is_one_line_with_its_place(tmp_path: Path, line: str, told: str) -> None:
    done = train(tmp_path, rows(1) + line + "\n")
    assert done.code == 2
    assert done.log.startswith(f"train.py: {told}")
    assert done.log.count("\n") == 1
    assert done.files == {} and done.metrics == []


def test_no_rows_at_all_says_what_a_row_is(tmp_path: Path) -> None:
    done = train(tmp_path, "\n\n")
    assert done.code == 2
    assert "no rows; write lines like" in done.log


@pytest.mark.parametrize(
    ("recipe", "told"),
    [
        ({"methd": "full"}, "unknown key 'methd'"),
        ({"method": "magic"}, "method must be one of lora, full, merge"),
        ({"rank": "16"}, "rank must be a int"),
        ({"rank": True}, "rank must be a int"),
        ({"epochs": 0}, "epochs = 0.0 is out of range"),
        ({"merge_weights": ["a"]}, "merge_weights must be a list of numbers"),
    ],
)
def test_a_wrong_recipe_is_one_line_with_its_key(tmp_path: Path, recipe: dict[str, object], told: str) -> None:
    done = train(tmp_path, rows(1), **recipe)
    assert done.code == 2
    assert told in done.log
    assert done.log.count("\n") == 1


@pytest.mark.slow
def test_refusals_that_need_torch(tmp_path: Path) -> None:
    """No parent to merge; an accelerator demanded where there is none; every row too long."""
    asked = train(tmp_path / "a", "", method="merge")
    assert (asked.code, "need a parent" in asked.log) == (2, True), asked.log
    demanded = train(tmp_path / "b", rows(1), environment={"VIBE_REQUIRE_ACCELERATOR": "1", "CUDA_VISIBLE_DEVICES": ""})
    assert (demanded.code, "accelerator is required" in demanded.log) == (2, True), demanded.log
    long = train(tmp_path / "c", rows(1), max_length=8)
    assert (long.code, "longer than max_length = 8" in long.log) == (2, True), long.log
