"""Checkpoints made by hand, byte by byte: a small base, honest trainings of it, and the parts of dishonest ones."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader import gate
from grader.protocol import Gate, GateResult, ModelRef
from isolation.privilege import bench_home

MODEL_PYTHON = bench_home(os.environ) / "model-env" / "bin" / "python"

SHAPES: dict[str, tuple[int, ...]] = {
    "model.embed_tokens.weight": (16, 8),
    "model.layers.0.mlp.up_proj.weight": (12, 8),
    "model.layers.0.self_attn.q_proj.weight": (8, 8),
    "model.norm.weight": (8,),
}
CONFIG = {"model_type": "qwen3", "tie_word_embeddings": True, "hidden_size": 8}
TOKENIZER = {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}, "padding": None}
LORA = {
    "peft_type": "LORA",
    "r": 2,
    "lora_alpha": 4,
    "target_modules": ["q_proj"],
    "bias": "none",
    "peft_version": "0.21.2",
}

Values = Mapping[str, Sequence[float]]


def bf16(values: Sequence[float]) -> bytes:
    return b"".join(struct.pack("<f", value)[2:] for value in values)


def f32(values: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def entry(dtype: str, shape: Sequence[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def raw(header: Any, data: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def weights(values: Values, shapes: Mapping[str, tuple[int, ...]] = SHAPES, dtype: str = "BF16") -> bytes:
    """A plain safetensors file of ``values``."""
    header: dict[str, Any] = {}
    data = b""
    for name, numbers in values.items():
        part = bf16(numbers) if dtype == "BF16" else f32(numbers)
        header[name] = entry(dtype, shapes[name], len(data), len(data) + len(part))
        data += part
    return raw(header, data)


def base_values() -> dict[str, list[float]]:
    """Numbers that bf16 holds exactly."""
    return {
        name: [((at * 7 + len(name)) % 17 - 8) / 8 for at in range(math.prod(shape))] for name, shape in SHAPES.items()
    }


def lora_shapes(r: int, module: str = "model.layers.0.self_attn.q_proj") -> dict[str, tuple[int, ...]]:
    out, width = SHAPES[module + ".weight"]
    return {
        f"base_model.model.{module}.lora_A.weight": (r, width),
        f"base_model.model.{module}.lora_B.weight": (out, r),
    }


def lora_weights(r: int = 2, a: float = 0.5, b: float = 0.25, module: str = "model.layers.0.self_attn.q_proj") -> bytes:
    shapes = lora_shapes(r, module)
    values = {name: [factor] * math.prod(shape) for (name, shape), factor in zip(shapes.items(), (a, b), strict=True)}
    return weights(values, shapes)


@dataclass(frozen=True)
class Bench:
    """Folders as a run has them, with a base in place."""

    root: Path

    @property
    def base(self) -> Path:
        return self.root / "base"

    @property
    def out(self) -> Path:
        return self.root / "out"

    @property
    def models(self) -> Path:
        return self.root / "models"

    def put(self, files: Mapping[str, bytes | str | dict[str, Any]], folder: Path | None = None) -> None:
        """Writes files as a trainer would."""
        target = folder or self.out
        target.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            if isinstance(content, dict):
                content = json.dumps(content)
            (target / name).write_bytes(content.encode() if isinstance(content, str) else content)

    def full(self, change: Values | None = None, dtype: str = "BF16") -> bytes:
        return weights({**base_values(), **(change or {})}, dtype=dtype)

    async def check(self, model: str = "m01", parents: tuple[ModelRef, ...] = ()) -> GateResult:
        folder = self.models / model
        folder.mkdir(parents=True, exist_ok=True)
        request = Gate(id="g", out_dir=str(self.out), model_dir=str(folder), model=model, parents=parents)
        return await gate.check(request, base_dir=self.base, models_dir=self.models, python=MODEL_PYTHON)


def bench(root: Path) -> Bench:
    made = Bench(root)
    made.put(
        {
            "model.safetensors": weights(base_values()),
            "config.json": CONFIG,
            "tokenizer.json": TOKENIZER,
            "tokenizer_config.json": {"eos_token": "b"},
            "chat_template.jinja": "{{ messages }}",
            "generation_config.json": {},
        },
        made.base,
    )
    made.put({})
    return made
