"""The agent's sense of time: what jobs cost here, what still fits, and how many examples a training can afford."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from design import Design

PROBE = 320
SIZES = (320, 640, 1280)
SHARE = 0.025
RESERVE_S = 5.0


class Clock:
    """Measures trainings and validations; ``left`` asks the desk for the seconds that remain."""

    def __init__(self, left: Callable[[], float]) -> None:
        self.left = left
        self.budget = left()
        self.train_s = 0.0
        self.validate_s = 0.0
        self.examples = PROBE

    def fits(self, cost: float) -> bool:
        """True when a job of ``cost`` seconds would end in time, with a margin for what varies."""
        return cost * 1.3 + RESERVE_S < self.left()

    @contextmanager
    def training(self, design: Design) -> Iterator[None]:
        """Times a training, and sizes the next ones to a fixed share of the whole budget."""
        began = time.monotonic()
        yield
        seconds = (time.monotonic() - began) / max(1.0, design.epochs)
        rate = max(1, design.examples or self.examples) / max(0.1, seconds)
        fitting = [size for size in SIZES if size <= rate * SHARE * self.budget]
        self.examples = fitting[-1] if fitting else PROBE
        self.train_s = self.examples / rate

    @contextmanager
    def validation(self) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.validate_s = max(self.validate_s, time.monotonic() - began)
