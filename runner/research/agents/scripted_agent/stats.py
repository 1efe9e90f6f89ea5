"""What the agent needs of statistics: is a change more than noise? Standard library only."""

from __future__ import annotations

import json
from math import comb
from pathlib import Path


def rewards(folder: Path) -> dict[str, float]:
    """Mean reward per problem of one evaluation, from its problems.jsonl."""
    sums: dict[str, list[float]] = {}
    for line in (folder / "problems.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        sums.setdefault(row["problem"], []).append(float(row["reward"]))
    return {problem: sum(values) / len(values) for problem, values in sums.items()}


def sign_test(gained: int, lost: int) -> float:
    """Two-sided exact p of ``gained`` against ``lost`` under a fair coin (McNemar's exact test); 1.0 for no flips."""
    flips = gained + lost
    if flips == 0:
        return 1.0
    tail: int = sum(comb(flips, k) for k in range(min(gained, lost) + 1))
    return min(1.0, 2.0 * tail / float(2**flips))


def compare(before: dict[str, float], after: dict[str, float]) -> tuple[float, float]:
    """(mean difference, p) of two evaluations over the problems that both have."""
    both = sorted(before.keys() & after.keys())
    if not both:
        return 0.0, 1.0
    differences = [after[problem] - before[problem] for problem in both]
    gained = sum(value > 0 for value in differences)
    lost = sum(value < 0 for value in differences)
    return sum(differences) / len(both), sign_test(gained, lost)
