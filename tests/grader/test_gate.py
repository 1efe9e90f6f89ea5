"""The gate in its sandbox: honest checkpoints come out complete, dishonest ones stay out with one line."""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gate_kit import (
    LORA,
    MODEL_PYTHON,
    SHAPES,
    TOKENIZER,
    Bench,
    base_values,
    bf16,
    entry,
    f32,
    lora_shapes,
    lora_weights,
    raw,
    weights,
)

from grader.errors import GraderError
from grader.protocol import ModelRef

pytestmark = [
    pytest.mark.skipif(os.geteuid() == 0, reason="sandboxes are not started by root: use isolation.privilege"),
    pytest.mark.skipif(not MODEL_PYTHON.exists(), reason="the model environment is missing: run `runner prepare`"),
]
NORM, UP, QUERY = "model.norm.weight", "model.layers.0.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.weight"


def _files(folder: Path) -> dict[str, bytes]:
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o644 for path in folder.iterdir())
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _header(data: bytes) -> dict[str, Any]:
    length = int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    return header


async def test_full_weights_come_out_complete_with_the_bases_own_configuration(made: Bench) -> None:
    tuned = [value + 0.5 for value in base_values()[NORM]]
    made.put(
        {
            "model.safetensors": made.full({NORM: tuned}),
            "config.json": {"model_type": "qwen3", "hidden_size": 8, "_name_or_path": "/etc"},
            "generation_config.json": {"temperature": 3.0},
            "chat_template.jinja": "{{ 7 * 7 }}",
            "tokenizer.json": {**TOKENIZER, "padding": {"direction": "Left"}, "truncation": {"max_length": 9}},
            "README.md": "hello",
        }
    )
    result = await made.check()
    assert result.accepted and result.format == "full" and not result.no_change
    files = _files(made.models / "m01" / "weights")
    assert set(files) == {
        "model.safetensors", "config.json", "generation_config.json", "chat_template.jinja", "tokenizer.json",
        "tokenizer_config.json",
    }  # fmt: skip
    for name in set(files) - {"model.safetensors"}:
        assert files[name] == (made.base / name).read_bytes()
    assert files["model.safetensors"].endswith(bf16(tuned))
    line = f"{hashlib.sha256(files['model.safetensors']).hexdigest()}  model.safetensors\n"
    assert result.sha256 == hashlib.sha256(line.encode()).hexdigest()
    assert result.bytes == sum(map(len, files.values()))
    base_norm = math.sqrt(sum(value * value for values in base_values().values() for value in values))
    assert result.delta_norm == pytest.approx(math.sqrt(8 * 0.25) / base_norm)
    own = math.sqrt(sum(value * value for value in base_values()[NORM]))
    assert result.delta_norm_max == pytest.approx(math.sqrt(2) / own)
    assert result.delta_norm_max_tensor == NORM
    assert [path.name for path in (made.models / "m01").iterdir()] == ["weights"]


async def test_the_same_weights_have_one_digest_however_they_are_sharded(made: Bench) -> None:
    values = {**base_values(), UP: [0.125] * 96}
    made.put({"model.safetensors": weights(dict(reversed(values.items())))})
    whole = await made.check("m01")
    (made.out / "model.safetensors").unlink()
    names = list(values)
    made.put(
        {
            "model-00001-of-00002.safetensors": weights({name: values[name] for name in names[:1]}),
            "model-00002-of-00002.safetensors": weights({name: values[name] for name in names[1:]}),
            "model.safetensors.index.json": {"weight_map": {}},
        }
    )
    sharded = await made.check("m02")
    assert whole.accepted and sharded.accepted and whole.sha256 == sharded.sha256


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
async def test_a_copy_of_the_base_is_no_change_in_any_precision(made: Bench, dtype: str) -> None:
    made.put({"model.safetensors": made.full(dtype=dtype)})
    result = await made.check()
    assert result.accepted and result.no_change and result.delta_norm == 0.0 and result.delta_norm_max_tensor == ""


