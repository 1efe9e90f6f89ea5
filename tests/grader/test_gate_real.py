"""The gate on real checkpoints: the small model of the repository, and an adapter that PEFT wrote for it."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from gate_kit import MODEL_PYTHON, Bench

pytestmark = [
    pytest.mark.skipif(os.geteuid() == 0, reason="sandboxes are not started by root: use isolation.privilege"),
    pytest.mark.skipif(not MODEL_PYTHON.exists(), reason="the model environment is missing: run `runner prepare`"),
]
TINY = Path(__file__).resolve().parents[2] / "tasks" / "models" / "tiny"


async def test_the_real_small_model_passes_as_a_copy(made: Bench) -> None:
    made.put({path.name: path.read_bytes() for path in TINY.iterdir() if path.is_file()}, made.base)
    made.put({"model.safetensors": (TINY / "model.safetensors").read_bytes()})
    result = await made.check()
    assert result.accepted and result.no_change and result.bytes > 3_000_000


_PEFT = """
import sys, torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM
base, out, accepted = sys.argv[1:]
ids = torch.arange(12).unsqueeze(0)
def load():
    return AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
torch.manual_seed(0)
if accepted == "-":
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", use_rslora=True, task_type="CAUSAL_LM")
    model = get_peft_model(load(), config)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(out)
    print(float(model.eval()(ids).logits.double().square().sum()))
else:
    print(float(PeftModel.from_pretrained(load(), accepted)(ids).logits.double().square().sum()))
"""


@pytest.mark.slow
async def test_an_adapter_of_peft_passes_and_means_the_same_afterwards(made: Bench) -> None:
    made.put({path.name: path.read_bytes() for path in TINY.iterdir() if path.is_file()}, made.base)

    async def run(accepted: str) -> float:
        arguments = (str(MODEL_PYTHON), "-c", _PEFT, str(made.base), str(made.out), accepted)
        child = await asyncio.create_subprocess_exec(*arguments, stdout=PIPE, env={"HF_HUB_OFFLINE": "1"})
        said, _ = await child.communicate()
        return float(said)

    before = await run("-")
    result = await made.check()
    assert result.accepted and result.format == "adapter" and result.delta_norm > 0, result.refused
    assert await run(str(made.models / "m01" / "adapter")) == pytest.approx(before, rel=1e-6)
