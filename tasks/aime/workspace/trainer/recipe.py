"""What a training is told: recipe.toml, the rows of the data, and refusals in one line (exit code 2)."""

from __future__ import annotations

import json
import sys
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NoReturn


@dataclass(frozen=True)
class Recipe:
    """recipe.toml, checked. Lengths in tokens."""

    method: str = "lora"
    start_from: str = "base"
    merge_weights: tuple[float, ...] = ()
    rank: int = 16
    alpha: int = 32
    learning_rate: float = 2e-4
    epochs: float = 1.0
    max_steps: int = 0
    batch_size: int = 16
    accumulate: int = 1
    scheduler: str = "cosine"
    warmup_steps: int = 5
    weight_decay: float = 0.0
    max_length: int = 512
    group_by_length: bool = True
    weights: str = "auto"
    gradient_checkpointing: bool = False
    seed: int = 0
    log_every: int = 5


CHOICES = {
    "method": ("lora", "full", "merge"),
    "start_from": ("base", "parent"),
    "scheduler": ("cosine", "linear", "constant"),
    "weights": ("auto", "bfloat16", "float32"),
}
POSITIVE = ("rank", "alpha", "learning_rate", "epochs", "batch_size", "accumulate", "max_length", "log_every")
NOT_NEGATIVE = ("max_steps", "warmup_steps", "weight_decay", "seed")


def refuse(line: str) -> NoReturn:
    """End with exit code 2 and one line."""
    print(f"train.py: {line}", file=sys.stderr)
    sys.exit(2)


def read_recipe(path: Path) -> Recipe:
    """The recipe, or a refusal that names the key."""
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        refuse(f"{path}: {error}")
    known = {field.name: getattr(Recipe, field.name) for field in fields(Recipe)}
    for key, value in table.items():
        if key not in known:
            refuse(f"{path}: unknown key {key!r}; known: {', '.join(known)}")
        table[key] = checked(path, key, value, known[key])
    return Recipe(**table)


def checked(path: Path, key: str, value: Any, default: Any) -> Any:
    """``value`` in the type of ``default``, within the bounds of ``key``."""
    if isinstance(default, tuple):
        if not isinstance(value, list) or not all(type(x) in (int, float) for x in value):
            refuse(f"{path}: {key} must be a list of numbers")
        return tuple(float(x) for x in value)
    if isinstance(default, float) and type(value) is int:
        value = float(value)
    if type(value) is not type(default):
        refuse(f"{path}: {key} must be a {type(default).__name__}")
    if key in CHOICES and value not in CHOICES[key]:
        refuse(f"{path}: {key} must be one of {', '.join(CHOICES[key])}")
    if (key in POSITIVE and not value > 0) or (key in NOT_NEGATIVE and not value >= 0):
        refuse(f"{path}: {key} = {value} is out of range")
    return value


def read_rows(folder: Path) -> list[tuple[str, str]]:
    """(prompt, completion) of every line of every *.jsonl of the folder, in order of file name and line."""
    rows = []
    for path in sorted(folder.glob("*.jsonl")):
        with path.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    rows.append(read_row(f"{path.name}:{number}", line))
    if not rows:
        refuse(f'{folder}: no rows; write lines like {{"prompt": "…", "completion": "…"}} into a .jsonl file')
    return rows


def read_row(where: str, line: str) -> tuple[str, str]:
    try:
        row = json.loads(line)
        prompt, completion = row["prompt"], row["completion"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        refuse(f"{where}: not an object with prompt and completion ({type(error).__name__}: {error})"[:300])
    if not (isinstance(prompt, str) and isinstance(completion, str) and prompt and completion):
        refuse(f"{where}: prompt and completion must be texts, neither empty")
    return prompt, completion