async def test_a_copy_of_a_parent_is_no_change_and_one_bit_more_is_a_change(made: Bench) -> None:
    values = {**base_values(), QUERY: [0.25] * 64}
    made.put({"model.safetensors": weights(values)})
    assert not (await made.check("m01")).no_change
    parents = (ModelRef(id="m01", format="full"), ModelRef(id="m00", format="base"))
    assert (await made.check("m02", parents)).no_change
    made.put({"model.safetensors": weights({**values, QUERY: [0.25] * 63 + [0.251953125]})})
    assert not (await made.check("m03", parents)).no_change


async def test_an_adapter_comes_out_with_a_configuration_of_ours(made: Bench) -> None:
    config = {**LORA, "base_model_name_or_path": "/secret", "lora_dropout": 0.1, "target_modules": "(a+)+$"}
    made.put({"adapter_model.safetensors": lora_weights(), "adapter_config.json": config, "tokenizer.json": TOKENIZER})
    result = await made.check()
    assert result.accepted and result.format == "adapter" and not result.no_change
    files = _files(made.models / "m01" / "adapter")
    assert set(files) == {"adapter_model.safetensors", "adapter_config.json"}
    ours = json.loads(files["adapter_config.json"])
    assert (ours["r"], ours["lora_alpha"], ours["target_modules"]) == (2, 4.0, ["q_proj"])
    assert "base_model_name_or_path" not in ours
    # B·A is 2·0.5·0.25 in each of 64 places, times alpha / r = 2
    change = math.sqrt(64) * 0.25 * 2
    own = math.sqrt(sum(value * value for value in base_values()[QUERY]))
    assert result.delta_norm_max == pytest.approx(change / own) and result.delta_norm_max_tensor == QUERY


async def test_an_adapter_that_changes_nothing_or_repeats_its_parent_in_other_factors(made: Bench) -> None:
    made.put({"adapter_model.safetensors": lora_weights(b=0.0), "adapter_config.json": LORA})
    assert (await made.check("m01")).no_change
    made.put({"adapter_model.safetensors": lora_weights(), "adapter_config.json": LORA})
    assert not (await made.check("m02")).no_change
    parent = (ModelRef(id="m02", format="adapter"),)
    rescaled = {**LORA, "lora_alpha": 2}
    made.put({"adapter_model.safetensors": lora_weights(a=2.0, b=0.125), "adapter_config.json": rescaled})
    assert (await made.check("m03", parent)).no_change
    wider = {**LORA, "r": 4, "lora_alpha": 8}
    made.put({"adapter_model.safetensors": lora_weights(4, b=0.125), "adapter_config.json": wider})
    assert (await made.check("m04", parent)).no_change
    made.put({"adapter_model.safetensors": lora_weights(4, b=0.25), "adapter_config.json": wider})
    assert not (await made.check("m05", parent)).no_change


async def test_a_tied_head_may_be_saved_but_not_differ(made: Bench) -> None:
    shapes = {**SHAPES, "lm_head.weight": (16, 8)}
    tied = {**base_values(), "lm_head.weight": base_values()["model.embed_tokens.weight"]}
    made.put({"model.safetensors": weights(tied, shapes)})
    assert (await made.check("m01")).no_change
    assert "lm_head.weight" not in _header((made.models / "m01/weights/model.safetensors").read_bytes())
    made.put({"model.safetensors": weights({**tied, "lm_head.weight": [1.0] * 128}, shapes)})
    assert "tied" in (await made.check("m02")).refused


class _Canary:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, (str(self.path),)


def _pickle(made: Bench) -> None:
    made.put({"pytorch_model.bin": pickle.dumps(_Canary(made.root / "canary"))})


def _module(made: Bench) -> None:
    made.put({"modeling_x.py": "import os"})


def _auto_map(made: Bench) -> None:
    made.put({"config.json": {"model_type": "qwen3", "sub": [{"auto_map": {"AutoModel": "x.Y"}}]}})


