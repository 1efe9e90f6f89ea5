"""What a protocol fixes of a run: its scope, its budget, what may be set of the recipe, the draws of its last score.

``vibetraining``, the default, fixes nothing. ``rsibench-data`` is a search over data alone: trainer and harness are the
task's, the trainer's recipe may be set in the fields that the task lists, the score that the agent sees (selection) and
the one that counts (official) are kept apart, and the official one has a seed stream of its own.
"""

from __future__ import annotations

import hashlib
from typing import Any

from runner.config import ConfigError, RunConfig
from runner.words import did_you_mean
from tasks.spec import TaskSpec

RSIBENCH = "rsibench-data"
NAMES = ("vibetraining", RSIBENCH)
SCOPE = ("data",)
WALL_S = 16 * 3600.0
MONEY = 100.0
"""The default limit on money, in the unit of the price table. The figure is ours: the wall time is the paper's."""


def named(name: str) -> str:
    """``name``, if it is a protocol. Raises ConfigError."""
    if name not in NAMES:
        raise ConfigError(f"unknown protocol {name[:40]!r}", where="--protocol", do=did_you_mean(name, NAMES))
    return name


def defaults(name: str) -> dict[str, Any]:
    """What a run of this protocol begins with, in place of the profile's own defaults."""
    if name != RSIBENCH:
        return {}
    return {"scope": list(SCOPE), "budget": {"wall_s": WALL_S, "money": MONEY}}


def complete(values: dict[str, Any], task: TaskSpec) -> None:
    """Fill in what follows from the protocol and the other values: the whitelist, the official seed."""
    if values.get("protocol") != RSIBENCH:
        return
    values.setdefault("recipe_fields", list(task.recipe_fields))
    if isinstance(values.get("seed"), int):
        values.setdefault("official_seed", official_seed(values["seed"]))


def official_seed(seed: int) -> int:
    """The seed of the official score's draws, 0…2³¹−1: no draw of the search is repeated in it."""
    return int.from_bytes(hashlib.sha256(f"official\0{seed}".encode()).digest()[:4], "big") >> 1


def check(config: RunConfig) -> None:
    """What a protocol forbids. Raises ConfigError."""
    if config.protocol == RSIBENCH:
        if config.scope != SCOPE:
            do = "Leave --scope out, or write --scope data"
            raise ConfigError(f"{RSIBENCH} edits data alone", where="--scope", do=do)
        if config.official_seed is None or config.official_seed == config.seed:
            raise ConfigError("must differ from the seed of the search", where="official_seed", do="Leave it out")
        return
    for field, value in (("recipe_fields", config.recipe_fields), ("official_seed", config.official_seed)):
        if value not in (None, ()):  # 0 is a seed like any other
            do = f"Leave it out, or add --protocol {RSIBENCH}"
            raise ConfigError(f"belongs to the protocol {RSIBENCH}", where=field, do=do)


def allows_same(name: str) -> bool:
    """May the problems of the last score be the very problems that the agent's scores come from?"""
    return name == RSIBENCH
