"""Scores, their intervals and paired differences. Pure, standard library only; every interval is 95 %, two-sided.

The estimand is always the mean over the population of problems that the split was drawn from, so problems are the
unit of chance and samples of one problem are not independent. No interval here ever has zero width.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence

from grader.protocol import Delta, ProblemRow, Score

Z95 = 1.959963984540054
_EXACT_SUMS = 200_000
Rewards = Mapping[str, Sequence[float]]


def rewards_of(rows: Iterable[ProblemRow], problems: Iterable[str]) -> dict[str, list[float]]:
    """The rewards of ``rows`` by problem, with an entry for every scheduled problem; ValueError on a foreign or a
    repeated (problem, sample)."""
    grouped: dict[str, list[float]] = {problem: [] for problem in problems}
    seen: set[tuple[str, int]] = set()
    for row in rows:
        key = (row.problem, row.sample)
        if row.problem not in grouped or key in seen:
            raise ValueError(f"{row.problem}#{row.sample} was not scheduled, or was recorded twice")
        seen.add(key)
        grouped[row.problem].append(row.reward)
    return grouped


def score_of(rewards: Rewards, samples: int) -> Score:
    """The score of an evaluation that scheduled ``samples`` of each key of ``rewards``; what is missing counts 0."""
    means = list(_problem_means(rewards, samples).values())
    score = _clip(math.fsum(means) / len(means), 0.0, 1.0)
    n_eff = float(len(means)) if samples == 1 else effective_n(means, samples)
    low, high = wilson(score, n_eff)
    return Score(score=score, low=low, high=high, n=len(means), samples=samples)


def wilson(mean: float, n: float, z: float = Z95) -> tuple[float, float]:
    """Wilson's score interval for a mean of rewards in 0…1 over ``n`` (a real number ≥ 1) independent draws."""
    square = z * z
    centre = (mean + square / (2 * n)) / (1 + square / n)
    half = z / (1 + square / n) * math.sqrt(mean * (1 - mean) / n + square / (4 * n * n))
    return min(mean, max(0.0, centre - half)), max(mean, min(1.0, centre + half))


def effective_n(means: Sequence[float], samples: int) -> float:
    """How many independent draws ``len(means)`` problems of ``samples`` each are worth: n … n·samples.

    p(1−p) over the estimated variance of the mean, with Korn and Graubard's (z/t)² for the degrees of freedom that
    estimate has. Where the score is 0 or 1 nothing can be estimated and the cautious end, n, is taken.
    """
    n = len(means)
    mean = math.fsum(means) / n
    spread = mean * (1 - mean)
    if n < 2 or spread <= 0:
        return float(n)
    variance = math.fsum((value - mean) ** 2 for value in means) / (n - 1) / n
    if variance <= 0:
        return float(n * samples)
    return _clip(spread / variance * (Z95 / t95(n - 1)) ** 2, float(n), float(n * samples))


def paired_delta(initial: Rewards, selected: Rewards, samples: int) -> Delta:
    """score(selected) − score(initial) over the same problems with its interval, within −1…1.

    One sample of 0 or 1 per problem: Tango's asymptotic score interval for paired proportions (Stat. Med. 17, 1998).
    Otherwise a t-interval over the problems' differences with two pseudo-problems at ±1/√samples added, Bonett and
    Price's adjustment for the paired binary case carried over to means: without it the many exact ties of small
    evaluations make the plain t-interval too narrow, and of zero width when every problem agrees.
    """
    if set(initial) != set(selected):
        raise ValueError("paired_delta needs the same problems on both sides")
    before, after = _problem_means(initial, samples), _problem_means(selected, samples)
    differences = [after[problem] - before[problem] for problem in before]
    value = _clip(math.fsum(differences) / len(differences), -1.0, 1.0)
    if samples == 1 and all(mean in (0.0, 1.0) for means in (before, after) for mean in means.values()):
        low, high = tango(differences.count(1.0), differences.count(-1.0), len(differences))
    else:
        low, high = _adjusted_t(differences, samples)
    return Delta(value=value, low=min(value, _clip(low, -1.0, 1.0)), high=max(value, _clip(high, -1.0, 1.0)))


def tango(gained: int, lost: int, n: int, z: float = Z95) -> tuple[float, float]:
    """Tango's score interval for (gained − lost) / n, where ``gained`` and ``lost`` of ``n`` pairs are discordant."""
    estimate = (gained - lost) / n

    def outside(delta: float) -> bool:
        return abs(_tango_statistic(gained, lost, n, delta)) > z

    return _edge(outside, estimate, -1.0), _edge(outside, estimate, 1.0)