def _link(made: Bench) -> None:
    (made.out / "README.md").symlink_to("/etc/passwd")


def _weights_link(made: Bench) -> None:
    (made.out / "model.safetensors").unlink()
    (made.out / "model.safetensors").symlink_to(made.base / "model.safetensors")


def _fifo(made: Bench) -> None:
    os.mkfifo(made.out / "config.json")


def _folder(made: Bench) -> None:
    (made.out / "checkpoint-10").mkdir()


def _strange_name(made: Bench) -> None:
    (made.out / "a\x1b[31m\n\u202e.pt").write_bytes(b"x")


def _gguf(made: Bench) -> None:
    made.put({"model.gguf": b"GGUF"})


def _tokenizer(made: Bench) -> None:
    made.put({"tokenizer.json": {**TOKENIZER, "added_tokens": [{"id": 3, "content": "<|cheat|>"}]}})


def _merges(made: Bench) -> None:
    made.put({"tokenizer.json": {**TOKENIZER, "model": {**TOKENIZER["model"], "merges": []}}})  # type: ignore[dict-item]


def _nan(made: Bench) -> None:
    made.put({"model.safetensors": made.full({NORM: [math.nan] * 8})})


def _infinity(made: Bench) -> None:
    made.put({"model.safetensors": made.full({UP: [0.0] * 95 + [-math.inf]}, "F32")})


def _shape(made: Bench) -> None:
    made.put({"model.safetensors": weights(base_values(), {**SHAPES, UP: (8, 12)})})


def _missing(made: Bench) -> None:
    made.put({"model.safetensors": weights({name: base_values()[name] for name in list(SHAPES)[1:]})})


def _extra(made: Bench) -> None:
    values = {**base_values(), "model.secret.weight": [1.0]}
    made.put({"model.safetensors": weights(values, {**SHAPES, "model.secret.weight": (1,)})})


def _twice(made: Bench) -> None:
    made.put({"more.safetensors": weights({NORM: [0.0] * 8})})


def _dtype(made: Bench) -> None:
    made.put({"model.safetensors": made.full().replace(b'"BF16"', b'"I16" ', 1)})


def _trailing(made: Bench) -> None:
    made.put({"model.safetensors": made.full() + b"payload"})


def _sparse(made: Bench) -> None:
    with (made.out / "model.safetensors").open("r+b") as stream:
        stream.truncate(8 << 30)


def _header_bomb(made: Bench) -> None:
    with (made.out / "model.safetensors").open("wb") as stream:
        stream.write((99_000_000).to_bytes(8, "little") + b'{"a":')
        stream.truncate(99_000_008)


def _empty(made: Bench) -> None:
    (made.out / "model.safetensors").unlink()


def _both(made: Bench) -> None:
    made.put({"adapter_model.safetensors": lora_weights(), "adapter_config.json": LORA})


FULL_ATTACKS = [
    (_pickle, "pytorch_model.bin"), (_module, "modeling_x.py"), (_auto_map, "auto_map"), (_link, "README.md"),
    (_weights_link, "model.safetensors"), (_fifo, "config.json"), (_folder, "checkpoint-10"), (_strange_name, ".pt"),
    (_gguf, "model.gguf"), (_tokenizer, "tokenizer"), (_merges, "tokenizer"), (_nan, NORM), (_infinity, UP),
    (_shape, UP), (_missing, "embed_tokens"), (_extra, "secret"), (_twice, NORM), (_dtype, "dtype"),
    (_trailing, "end"), (_sparse, "bytes"), (_header_bomb, "bytes"), (_empty, ".safetensors"), (_both, "adapter"),
]  # fmt: skip


@pytest.mark.parametrize(("attack", "word"), FULL_ATTACKS, ids=lambda value: getattr(value, "__name__", ""))
async def test_what_is_not_the_base_trained_is_refused_in_one_line(
    made: Bench, attack: Callable[[Bench], None], word: str
) -> None:
    made.put({"model.safetensors": made.full({NORM: [0.5] * 8})})
    attack(made)
    result = await made.check()
    assert not result.accepted and word in result.refused
    assert result.refused.isprintable() and len(result.refused) <= 300
    assert list((made.models / "m01").iterdir()) == []
    assert not (made.root / "canary").exists()


