"""A research agent with a plan: the same candidates in every run, however fast the machine is and whatever dies.

What the scripted agent tries depends on the time that is left; two of its runs need not make the same candidates. This
one does each step until it is done, and knows from its notes which ones were when it is started again.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LAB = Path("/lab")
NOTES = LAB / "notes" / "done"
TRIES = 4


@dataclass(frozen=True)
class Step:
    """One candidate: rows of /sources from ``skip`` on, steps of the trainer, and what the harness tells the model."""

    why: str
    skip: int
    max_steps: int
    instruction: str = ""


PLAN = (
    Step("all weights, on worked problems", skip=0, max_steps=24),
    Step("other problems, and another prompt", skip=1000, max_steps=20, instruction="Work step by step. "),
)


def edit(step: Step) -> None:
    """Write the data, the recipe and the harness of ``step``; the same bytes each time."""
    rows = [json.loads(line) for file in sorted(Path("/sources").glob("*.jsonl")) for line in file.open()]
    harness = (LAB / "harness" / "main.py").read_text()
    told = re.search(r'INSTRUCTION = "(?:Work step by step\. )?(.*)"', harness)
    assert told, "the harness has no instruction"
    (LAB / "harness" / "main.py").write_text(
        harness.replace(told[0], f'INSTRUCTION = "{step.instruction}{told[1]}"'),
    )
    prompt = told[1].encode().decode("unicode_escape")
    used = [row for row in rows if row.get("solution")][step.skip : step.skip + 1000]
    with (LAB / "data" / "train.jsonl").open("w") as file:
        for row in used:
            pair = {"prompt": f"{row['question']}\n{step.instruction}{prompt}", "completion": row["solution"]}
            file.write(json.dumps(pair) + "\n")
    recipe = (LAB / "trainer" / "recipe.toml").read_text()
    for key, value in (("method", '"full"'), ("learning_rate", "3e-3"), ("max_steps", str(step.max_steps))):
        recipe = re.sub(rf"(?m)^{key} = \S+", f"{key} = {value}", recipe)
    (LAB / "trainer" / "recipe.toml").write_text(recipe)


def vibe(*words: str) -> dict[str, str]:
    """The answer to one command. It is asked again when its job ended badly: a process of it was killed."""
    for _ in range(TRIES):
        done = subprocess.run(["vibe", *words, "--json"], capture_output=True, text=True, check=False)
        lines = done.stdout.splitlines()
        print(json.dumps({"say": f"{' '.join(words)}: {lines[-1] if lines else done.stderr}"}), flush=True)
        if done.returncode == 0:
            answer: dict[str, str] = json.loads(lines[-1])
            return answer
    sys.exit(f"{words}: in vain")


def undone() -> Iterator[Step]:
    """The steps of the plan that the notes do not name."""
    done = NOTES.read_text().splitlines() if NOTES.exists() else []
    return (step for step in PLAN if step.why not in done)


def main() -> None:
    for step in undone():
        edit(step)
        model = vibe("train", "-m", step.why)["model"]
        vibe("validate", "--model", model, "-m", step.why)
        with NOTES.open("a") as notes:
            notes.write(f"{step.why}\n")
    vibe("select", "c02")
    vibe("finish")


if __name__ == "__main__":
    main()
