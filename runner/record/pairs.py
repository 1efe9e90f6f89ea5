"""Two systems on the same problems: the paired comparison that every view and every report shows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from grader.intervals import Rewards, mcnemar_exact, paired_delta, sign_flip_p
from grader.protocol import Delta

ALPHA = 0.05

Verdict = Literal["better", "worse", "within noise"]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two systems on the same problems: ``delta`` is after − before. ``gained`` and ``lost`` are the problems whose
    mean reward rose and fell; ``p`` is two-sided, by ``test``."""

    n: int
    samples: int
    gained: tuple[str, ...]
    lost: tuple[str, ...]
    delta: Delta
    p: float
    test: Literal["McNemar, exact", "sign flips"]

    @property
    def same(self) -> int:
        """How many problems neither gained nor lost."""
        return self.n - len(self.gained) - len(self.lost)

    @property
    def verdict(self) -> Verdict:
        """What the test says at 5 %."""
        if self.p >= ALPHA or self.delta.value == 0:
            return "within noise"
        return "better" if self.delta.value > 0 else "worse"


def paired(before: Rewards, after: Rewards, samples: int) -> Pair:
    """Compare two systems problem by problem: McNemar's exact test for one sample of 0 or 1 each, else sign flips.

    ``samples`` is what was scheduled for each problem; what is missing counts 0. ValueError unless both have the same
    problems.
    """
    delta = paired_delta(before, after, samples)
    differences = {key: (math.fsum(after[key]) - math.fsum(before[key])) / samples for key in before}
    gained = tuple(key for key, value in differences.items() if value > 1e-9)
    lost = tuple(key for key, value in differences.items() if value < -1e-9)
    binary = samples == 1 and all(sum(side[key]) in (0, 1) for side in (before, after) for key in before)
    p = mcnemar_exact(len(gained), len(lost)) if binary else sign_flip_p(list(differences.values()))
    return Pair(len(differences), samples, gained, lost, delta, p, "McNemar, exact" if binary else "sign flips")
