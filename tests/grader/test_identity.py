"""What is graded is the model that the gate let through, on the base the run began with; or nothing is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gate_kit import LORA, MODEL_PYTHON, Bench, base_values, lora_weights

from grader.errors import GraderError
from grader.identity import model_identity, tree_digest
from grader.protocol import ModelRef

pytestmark = [
    pytest.mark.skipif(os.geteuid() == 0, reason="sandboxes are not started by root: use isolation.privilege"),
    pytest.mark.skipif(not MODEL_PYTHON.exists(), reason="the model environment is missing: run `runner prepare`"),
]
NORM = "model.norm.weight"


async def gated(made: Bench, adapter: bool) -> tuple[ModelRef, str, Path]:
    """A model through the real gate, as the record speaks of it; the base's digest; the file of its weights."""
    if adapter:
        made.put({"adapter_model.safetensors": lora_weights(), "adapter_config.json": LORA})
    else:
        made.put({"model.safetensors": made.full({NORM: [value + 1 for value in base_values()[NORM]]})})
    result = await made.check()
    assert result.accepted, result.refused
    base = tree_digest(made.base, cards=False)
    names = ("adapter", "adapter_model.safetensors") if adapter else ("weights", "model.safetensors")
    ref = ModelRef(id="m01", format=result.format, sha256=result.sha256, base_sha256=base)
    return ref, base, made.models.joinpath("m01", *names)


@pytest.mark.parametrize("adapter", [True, False])
async def test_a_model_that_changed_after_the_gate_is_not_graded(made: Bench, adapter: bool) -> None:
    ref, base, weights = await gated(made, adapter)
    identity = model_identity(made.models, ref, base)
    assert identity == model_identity(made.models, ModelRef(id="m01", format=ref.format), base)
    data = weights.read_bytes()
    weights.chmod(0o644)
    weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(GraderError, match="not what the gate let through"):
        model_identity(made.models, ref, base)
    weights.write_bytes(data)
    assert model_identity(made.models, ref, base) == identity


async def test_another_base_than_the_runs_is_not_graded(made: Bench) -> None:
    ref, base, _ = await gated(made, adapter=False)
    (made.base / "config.json").write_text("{}")
    other = tree_digest(made.base, cards=False)
    for one in (ref, ModelRef(id="m00", format="base", base_sha256=base)):
        with pytest.raises(GraderError, match="not the one the run began with"):
            model_identity(made.models, one, other)
