"""The model in memory: the base kept pristine, one live module, and how a checkpoint gets into it.

A checkpoint is what the gate let through, and still not trusted: only safetensors are read, every name, shape and
setting that this code does not understand is refused by name, and the live module goes back to the base on failure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found]
from safetensors.torch import load_file  # type: ignore[import-not-found]
from transformers import AutoModelForCausalLM  # type: ignore[import-not-found]

from . import attention, linear

_LORA_PREFIX = "base_model.model."
_UNDERSTOOD = {
    "auto_mapping", "base_model_name_or_path", "bias", "exclude_modules", "fan_in_fan_out", "inference_mode",
    "init_lora_weights", "layers_pattern", "layers_to_transform", "lora_alpha", "lora_dropout", "megatron_core",
    "peft_type", "peft_version", "qalora_group_size", "r", "revision", "target_modules", "task_type", "use_rslora",
}  # fmt: skip
_EXPECTED: Mapping[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "fan_in_fan_out": (False, None),
    "init_lora_weights": (True, False, "gaussian"),  # the others change the base weights too
}


class LoadError(Exception):
    """A checkpoint that cannot be served; one line."""


class Weights:
    """``model`` is the live module; :meth:`load` decides what it holds."""

    def __init__(self, base: Path, dtype: str, device: str) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(
            base,
            dtype=getattr(torch, dtype),
            attn_implementation=attention.register() if device == "cpu" else None,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
        ).eval()
        if device == "cpu" and dtype == "float32":
            linear.turn_wide(self.model)
        self._live = self._by_name()
        self._pristine = {name: tensor.detach().clone() for name, tensor in self._live.items()}
        self._device = device
        self.wake()

    def _by_name(self) -> dict[str, Any]:
        """Each parameter and persistent buffer once: of tied weights, the name that owns them."""
        tied = set(getattr(self.model, "all_tied_weights_keys", None) or ())
        return {name: tensor for name, tensor in self.model.state_dict().items() if name not in tied}

    def load(self, kind: str, folder: Path) -> None:
        """Serve ``base``, an ``adapter`` or ``full`` weights from ``folder``. Raises LoadError; then it is the base."""
        try:
            changed = {} if kind == "base" else _adapter(folder, self._pristine) if kind == "adapter" else None
            if changed is None:
                self._put(self._full(folder))
            else:
                self._put({**self._pristine, **changed})
        except BaseException:
            self._put(self._pristine)
            raise

    def _put(self, tensors: Mapping[str, Any]) -> None:
        """Write into the live module, whose tensors stay where they are (so tied weights stay tied)."""
        with torch.no_grad():
            for name, live in self._live.items():
                new = tensors[name]
                live.copy_(new.merged(self._pristine[name]) if isinstance(new, _Pair) else new)

    def _full(self, folder: Path) -> dict[str, Any]:
        tensors = _read(folder)
        tied = set(self.model.state_dict()) - set(self._live)
        for name in tensors:
            if name not in self._live and name not in tied:
                raise LoadError(f"the weights hold {name[:120]}, which the base has not")
        for name, live in self._live.items():
            if name not in tensors:
                raise LoadError(f"the weights lack {name}")
            if tensors[name].shape != live.shape:
                raise LoadError(f"{name} has shape {tuple(tensors[name].shape)}, the base {tuple(live.shape)}")
        return tensors

    def sleep(self) -> None:
        """Off the accelerator."""
        self.model.to("cpu")
        self._settle()

    def wake(self) -> None:
        """Onto the device."""
        self.model.to(self._device)
        self._settle()

    def _settle(self) -> None:
        self._live = self._by_name()
        if self._device == "cuda":
            torch.cuda.empty_cache()


class _Pair:
    """One low-rank change: W + scale x B A, in float32, cast once at the end."""

    def __init__(self, a: Any, b: Any, scale: float) -> None:
        self.a, self.b, self.scale = a, b, scale

    def merged(self, weight: Any) -> Any:
        """A new tensor [out, in] of the weight's dtype; the weight is left as it is."""
        change = (self.b.float() @ self.a.float()) * self.scale
        return (weight.float() + change).to(weight.dtype)


def _read(folder: Path) -> dict[str, Any]:
    """All tensors of the safetensors files in ``folder``, on the CPU."""
    tensors: dict[str, Any] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            tensors.update(load_file(path))
        except Exception as error:
            raise LoadError(f"{path.name[:80]} cannot be read: {type(error).__name__}") from error
    if not tensors:
        raise LoadError("there are no safetensors files")
    return tensors


def _adapter(folder: Path, base: Mapping[str, Any]) -> dict[str, _Pair]:
    """The changes of a PEFT LoRA adapter by the name of the weight they change."""
    scale, rank = _scale(folder / "adapter_config.json")
    halves: dict[str, dict[str, Any]] = {}
    for name, tensor in _read(folder).items():
        module, _, half = name.removeprefix(_LORA_PREFIX).rpartition(".lora_")
        if not name.startswith(_LORA_PREFIX) or half not in ("A.weight", "B.weight"):
            raise LoadError(f"the adapter holds {name[:120]}, which is not a LoRA weight of a linear layer")
        halves.setdefault(f"{module}.weight", {})[half[0]] = tensor
    return {name: _pair(name, half, base, scale, rank) for name, half in halves.items()}


def _pair(name: str, half: Mapping[str, Any], base: Mapping[str, Any], scale: float, rank: int) -> _Pair:
    if set(half) != {"A", "B"}:
        raise LoadError(f"the adapter has only one half for {name[:120]}")
    if name not in base:
        raise LoadError(f"the adapter changes {name[:120]}, which the base has not or has tied to another weight")
    wanted = [(rank, base[name].shape[-1]), (base[name].shape[0], rank)]
    if base[name].dim() != 2 or [tuple(half["A"].shape), tuple(half["B"].shape)] != wanted:
        raise LoadError(f"the adapter's shapes for {name[:120]} do not fit rank {rank} and the base")
    return _Pair(half["A"], half["B"], scale)


def _scale(path: Path) -> tuple[float, int]:
    """(scale, rank) of adapter_config.json; refuses by name what would make the merge another one."""
    try:
        config = json.loads(path.read_bytes())
        rank, alpha = config["r"], config["lora_alpha"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LoadError(f"adapter_config.json cannot be read: {type(error).__name__}") from error
    for key, value in config.items():
        if key in _EXPECTED and value not in _EXPECTED[key]:
            raise LoadError(f"adapter_config.json: {key} = {str(value)[:60]!r} is not served here")
        if key not in _UNDERSTOOD and value not in (None, False, 0, "", [], {}):
            raise LoadError(f"adapter_config.json: {str(key)[:60]!r} is not served here")
    if type(rank) is not int or rank <= 0 or type(alpha) not in (int, float) or not math.isfinite(alpha):
        raise LoadError("adapter_config.json: r must be a positive whole number and lora_alpha a number")
    return (alpha / math.sqrt(rank) if config.get("use_rslora") else alpha / rank), rank
