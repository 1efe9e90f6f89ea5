"""What the agent can see in feedback: faults in a candidate's trajectories, and what a training's losses say."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import arithmetic

FEEDBACK = Path(os.environ.get("VIBE_FEEDBACK", "/feedback"))
MOSTLY = 0.4
WRONG_CALLS = 0.2
HIGH_LOSS = 0.5  # nats a token: a format that was learned costs less


@dataclass(frozen=True)
class Faults:
    """Shares of a candidate's final replies: without a usable box; and of their equations and calls, the wrong ones."""

    unboxed: float
    wrong_sums: float
    wrong_calls: float

    @property
    def mostly(self) -> frozenset[str]:
        """The faults that most replies have, in the words of ``Move.mends``."""
        shares = {"format": self.unboxed, "arithmetic": self.wrong_sums}
        return frozenset(name for name, share in shares.items() if share > MOSTLY)


def endings(folder: Path) -> Iterator[dict[str, Any]]:
    """The last step of every trajectory of one evaluation."""
    for path in sorted((folder / "trajectories").glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            step = json.loads(line)
            if step["kind"] == "end":
                yield step


def faults(folder: Path) -> Faults:
    """What goes wrong in the evaluation that lies in ``folder``."""
    ends = unboxed = sums = wrong_sums = calls = wrong_calls = 0
    for step in endings(folder):
        found = arithmetic.PLAIN.findall(step["reply"])
        sums += len(found)
        wrong_sums += sum(arithmetic.evaluate(left) != int(right) for left, right in found)
        bad, total = arithmetic.wrong_calls(step["reply"])
        wrong_calls, calls = wrong_calls + bad, calls + total
        ends, unboxed = ends + 1, unboxed + (step["reason"] == "no_box")
    return Faults(unboxed / max(1, ends), wrong_sums / max(1, sums), wrong_calls / max(1, calls))


def losses(job: str) -> list[float]:
    """The training losses that the trainer reported, in order."""
    path = FEEDBACK / "jobs" / job / "train.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [float(row["loss"]) for row in map(json.loads, lines) if row.get("loss") is not None]


def diverged(curve: list[float]) -> bool:
    """The loss ended clearly above where it had been."""
    return bool(curve) and curve[-1] > 1.2 * min(curve) + 0.1
