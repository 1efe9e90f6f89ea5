"""Models as files: the base, parents (adapters or whole weights), their averages, and what a training leaves.

Heavy libraries are imported where they are used: a wrong recipe is refused before they load.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recipe import Recipe, refuse


def fast_bfloat16() -> bool:
    """Whether this machine multiplies bfloat16 in hardware; a CPU that emulates it is several times slower with it."""
    import torch

    if torch.cuda.is_available():
        return True
    words = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").split()
    return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(words)


def weights_type(recipe: Recipe) -> Any:
    """The torch dtype in which weights are held while training."""
    import torch

    if recipe.weights == "auto":
        return torch.bfloat16 if fast_bfloat16() else torch.float32
    return getattr(torch, recipe.weights)


def is_adapter(folder: Path) -> bool:
    return (folder / "adapter_config.json").is_file()


def shares(recipe: Recipe, parents: list[Path]) -> list[float]:
    """The weight of each parent; they are used as given, and need not add up to 1."""
    given = list(recipe.merge_weights) or [1 / len(parents)] * len(parents)
    if len(given) != len(parents):
        refuse(f"merge_weights has {len(given)} numbers for {len(parents)} parents")
    return given


def stack_adapters(parents: list[Path], weights: list[float], into: Path) -> bool:
    """Write the weighted sum of LoRA adapters as one adapter of the summed rank: exact, and as small as they are.

    False where the adapters are not plain LoRA of the same modules; their full weights can still be averaged.
    """
    from safetensors.torch import load_file

    configs = [json.loads((folder / "adapter_config.json").read_text(encoding="utf-8")) for folder in parents]
    tensors = [load_file(folder / "adapter_model.safetensors") for folder in parents]
    special = ("use_dora", "use_rslora", "rank_pattern", "alpha_pattern", "modules_to_save", "trainable_token_indices")
    plain = all(c.get("peft_type") == "LORA" and not any(c.get(key) for key in special) for c in configs)
    named = all(name.endswith((".lora_A.weight", ".lora_B.weight")) for name in tensors[0])
    if not plain or not named or any(set(t) != set(tensors[0]) for t in tensors):
        return False
    import torch

    scales = [w * c["lora_alpha"] / c["r"] for w, c in zip(weights, configs, strict=True)]
    stacked = {
        name: torch.cat([t[name].float() for t in tensors], dim=0)
        if name.endswith(".lora_A.weight")
        else torch.cat([t[name].float() * scale for t, scale in zip(tensors, scales, strict=True)], dim=1)
        for name in tensors[0]
    }
    rank = sum(c["r"] for c in configs)
    write_adapter(stacked, {**configs[0], "r": rank, "lora_alpha": rank}, into)
    return True


def full_weights(base: Path, parent: Path | None, dtype: Any) -> Any:
    """The model of ``base``, with an adapter merged into it or a parent's weights in place of its own."""
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base, dtype=dtype)
    if parent is None:
        return model
    if is_adapter(parent):
        from peft import PeftModel

        return PeftModel.from_pretrained(model, str(parent)).merge_and_unload()
    for path in sorted(parent.glob("*.safetensors")):
        unknown = model.load_state_dict(load_file(path), strict=False).unexpected_keys
        if unknown:
            refuse(f"{path.name}: not weights of this base (no tensor {unknown[0]!r})")
    return model


def average(base: Path, parents: list[Path], weights: list[float], dtype: Any) -> Any:
    """The model whose weights are base + Σ share × (parent − base), summed in float32."""
    import torch

    start = full_weights(base, None, torch.float32).state_dict()
    total = {name: tensor.clone() for name, tensor in start.items()}
    for parent, weight in zip(parents, weights, strict=True):
        for name, tensor in full_weights(base, parent, torch.float32).state_dict().items():
            if tensor.is_floating_point():
                total[name] += weight * (tensor - start[name])
    model = full_weights(base, None, torch.float32)
    model.load_state_dict(total)
    return model.to(dtype)


@dataclass
class Start:
    """Where training begins: a model, and an adapter to go on with. ``on_base``: an adapter of it fits the base."""

    model: Any
    adapter: Path | None = None
    on_base: bool = True


def starting_point(recipe: Recipe, base: Path, parents: list[Path], scratch: Path) -> Start:
    """The base, one parent, or the weighted sum of several, as ``start_from`` and ``method`` say."""
    dtype = weights_type(recipe)
    if recipe.start_from == "base" and recipe.method != "merge":
        return Start(full_weights(base, None, dtype))
    if not parents:
        refuse('start_from = "parent" and method = "merge" need a parent: `vibe train --from m01`')
    weights = shares(recipe, parents)
    if recipe.method != "full" and all(is_adapter(p) for p in parents) and stack_adapters(parents, weights, scratch):
        return Start(full_weights(base, None, dtype), adapter=scratch)
    if len(parents) == 1 and weights == [1.0]:
        return Start(full_weights(base, parents[0], dtype), on_base=False)
    return Start(average(base, parents, weights, dtype), on_base=False)


def write_adapter(tensors: dict[str, Any], config: dict[str, Any], out: Path) -> None:
    """PEFT's two files. Sorted, because sets come in another order in every process."""
    import torch
    from safetensors.torch import save_file

    out.mkdir(parents=True, exist_ok=True)
    config = {
        **config,
        "base_model_name_or_path": "base",
        "inference_mode": True,
        "target_modules": sorted(config["target_modules"]),
    }
    (out / "adapter_config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    tensors = {name: tensor.detach().to("cpu", torch.bfloat16).contiguous() for name, tensor in tensors.items()}
    save_file(tensors, out / "adapter_model.safetensors", metadata={"format": "pt"})


def write_full(model: Any, out: Path, scratch: Path) -> None:
    """model.safetensors, in one piece; the configuration and the tokenizer are the base's and stay there."""
    import torch

    folder = scratch / "full"
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="1TB")
    shutil.move(folder / "model.safetensors", out / "model.safetensors")


def write(model: Any, on_base: bool, out: Path, scratch: Path) -> None:
    """An adapter where the model is one on the base, else all weights. Files are readable by others."""
    if not hasattr(model, "peft_config"):
        write_full(model, out, scratch)
    elif not on_base:
        write_full(model.merge_and_unload(), out, scratch)
    else:
        from peft import get_peft_model_state_dict

        model.peft_config["default"].save_pretrained(scratch / "config")
        config = json.loads((scratch / "config" / "adapter_config.json").read_text(encoding="utf-8"))
        write_adapter(get_peft_model_state_dict(model), config, out)
    for path in out.iterdir():
        path.chmod(0o644)
