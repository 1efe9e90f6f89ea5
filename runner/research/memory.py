"""How the memory of the machine is shared, so that the grader always fits and no sandbox takes it all."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.protocol import EngineConfig

GIB = 1 << 30
ENGINE_LEAST = 4 * GIB
"""What is left to an engine however small its model is."""

_PROGRAM = 3 * GIB
_COPIES = 3
"""Of the weights, in RAM: the base as it was, the live module, and a checkpoint while it is read."""
_KEYS = {"cpu": 4 * GIB, "cuda": 0}
"""The most that an engine keeps of keys and values in RAM (its own bound, see ``KV_BYTES`` of the server)."""
_RESERVE = 3 * GIB


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes each side of the run may use, so that the grader always fits: see architecture, §6.

    ``idle``: the research sandbox gets only cores that nothing else wants, so that grading never waits for the agent.
    """

    research: int
    training: int
    idle: bool = True


def plan_memory(total: int, engine: int) -> MemoryPlan:
    """Share ``total`` bytes of RAM with an engine of ``engine`` bytes: research ≤ 25 %, training the rest less 3 GiB.

    On a machine too small for that, training gets a quarter of the memory: it may be killed, the machine may not.
    """
    research = total // 4
    return MemoryPlan(research=research, training=max(total // 4, total - engine - research - _RESERVE))


def machine_memory() -> int:
    """Bytes of RAM of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def engine_memory(engine: EngineConfig, base: Path, total: int) -> int:
    """Bytes that the engine's sandbox may hold while it serves the model in ``base`` on a machine of ``total`` bytes.

    Its program, three copies of the weights (in float32 on a CPU), and the keys and values of a whole wave. Never more
    than half of the machine, or than what research and the reserve leave, whichever is more.
    """
    weights = sum(path.stat().st_size for path in base.glob("*.safetensors"))
    wider = 2 if engine.device == "cpu" else 1
    keys = min(_KEYS[engine.device], engine.wave * _keys_of_a_row(base))
    wanted = max(ENGINE_LEAST, _PROGRAM + _COPIES * wider * weights + keys)
    return min(wanted, max(total // 2, total - total // 4 - _RESERVE))


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
