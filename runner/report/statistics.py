"""How sure the numbers are. Every test, interval and mean that any report shows comes from here, from
:mod:`runner.record.pairs` or from :mod:`grader.intervals`, on which both build. Standard library only; scores in 0…1;
every interval is 95 %, two-sided.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grader.intervals import Rewards, t95, wilson
from grader.protocol import Delta, Score

_CELLS = 4_000_000  # candidates × problems × draws that the bootstrap of a selection may cost
_LEAST_DRAWS = 200


def unpaired_delta(before: Score, after: Score) -> Delta:
    """after − before for two scores on different problems: Newcombe's square-and-add of the two score intervals."""
    value = after.score - before.score
    low = value - math.hypot(after.score - after.low, before.high - before.score)
    high = value + math.hypot(after.high - after.score, before.score - before.low)
    return Delta(value=value, low=max(-1.0, low), high=min(1.0, high))


@dataclass(frozen=True, slots=True)
class Optimism:
    """By how much the best of ``looks`` validations is too high, by the luck of having been picked."""

    looks: int
    value: float
    draws: int


def selection_optimism(candidates: Mapping[str, Rewards], samples: int, *, seed: int = 0) -> Optimism | None:
    """Bootstrap of the selection itself: draw problems anew, pick the best candidate on the draw, and see how far its
    drawn score lies above its score on all problems.

    A cautious estimate: among candidates that are all equally good it finds about 0.7 of the luck (shown by
    simulation in the tests), among clearly different ones all of it. None for fewer than two candidates. The
    candidates must share their problems.
    """
    if len(candidates) < 2:
        return None
    problems = list(next(iter(candidates.values())))
    if not problems or any(set(rewards) != set(problems) for rewards in candidates.values()):
        return None
    rows = [[math.fsum(rewards[key]) / samples for key in problems] for rewards in candidates.values()]
    full = [math.fsum(row) / len(row) for row in rows]
    draws = max(_LEAST_DRAWS, min(2000, _CELLS // (len(rows) * len(problems))))
    chance = random.Random(seed)  # noqa: S311  a bootstrap, not a secret
    total = 0.0
    for _ in range(draws):
        picked = chance.choices(range(len(problems)), k=len(problems))
        means = [sum([row[i] for i in picked]) / len(picked) for row in rows]
        best = max(range(len(rows)), key=lambda k: (means[k], -k))
        total += means[best] - full[best]
    return Optimism(len(rows), max(0.0, total / draws), draws)


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean over ``n`` runs. ``sem``, ``low`` and ``high`` (Student's t) need two runs."""

    n: int
    mean: float
    sem: float | None
    low: float | None
    high: float | None


def spread(values: Sequence[float], *, least: float = -1.0, most: float = 1.0) -> Spread | None:
    """Mean, standard error and t-interval over runs (seeds); None of nothing. Non-finite values do not count.

    ``least`` and ``most`` are the ends of what a mean, and so its interval, can be. The interval is over seeds only:
    runs on the same hidden problems share the luck of those problems.
    """
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return None
    mean = math.fsum(known) / len(known)
    if len(known) < 2:
        return Spread(len(known), mean, None, None, None)
    variance = math.fsum((value - mean) ** 2 for value in known) / (len(known) - 1)
    sem = math.sqrt(variance / len(known))
    half = t95(len(known) - 1) * sem
    return Spread(len(known), mean, sem, max(least, mean - half), min(most, mean + half))


@dataclass(frozen=True, slots=True)
class Fraction:
    """``part`` of ``whole`` with Wilson's interval; the interval of nothing is everything."""

    part: int
    whole: int
    low: float
    high: float

    @property
    def value(self) -> float | None:
        """The share in 0…1; None of nothing."""
        return self.part / self.whole if self.whole else None


def fraction(part: int, whole: int) -> Fraction:
    """How many of how many, and how sure."""
    low, high = wilson(part / whole, whole) if whole else (0.0, 1.0)
    return Fraction(part, whole, low, high)


def median(values: Sequence[float]) -> float | None:
    """The median of the finite values; None of nothing."""
    known = sorted(value for value in values if math.isfinite(value))
    if not known:
        return None
    middle = len(known) // 2
    return known[middle] if len(known) % 2 else (known[middle - 1] + known[middle]) / 2


def pareto(points: Mapping[str, tuple[float, float]]) -> tuple[str, ...]:
    """The names whose (cost, score) no other point beats: as cheap and higher, or cheaper and as high."""

    def beaten(cost: float, score: float) -> bool:
        others = points.values()
        return any(c <= cost and s >= score and (c, s) != (cost, score) for c, s in others)

    known = {name: point for name, point in points.items() if all(map(math.isfinite, point))}
    kept = [name for name, point in known.items() if not beaten(*point)]
    return tuple(sorted(kept, key=lambda name: known[name]))