NAME_A, NAME_B = lora_shapes(2)
ADAPTER_ATTACKS: list[tuple[bytes, dict[str, Any], str]] = [
    (lora_weights(4), LORA, "r = 2"),
    (lora_weights(module="model.layers.0.mlp.up_proj").replace(b"up_proj", b"no_proj"), LORA, "no linear layer"),
    (lora_weights().replace(b"lora_B", b"lora_C"), LORA, "LoRA matrix"),
    (lora_weights(a=math.nan), LORA, "NaN"),
    (weights({NAME_A: [1.0] * 16}, lora_shapes(2)), LORA, "missing"),
    (raw({}, b""), LORA, "empty"),
    (lora_weights(), {**LORA, "peft_type": "IA3"}, "peft_type"),
    (lora_weights(), {**LORA, "modules_to_save": ["lm_head"]}, "modules_to_save"),
    (lora_weights(), {**LORA, "use_dora": True}, "use_dora"),
    (lora_weights(), {**LORA, "rank_pattern": {"q_proj": 4}}, "rank_pattern"),
    (lora_weights(), {**LORA, "init_lora_weights": "pissa"}, "init_lora_weights"),
    (lora_weights(), {**LORA, "auto_mapping": {"base_model_class": "x"}}, "auto_mapping"),
    (lora_weights(), {**LORA, "fan_in_fan_out": True}, "fan_in_fan_out"),
    (lora_weights(), {**LORA, "r": True}, "r must"),
    (lora_weights(), {**LORA, "r": 10**30}, "r must"),
    (lora_weights(), {**LORA, "lora_alpha": 1e308}, "lora_alpha"),
    (lora_weights(), {"peft_type": "LORA"}, "r must"),
]


@pytest.mark.parametrize(
    ("data", "config", "word"), ADAPTER_ATTACKS, ids=lambda value: value if isinstance(value, str) else ""
)
async def test_an_adapter_that_is_not_plain_lora_of_the_base_is_refused(
    made: Bench, data: bytes, config: dict[str, Any], word: str
) -> None:
    made.put({"adapter_model.safetensors": data, "adapter_config.json": config})
    result = await made.check()
    assert not result.accepted and word in result.refused
    assert list((made.models / "m01").iterdir()) == []


@pytest.mark.parametrize("text", [b'{"r": 2, "r": 4}', b'{"r": NaN}', b"[" * 100_000, b"\xff", b"1" * 5000, b"[]"])
async def test_a_configuration_that_is_not_strict_json_is_refused(made: Bench, text: bytes) -> None:
    made.put({"adapter_model.safetensors": lora_weights(), "adapter_config.json": text})
    result = await made.check()
    assert not result.accepted and "adapter_config.json" in result.refused


async def test_a_model_that_is_there_already_is_never_replaced(made: Bench) -> None:
    made.put({"model.safetensors": made.full()})
    assert (await made.check()).accepted
    before = _files(made.models / "m01" / "weights")
    made.put({"model.safetensors": made.full({NORM: [0.5] * 8})})
    with pytest.raises(GraderError, match="already"):
        await made.check()
    assert _files(made.models / "m01" / "weights") == before


async def test_a_broken_base_or_parent_is_our_error_and_not_the_checkpoints(made: Bench) -> None:
    made.put({"model.safetensors": made.full()})
    with pytest.raises(GraderError):
        await made.check(parents=(ModelRef(id="m00/../..", format="full"),))
    made.put({"model.safetensors": raw({NORM: entry("F32", (8,), 0, 32)}, f32([1.0] * 8)[:-1])}, made.base)
    with pytest.raises(GraderError, match="base model"):
        await made.check()
