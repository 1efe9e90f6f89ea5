"""The agent's sense of time: what jobs cost here, what still fits, and how many examples a training can afford."""

from __future__ import annotations

from collections.abc import Callable

from design import Design

PROBE = 320
SMALL_PROBE = 256  # of a large base: what a training of it takes is not known yet
SIZES = (320, 640, 1280)
SHARE = 0.025
FEW = 6
RESERVE_S = 5.0
HURRIED_S = 150.0


class Clock:
    """Learns from what trainings and validations took; ``left`` asks the desk for the seconds that remain."""

    def __init__(self, budget: float, left: Callable[[], float], probe: int = PROBE) -> None:
        self.left = left
        self.probe = probe  # examples of a training that is not known to fit more
        self.budget = budget
        self.rate = 0.0  # examples a second, each pass over one counted, the start of a training included
        self.validate_s = 0.0

    @property
    def hurried(self) -> bool:
        """True for a budget that allows few trainings, whatever they take: each starts a trainer."""
        return self.budget < HURRIED_S

    def fits(self, cost: float) -> bool:
        """True when a job of ``cost`` seconds would end in time, with a margin for what varies."""
        return cost * 1.3 + RESERVE_S < self.left()

    def examples(self, design: Design) -> int:
        """How many examples a training may have so that all its passes take a fixed share of the whole budget."""
        fitting = [size for size in SIZES if size * design.passes <= self.rate * SHARE * self.budget]
        return fitting[-1] if fitting else self.probe

    def train_s(self, design: Design) -> float:
        """Seconds that a training of this design will take; 0 as long as there was none to learn from."""
        return self.examples(design) * design.passes / self.rate if self.rate else 0.0

    def short(self, design: Design) -> bool:
        """True when only a few more trainings like this one would fit: moves must then be tried together."""
        return self.left() < FEW * (self.train_s(design) + self.validate_s)

    def trained(self, examples: int, passes: float, seconds: float) -> None:
        self.rate = max(1.0, examples * passes) / max(0.1, seconds)

    def validated(self, seconds: float) -> None:
        self.validate_s = max(self.validate_s, seconds)
