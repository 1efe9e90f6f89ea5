"""A research agent without an LLM. It knows only /lab, /feedback, /sources, /models and the command ``vibe``.

    python main.py --seed 0

It is the reference for people who write agents, and the engine of the project's own tests. It decides from feedback:
per-problem rewards (a paired test tells gain from noise) and trajectories. It has no list of answers.
"""

from __future__ import annotations

import argparse
import sys

from clock import PROBE, SMALL_PROBE, Clock
from design import LARGE_BYTES
from lab import ROOT, Lab, Refused, say, vibe
from memory import Memory
from search import Search


def seconds_left() -> float:
    """Budget seconds that remain, as the desk says."""
    return float(str(vibe("status")["left_s"]))


def recipe_keys(status: dict[str, object]) -> tuple[str, ...] | None:
    """The keys of the recipe that this run permits; None where the trainer is in scope, or nothing of it is."""
    keys, scope = status.get("recipe_fields"), status.get("scope")
    fixed = isinstance(keys, list) and isinstance(scope, list) and keys and "trainer" not in scope
    return tuple(map(str, keys)) if fixed and isinstance(keys, list) else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    try:
        lab, memory = Lab(recipe_keys(vibe("status"))), Memory(ROOT / "home" / "memory.jsonl")
        if memory.known:
            say(f"started again: {len(memory)} answers are known, I go on from there")
        first, _ = memory.once(["budget"], lambda: {"left_s": seconds_left()})
        clock = Clock(first["left_s"], seconds_left, SMALL_PROBE if lab.base_bytes > LARGE_BYTES else PROBE)
        best = Search(lab, clock, memory, args.seed).run()
        say(f"select {best.candidate} with {best.score:.1%} on validation", "select")
        vibe("select", best.candidate)
        vibe("finish")
    except Refused as error:
        say(f"vibe refused: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
