"""T0's training speed beside TRL's default, on the same rows, weights and order, in one process.

Run with the model environment's python:

    ~/.cache/vibetraining-bench/model-env/bin/python scripts/bench_train.py [--model DIR] [--steps N]

Prints tokens per second (padding not counted, the first step left out) of TRL's SFTTrainer as it is, of T0's loss on
labelled positions only, and of T0 as its recipe has it (batches of like lengths too), and the losses: the first two
must be equal. About two minutes for SmolLM2-135M on two idle cores.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tasks" / "aime" / "workspace" / "trainer"))

import train as t0
from recipe import read_recipe
from transformers import AutoTokenizer, TrainerCallback
from trl import SFTTrainer
from weights import Start, full_weights, weights_type

from tasks.aime import mini
from tasks.aime.text import prompt

ROOT = Path(__file__).resolve().parents[1]


class Clock(TrainerCallback):
    """When each step ended, and how many tokens it had."""

    def __init__(self) -> None:
        self.ends: list[float] = []
        self.losses: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.ends.append(time.monotonic())


def measure(base: Path, recipe: Any, examples: list[dict[str, list[int]]], trainer: Any) -> tuple[float, list[float]]:
    """(tokens per second from the second step on, losses) of one training with ``trainer``'s class."""
    tokenizer, clock, tokens = AutoTokenizer.from_pretrained(base), Clock(), list[int]()

    class Counted(trainer):  # type: ignore[misc]
        def compute_loss(self, model: Any, inputs: Any, *args: Any, **named: Any) -> Any:
            tokens.append(int(inputs["attention_mask"].sum()))
            return super().compute_loss(model, inputs, *args, **named)

        def log(self, logs: dict[str, float], *_: Any, **__: Any) -> None:
            if "loss" in logs:
                clock.losses.append(float(logs["loss"]))

    start = Start(full_weights(base, None, weights_type(recipe)))
    with tempfile.TemporaryDirectory() as scratch:
        settings = t0.settings(recipe, Path(scratch))
        made = Counted(
            model=t0.trainable(recipe, start),
            args=settings,
            train_dataset=t0.dataset(examples),
            processing_class=tokenizer,
            callbacks=[clock],
        )
        made.train()
    return sum(tokens[1:]) / (clock.ends[-1] - clock.ends[0]), clock.losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    home = Path(os.environ.get("VIBETRAINING_HOME", Path.home() / ".cache" / "vibetraining-bench"))
    parser.add_argument("--model", type=Path, default=home / "models" / "smollm2-135m")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--batch", type=int, default=8)
    options = parser.parse_args()
    recipe = dataclasses.replace(
        read_recipe(ROOT / "tasks" / "aime" / "workspace" / "trainer" / "recipe.toml"),
        max_steps=options.steps,
        batch_size=options.batch,
        learning_rate=1e-3,
        log_every=1,
        group_by_length=False,
    )
    problems = mini.generate("bench", options.steps * options.batch)
    rows = [(prompt(p.question), mini.solution_calculator(p)) for p in problems]
    examples = t0.encode(AutoTokenizer.from_pretrained(options.model), rows, recipe.max_length)
    ours = t0.trainer_class(t0.Metrics())
    theirs_speed, theirs = measure(options.model, recipe, examples, SFTTrainer)
    ours_speed, same = measure(options.model, recipe, examples, ours)
    grouped = dataclasses.replace(recipe, group_by_length=True)
    grouped_speed, _ = measure(options.model, grouped, examples, ours)
    apart = max(abs(a - b) / a for a, b in zip(theirs, same, strict=True))
    print(f"TRL's default              {theirs_speed:7.0f} tokens/s   losses {[round(x, 4) for x in theirs]}")
    print(f"T0, labelled positions     {ours_speed:7.0f} tokens/s   losses {[round(x, 4) for x in same]}")
    print(f"T0, and grouped by length  {grouped_speed:7.0f} tokens/s")
    print(f"ratio {ours_speed / theirs_speed:.2f}, grouped {grouped_speed / theirs_speed:.2f}")
    print(f"losses differ by at most {apart:.2%}")
    print(f"mean tokens a row {statistics.mean(len(e['input_ids']) for e in examples):.0f}")
    if apart > 0.02:
        sys.exit("the losses differ: the two do not train the same thing")


if __name__ == "__main__":
    main()
