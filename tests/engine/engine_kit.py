"""What the engine tests stand on: the tiny model, adapters that PEFT wrote, and a zoo of broken checkpoints."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from grader.protocol import EngineConfig, ModelRef

BASE = ModelRef(id="m00", format="base")
ADAPTER = ModelRef(id="m01", format="adapter")
"""Its matrices are drawn at random: what it writes varies more than what the base writes."""
ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "tasks" / "models" / "tiny"
CONFIG = EngineConfig(dtype="float32", wave=32, threads=1)


def model_env() -> Path:
    """The model environment that ``runner prepare`` made; skips the test where there is none."""
    home = os.environ.get("VIBETRAINING_HOME", "")
    place = (Path(home) if home else Path("~/.cache/vibetraining-bench").expanduser()) / "model-env"
    if not (place / "bin" / "python").exists():
        pytest.skip("there is no model environment: run `runner prepare`")
    return place


def run_inside(code: str, *argv: str) -> Any:
    """Run code with the model environment's python and ``inside`` importable; its last line as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "inside").symlink_to(ROOT / "grader" / "engines" / "inside")
        env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": folder, "HOME": folder, "HF_HUB_OFFLINE": "1"}
        env |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [model_env() / "bin" / "python", "-P", "-c", code, *argv],
            env=env,
            cwd=folder,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


MAKE_MODELS = """
import json, shutil, sys, torch
from pathlib import Path
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
base, out = Path(sys.argv[1]), Path(sys.argv[2])
def adapter(name, **more):
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    wanted = dict(r=8, lora_alpha=20, target_modules="all-linear", task_type="CAUSAL_LM")
    peft = get_peft_model(model, LoraConfig(**{**wanted, **more}))
    for key, value in peft.named_parameters():
        if "lora_B" in key:
            torch.nn.init.normal_(value, std=0.1)
    peft.save_pretrained(out / name / "adapter")
    for kind in ("float32", "bfloat16"):
        plain = AutoModelForCausalLM.from_pretrained(base, dtype=getattr(torch, kind))
        merged = PeftModel.from_pretrained(plain, out / name / "adapter").merge_and_unload()
        (out / name / kind).mkdir()
        state = {k: v.clone() for k, v in merged.state_dict().items() if k != "lm_head.weight"}
        save_file(state, out / name / kind / "model.safetensors")
adapter("m01")
adapter("m02", use_rslora=True, r=4)
(out / "m03").mkdir()
shutil.copytree(out / "m01" / "bfloat16", out / "m03" / "weights")
(out / "m00" / "weights").mkdir(parents=True)
def broken(name, source, change_config=None, change=None):
    shutil.copytree(out / source, out / name)
    for folder in (out / name).iterdir():
        if change_config and (folder / "adapter_config.json").exists():
            config = json.loads((folder / "adapter_config.json").read_text())
            (folder / "adapter_config.json").write_text(json.dumps({**config, **change_config}))
        for path in folder.glob("*.safetensors"):
            if change and folder.name in ("adapter", "weights"):
                save_file(change(load_file(path)), path)
first = lambda tensors: sorted(tensors)[0]
broken("bad-dora", "m01", {"use_dora": True})
broken("bad-pissa", "m01", {"init_lora_weights": "pissa"})
broken("bad-pattern", "m01", {"rank_pattern": {"q_proj": 2}})
broken("bad-rank", "m01", {"r": 4})
broken("bad-half", "m01", None, lambda t: {k: v for k, v in t.items() if k != first(t)})
broken("bad-name", "m01", None, lambda t: {**t, "base_model.model.x.lora_A.weight": torch.zeros(8, 2)})
broken("bad-shape", "m03", None, lambda t: {**t, first(t): torch.zeros(3, 3)})
broken("bad-missing", "m03", None, lambda t: {k: v for k, v in t.items() if k != first(t)})
broken("bad-extra", "m03", None, lambda t: {**t, "model.evil": torch.zeros(3)})
broken("bad-nan", "m03", None, lambda t: {**t, "model.norm.weight": t["model.norm.weight"] * float("nan")})
shutil.copytree(out / "m03", out / "bad-bytes")
(out / "bad-bytes" / "weights" / "model.safetensors").write_bytes(b"\\xff" * 64)
for name, template in (
    ("bad-template", "{% if"),
    ("slow-template", "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"),
    ("own-template", "{% for m in messages %}<{{ m.content }}>{% endfor %}"),
):
    shutil.copytree(out / "m03", out / name)
    (out / name / "weights" / "chat_template.jinja").write_text(template)
print(json.dumps(sorted(p.name for p in out.iterdir())))
"""


async def until_computing(init: int) -> None:
    """Returns when the server below ``init`` has used a twentieth of a second of CPU more than now."""

    def used() -> int:
        (child,) = Path(f"/proc/{init}/task/{init}/children").read_text().split()
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    start = used()
    async with asyncio.timeout(60):
        while used() < start + 5:
            await asyncio.to_thread(os.sched_yield)