def mcnemar_exact(gained: int, lost: int) -> float:
    """The two-sided p of McNemar's exact test: ``gained`` and ``lost`` are the discordant pairs."""
    n, extreme = gained + lost, min(gained, lost)
    if n == 0:
        return 1.0
    tail: int = sum(math.comb(n, k) for k in range(extreme + 1))
    return min(1.0, tail / (1 << (n - 1)))


def sign_flip_p(differences: Sequence[float], *, draws: int = 20_000, seed: int = 0) -> float:
    """The two-sided p that paired ``differences`` (one per problem) are symmetric around 0.

    Exact, by convolving the signs, while the distinct sums stay few (always so for means of a few samples);
    otherwise ``draws`` random flips from ``seed``, counting the observed one.
    """
    units = [abs(round(difference * 1_000_000)) for difference in differences]
    # Rounding must not break ties (two thirds against one third twice): each difference may be off by half a unit.
    observed = abs(sum(round(difference * 1_000_000) for difference in differences)) - len(units)
    sums: dict[int, int] | None = {0: 1}
    for unit in units:
        sums = _convolve(sums, unit) if sums is not None else None
    if sums is not None:
        extreme = sum(count for total, count in sums.items() if abs(total) >= observed)
        return extreme / sum(sums.values())
    chance = random.Random(seed)  # noqa: S311  a permutation test, not a secret
    hits = sum(abs(sum(unit if chance.random() < 0.5 else -unit for unit in units)) >= observed for _ in range(draws))
    return (hits + 1) / (draws + 1)


@functools.cache
def t95(freedom: int) -> float:
    """The 97.5 % quantile of Student's t with ``freedom`` ≥ 1 degrees of freedom (error below 1e-3)."""
    low, high = Z95, 13.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_two_sided(middle, freedom) > 0.05 else (low, middle)
    return (low + high) / 2


def _t_two_sided(t: float, freedom: int) -> float:
    """P(|T| > t) for integer degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    theta = math.atan(t / math.sqrt(freedom))
    cosine, term, total = math.cos(theta), 1.0, 0.0
    if freedom % 2:
        for k in range(1, freedom - 1, 2):
            term = cosine if k == 1 else term * cosine * cosine * (k - 1) / k
            total += term
        inside = 2 / math.pi * (theta + math.sin(theta) * total)
    else:
        for k in range(0, freedom - 1, 2):
            term = 1.0 if k == 0 else term * cosine * cosine * (k - 1) / k
            total += term
        inside = math.sin(theta) * total
    return 1 - inside


def _problem_means(rewards: Rewards, samples: int) -> dict[str, float]:
    if not rewards or samples < 1:
        raise ValueError("an evaluation needs at least one problem and one sample")
    for problem, values in rewards.items():
        if len(values) > samples or not all(0 <= value <= 1 for value in values):
            raise ValueError(f"{problem}: more samples than scheduled, or a reward outside 0…1")
    return {problem: math.fsum(values) / samples for problem, values in rewards.items()}


def _tango_statistic(gained: int, lost: int, n: int, delta: float) -> float:
    """The score statistic at ``delta``, its variance at the constrained maximum-likelihood estimate."""
    a = 2.0 * n
    b = -gained - lost + (2 * n - gained + lost) * delta
    c = -lost * delta * (1 - delta)
    nuisance = (math.sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)
    variance = n * (2 * nuisance + delta * (1 - delta))
    distance = gained - lost - n * delta
    if variance <= 1e-15:
        return 0.0 if abs(distance) < 1e-12 else math.copysign(math.inf, distance)
    return distance / math.sqrt(variance)


def _edge(outside: Callable[[float], bool], inside: float, far: float) -> float:
    """Where ``outside`` turns true on the way from ``inside`` to ``far``; ``far`` if it never does."""
    if not outside(far):
        return far
    for _ in range(80):
        middle = (inside + far) / 2
        inside, far = (inside, middle) if outside(middle) else (middle, far)
    return far


def _adjusted_t(differences: Sequence[float], samples: int) -> tuple[float, float]:
    pseudo = 1 / math.sqrt(samples)
    values = [*differences, pseudo, -pseudo]
    n = len(values)
    centre = math.fsum(values) / n
    variance = math.fsum((value - centre) ** 2 for value in values) / (n - 1)
    half = t95(n - 1) * math.sqrt(variance / n)
    return centre - half, centre + half


def _convolve(sums: dict[int, int], unit: int) -> dict[int, int] | None:
    if unit == 0:
        return sums
    result: dict[int, int] = {}
    for total, count in sums.items():
        for signed in (total + unit, total - unit):
            result[signed] = result.get(signed, 0) + count
    return result if len(result) <= _EXACT_SUMS else None


def _clip(value: float, low: float, high: float) -> float:
    return min(high, max(low, value))
