"""Scores divide by what was scheduled; intervals cover what they claim, and are never of zero width."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grader.intervals import (
    effective_n,
    mcnemar_exact,
    paired_delta,
    rewards_of,
    score_of,
    sign_flip_p,
    t95,
    tango,
    wilson,
)
from grader.protocol import ProblemRow


def _row(problem: str, sample: int, reward: float) -> ProblemRow:
    return ProblemRow(
        problem=problem, sample=sample, reward=reward, reason="match", calls=1, parse_errors=0, tokens_in=1,
        tokens_out=1, seconds=0.1,
    )  # fmt: skip


def _drawn(chance: random.Random, mean: float, spread: float, samples: int) -> list[float]:
    """Samples of a problem whose solve rate is drawn around ``mean``; ``spread`` is the share between problems."""
    size = 1 / spread - 1
    rate = chance.betavariate(mean * size, (1 - mean) * size)
    return [float(chance.random() < rate) for _ in range(samples)]


def test_what_was_scheduled_and_did_not_come_counts_as_zero() -> None:
    score = score_of({"a": [1.0, 1.0], "b": [1.0], "c": []}, 2)
    assert score.score == pytest.approx((1 + 0.5 + 0) / 3)
    assert (score.n, score.samples) == (3, 2)


@pytest.mark.parametrize("rewards", [{}, {"a": [1.0, 1.0]}, {"a": [1.5]}, {"a": [-0.1]}, {"a": [math.nan]}])
def test_more_than_scheduled_or_no_reward_is_an_error(rewards: dict[str, list[float]]) -> None:
    with pytest.raises(ValueError):
        score_of(rewards, 1)


def test_rows_are_grouped_and_a_repeated_or_foreign_row_is_an_error() -> None:
    rows = [_row("a", 0, 1.0), _row("a", 1, 0.0)]
    assert rewards_of(rows, ["a", "b"]) == {"a": [1.0, 0.0], "b": []}
    for bad in (_row("a", 0, 1.0), _row("x", 0, 1.0)):
        with pytest.raises(ValueError):
            rewards_of([*rows, bad], ["a", "b"])


def test_wilson_agrees_with_published_values() -> None:
    # Newcombe 1998 (Stat. Med. 17: 857), method 3
    for successes, n, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)):
        assert wilson(successes / n, n) == pytest.approx((low, high), abs=5e-5)


def test_tango_agrees_with_published_values() -> None:
    # Fagerland, Lydersen and Laake 2014 (Stat. Med. 33: 2850), airway reactivity before and after transplantation
    assert tango(1, 7, 21) == pytest.approx((-0.517, -0.026), abs=5e-4)
    low, high = tango(0, 0, 30)
    assert low == pytest.approx(-high) and 0.05 < high < 0.2
    assert tango(30, 0, 30)[1] == 1.0 and tango(30, 0, 30)[0] > 0.75


def test_t_quantiles_agree_with_tables() -> None:
    for freedom, value in ((1, 12.706), (2, 4.303), (5, 2.571), (10, 2.228), (30, 2.042), (120, 1.980)):
        assert t95(freedom) == pytest.approx(value, abs=1e-3)


def test_effective_n_lies_between_problems_and_samples() -> None:
    assert effective_n([0.0, 1.0] * 20, 4) == 40
    assert effective_n([0.5] * 40, 4) == 160
    assert effective_n([1.0] * 40, 4) == 40


@pytest.mark.parametrize(
    ("n", "samples", "mean", "spread"),
    [
        (30, 1, 0.17, 0.3),
        (104, 1, 0.05, 0.3),
        (104, 1, 0.9, 0.3),
        (30, 4, 0.17, 0.5),
        (30, 4, 0.5, 0.1),
        (60, 4, 0.1, 0.5),
    ],
)
def test_a_score_interval_covers_the_truth(n: int, samples: int, mean: float, spread: float) -> None:
    chance, draws, hits = random.Random(7), 600, 0
    for _ in range(draws):
        score = score_of({str(i): _drawn(chance, mean, spread, samples) for i in range(n)}, samples)
        hits += score.low <= mean <= score.high
    assert hits / draws >= 0.93


@pytest.mark.parametrize(
    ("n", "samples", "before", "after"),
    [
        (30, 1, 0.17, 0.4),
        (104, 1, 0.15, 0.85),
        (104, 1, 0.5, 0.5),
        (30, 4, 0.2, 0.35),
        (30, 4, 0.5, 0.5),
        (60, 2, 0.1, 0.8),
    ],
)
def test_a_paired_interval_covers_the_truth(n: int, samples: int, before: float, after: float) -> None:
    chance, draws, hits = random.Random(11), 300, 0
    for _ in range(draws):
        initial = {str(i): _drawn(chance, before, 0.4, samples) for i in range(n)}
        selected = {str(i): _drawn(chance, after, 0.4, samples) for i in range(n)}
        delta = paired_delta(initial, selected, samples)
        hits += delta.low <= after - before <= delta.high
    assert hits / draws >= 0.93


def test_pairing_narrows_the_interval_when_the_same_problems_are_solved() -> None:
    initial = {str(i): [float(i < 20)] for i in range(40)}
    same = paired_delta(initial, {str(i): [float(i < 24)] for i in range(40)}, 1)
    crossed = paired_delta(initial, {str(i): [float(i >= 16)] for i in range(40)}, 1)
    assert same.value == crossed.value == pytest.approx(0.1)
    assert same.high - same.low < 0.6 * (crossed.high - crossed.low)


def test_a_difference_needs_the_same_problems() -> None:
    with pytest.raises(ValueError):
        paired_delta({"a": [1.0]}, {"b": [1.0]}, 1)


_reward = st.sampled_from([0.0, 1.0]) | st.floats(0, 1)
_side = st.integers(1, 25).flatmap(
    lambda n: st.integers(1, 4).flatmap(
        lambda k: st.tuples(
            st.just(k),
            *(
                st.lists(st.lists(_reward, max_size=k), min_size=n, max_size=n).map(
                    lambda rows: {str(i): row for i, row in enumerate(rows)}
                )
                for _ in range(2)
            ),
        )
    )
)


@settings(max_examples=150, deadline=None)
@given(_side)
def test_intervals_hold_their_estimate_stay_in_range_and_have_width(
    case: tuple[int, dict[str, list[float]], dict[str, list[float]]],
) -> None:
    samples, initial, selected = case
    score = score_of(initial, samples)
    assert 0 <= score.low <= score.score <= score.high <= 1 and score.low < score.high
    delta = paired_delta(initial, selected, samples)
    assert -1 <= delta.low <= delta.value <= delta.high <= 1 and delta.low < delta.high
    back = paired_delta(selected, initial, samples)
    assert (back.low, back.high) == pytest.approx((-delta.high, -delta.low), abs=1e-9)


def test_mcnemar_exact() -> None:
    assert mcnemar_exact(0, 0) == 1.0
    assert mcnemar_exact(5, 0) == pytest.approx(2 / 32)
    assert mcnemar_exact(9, 2) == mcnemar_exact(2, 9) == pytest.approx(0.0654296875)
    assert mcnemar_exact(40, 40) == 1.0


def test_sign_flips_equal_mcnemar_for_one_sample_and_do_not_lose_ties() -> None:
    assert sign_flip_p([1.0] * 9 + [-1.0] * 2 + [0.0] * 20) == pytest.approx(mcnemar_exact(9, 2))
    assert sign_flip_p([0.0] * 5) == 1.0
    # 2/3 against 1/3 + 1/3: a tie that rounding must not break
    assert sign_flip_p([2 / 3, -1 / 3, -1 / 3]) == 1.0


def test_sign_flips_by_chance_agree_with_the_exact_ones_and_repeat() -> None:
    chance = random.Random(3)
    differences = [chance.uniform(-0.4, 0.6) for _ in range(40)]
    first = sign_flip_p(differences, draws=4000)
    assert first == sign_flip_p(differences, draws=4000)
    coarse = sign_flip_p([round(value * 8) / 8 for value in differences])
    assert first == pytest.approx(coarse, abs=0.03)
    assert 0 < sign_flip_p([0.9 + i / 1000 for i in range(40)], draws=500) <= 1 / 100
