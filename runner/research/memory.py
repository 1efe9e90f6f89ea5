"""How the memory of the machine is shared, so that the grader always fits and no sandbox takes it all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader.protocol import EngineConfig
from runner.config import ConfigError

GIB = 1 << 30
ENGINE_LEAST = 4 * GIB
"""What is left to an engine however small its model is."""

_PROGRAM = 3 * GIB
_COPIES = 3
"""Of the weights, in RAM: the base as it was, the live module, and a checkpoint while it is read."""
_KEYS = {"cpu": 4 * GIB, "cuda": 0}
"""The most that an engine keeps of keys and values in RAM (its own bound, see ``KV_BYTES`` of the server)."""
_RESERVE = 3 * GIB
_BATCHES = (8, 4, 2, 1)
"""How many requests an engine beside the grader's may answer at once: as many as its memory allows."""


@dataclass(frozen=True, slots=True)
class Share:
    """What an engine beside the grader's may hold, in bytes, and how many requests it answers at once."""

    memory: int
    batch: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes each side of the run may use, so that the grader always fits: see architecture, §6.

    ``idle``: the research sandbox gets only cores that nothing else wants, so that grading never waits for the agent.
    ``beside``: the engines of models that the agent asks and this machine serves, by the model's folder.
    """

    research: int
    training: int
    idle: bool = True
    beside: Mapping[str, Share] = field(default_factory=dict)


def plan_memory(total: int, engine: int, beside: Mapping[str, Share] | None = None) -> MemoryPlan:
    """Share ``total`` bytes of RAM with an engine of ``engine`` bytes and those ``beside`` it.

    Research gets at most 25 %, training the rest less 3 GiB.

    On a machine too small for that, training gets a quarter of the memory: it may be killed, the machine may not.
    """
    beside = beside or {}
    research = total // 4
    engines = engine + sum(share.memory for share in beside.values())
    training = max(total // 4, total - engines - research - _RESERVE)
    return MemoryPlan(research=research, training=training, beside=beside)


def beside_memory(models: Sequence[str], total: int, engine: int) -> dict[str, Share]:
    """The shares of the engines that serve ``models`` (folders) on the CPU beside the grader's of ``engine`` bytes.

    Each gets what research and the engines before it leave, and answers fewer requests at once where that is little.
    Raises ConfigError where one does not fit.
    """
    shares: dict[str, Share] = {}
    left = total - total // 4 - engine
    for model in dict.fromkeys(models):
        needs = [Share(_needs(EngineConfig(wave=batch), Path(model)), batch) for batch in _BATCHES]
        share = next((need for need in needs if need.memory <= left), None)
        if share is None:
            least, room = needs[-1].memory / GIB, max(0, left) / GIB
            raise ConfigError(
                f"does not fit: it needs {least:.1f} GiB of memory beside the grader's engine, {room:.1f} are left",
                where=f"the local model {Path(model).name}",
                do="Use a smaller one, give the engine less (--set engine_memory=BYTES), or a model elsewhere",
            )
        shares[model] = share
        left -= share.memory
    return shares


def machine_memory() -> int:
    """Bytes of RAM of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def engine_memory(engine: EngineConfig, base: Path, total: int) -> int:
    """Bytes that the engine's sandbox may hold while it serves the model in ``base`` on a machine of ``total`` bytes.

    Its program, three copies of the weights (in float32 on a CPU), and the keys and values of a whole wave. Never more
    than half of the machine, or than what research and the reserve leave, whichever is more.
    """
    wanted = max(ENGINE_LEAST, _needs(engine, base))
    return min(wanted, max(total // 2, total - total // 4 - _RESERVE))


def _needs(engine: EngineConfig, base: Path) -> int:
    """The most that an engine of the model in ``base`` holds: its program, the weights, keys and values of a wave."""
    weights = sum(path.stat().st_size for path in base.glob("*.safetensors"))
    wider = 2 if engine.device == "cpu" else 1
    keys = min(_KEYS[engine.device], engine.wave * _keys_of_a_row(base))
    return _PROGRAM + _COPIES * wider * weights + keys


def _keys_of_a_row(base: Path) -> int:
    """Bytes of keys and values of one sequence of full length, in float32; more than any where config.json is odd."""
    try:
        config: dict[str, Any] = json.loads((base / "config.json").read_bytes())
        config = config.get("text_config") or config
        heads = config.get("num_key_value_heads") or config["num_attention_heads"]
        size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        return int(2 * config["num_hidden_layers"] * heads * size * 4 * config["max_position_embeddings"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError):
        return max(_KEYS.values())
