"""Tests, intervals and means: by hand, against SciPy, and by simulation of what they promise."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from grader.intervals import mcnemar_exact, paired_delta, score_of, sign_flip_p, t95, tango, wilson
from grader.protocol import Score
from runner.record.pairs import paired
from runner.report.statistics import fraction, median, pareto, selection_optimism, spread, unpaired_delta

Rewards = dict[str, list[float]]


def solved(*flags: int) -> Rewards:
    return {f"p{i}": [float(flag)] for i, flag in enumerate(flags)}


# -- by hand ---------------------------------------------------------------------------------------------------------


def test_a_paired_comparison_by_hand() -> None:
    pair = paired(solved(0, 0, 0, 0, 0, 1, 1), solved(1, 1, 1, 1, 1, 1, 0), 1)
    assert pair.gained == ("p0", "p1", "p2", "p3", "p4") and pair.lost == ("p6",)
    assert pair.delta.value == pytest.approx(4 / 7)
    assert pair.p == pytest.approx(2 * (1 + 6) / 64)  # one or none of six discordant pairs against
    assert (pair.test, pair.verdict) == ("McNemar, exact", "within noise")


def test_samples_are_compared_by_sign_flips_and_what_is_missing_counts_as_zero() -> None:
    before = {"a": [0.0, 0.0], "b": [1.0, 0.0], "c": [1.0, 1.0]}
    after = {"a": [1.0], "b": [1.0, 1.0], "c": [1.0, 1.0]}
    pair = paired(before, after, 2)
    assert (pair.gained, pair.lost, pair.test) == (("a", "b"), (), "sign flips")
    assert pair.p == pytest.approx(0.5)  # ± ½ ± ½: two of four flips are as far out


def test_the_same_system_twice_is_no_difference() -> None:
    pair = paired(solved(1, 0, 1), solved(1, 0, 1), 1)
    assert (pair.p, pair.verdict, pair.delta.value) == (1.0, "within noise", 0.0)
    assert pair.delta.low < 0 < pair.delta.high


def test_a_great_gain_is_better_and_its_reverse_worse() -> None:
    low, high = solved(*[0] * 10), solved(*[1] * 10)
    assert paired(low, high, 1).verdict == "better"
    assert paired(high, low, 1).verdict == "worse"


def test_other_problems_cannot_be_paired() -> None:
    with pytest.raises(ValueError):
        paired(solved(1, 0), {"q": [1.0], "p0": [0.0]}, 1)


def test_unpaired_difference_agrees_with_newcombe() -> None:
    # Newcombe 1998 (Stat. Med. 17: 873), method 10, 56/70 against 48/80
    before, after = (Score(score=k / n, low=wilson(k / n, n)[0], high=wilson(k / n, n)[1], n=n, samples=1)
                     for k, n in ((48, 80), (56, 70)))  # fmt: skip
    delta = unpaired_delta(before, after)
    assert (delta.low, delta.high) == pytest.approx((0.0524, 0.3339), abs=5e-4)


def test_mean_and_error_over_runs() -> None:
    of_three = spread([0.1, 0.2, 0.3])
    assert of_three is not None and of_three.sem is not None
    assert (of_three.mean, of_three.sem) == pytest.approx((0.2, 0.1 / math.sqrt(3)))
    assert (of_three.low, of_three.high) == pytest.approx((0.2 - 4.3027 * 0.057735, 0.2 + 4.3027 * 0.057735), abs=1e-4)
    one = spread([0.4, math.nan])
    assert one is not None and (one.n, one.mean, one.sem, one.low) == (1, 0.4, None, None)
    assert spread([]) is spread([math.inf]) is None


def test_fractions_medians_and_the_pareto_set() -> None:
    assert fraction(14, 24).value == pytest.approx(14 / 24)
    assert (fraction(14, 24).low, fraction(14, 24).high) == pytest.approx((0.3883, 0.7553), abs=5e-4)
    assert (fraction(0, 0).value, fraction(0, 0).low, fraction(0, 0).high) == (None, 0.0, 1.0)
    assert median([3.0, 1.0, math.nan, 2.0]) == 2.0
    assert median([1.0, 2.0]) == 1.5
    assert median([]) is None
    points = {"cheap": (1.0, 0.2), "dear": (9.0, 0.9), "beaten": (9.5, 0.5), "twin": (1.0, 0.2), "nan": (0.0, math.nan)}
    assert pareto(points) == ("cheap", "twin", "dear")


def test_the_luck_of_the_best_needs_two_candidates_on_the_same_problems() -> None:
    assert selection_optimism({"c01": solved(1, 0)}, 1) is None
    assert selection_optimism({"c01": solved(1, 0), "c02": {"q": [1.0]}}, 1) is None
    assert selection_optimism({}, 1) is None


def test_the_luck_of_the_best_is_nothing_when_one_wins_on_every_draw() -> None:
    found = selection_optimism({"c01": solved(*[0] * 50), "c02": solved(*[1] * 50)}, 1)
    assert found is not None and (found.looks, found.value) == (2, 0.0)


# -- against SciPy ---------------------------------------------------------------------------------------------------


def test_mcnemar_is_scipys_binomial_test() -> None:
    for gained, lost in itertools.product(range(14), repeat=2):
        if gained + lost:
            assert mcnemar_exact(gained, lost) == pytest.approx(stats.binomtest(gained, gained + lost).pvalue)


def test_sign_flips_are_scipys_permutation_test() -> None:
    chance = np.random.default_rng(5)
    for n in (3, 6, 9):
        differences = np.round(chance.normal(0.1, 0.4, n) * 4) / 4
        exact = stats.permutation_test(
            (differences,), np.sum, permutation_type="samples", alternative="two-sided", n_resamples=10_000
        )
        assert sign_flip_p(list(differences)) == pytest.approx(min(1.0, exact.pvalue), abs=1e-9)


def test_wilson_and_t_are_scipys() -> None:
    for k, n in ((0, 30), (3, 104), (104, 208), (208, 208)):
        interval = stats.binomtest(k, n).proportion_ci(method="wilson")
        assert wilson(k / n, n) == pytest.approx((interval.low, interval.high), abs=1e-9)
    for freedom in (1, 2, 3, 7, 30, 207):
        assert t95(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), abs=1e-3)


# -- what they promise -----------------------------------------------------------------------------------------------


def enough(p: float, n: int) -> bool:
    return min(n * p, n * (1 - p)) >= 5


@pytest.mark.parametrize(("p", "n"), list(itertools.product((0.02, 0.1, 0.5, 0.9), (30, 104, 208))))
def test_the_interval_of_one_sample_covers_exactly_summed(p: float, n: int) -> None:
    """Not drawn but summed over every outcome, each with its chance."""
    inside = 0.0
    for k in range(n + 1):
        score = score_of(solved(*[1] * k, *[0] * (n - k)), 1)
        assert score.low < score.high
        inside += stats.binom.pmf(k, n, p) * (score.low <= p <= score.high)
    assert inside >= (0.93 if enough(p, n) else 0.90)


def drawn(p: float, n: int, samples: int, between: float, draws: int, seed: int) -> np.ndarray:
    """How many samples of each problem were solved; ``between``: the share of variance between problems."""
    chance = np.random.default_rng(seed)
    rates = chance.beta(p * (1 / between - 1), (1 - p) * (1 / between - 1), (draws, n))
    return chance.binomial(samples, rates)


def counted(solved_samples: np.ndarray) -> Iterator[tuple[tuple[int, ...], int]]:
    """Different outcomes and how often each was drawn: which problem it was does not matter."""
    yield from Counter(map(tuple, np.sort(solved_samples, axis=-1).tolist())).items()


def coverage(p: float, n: int, samples: int, between: float, draws: int) -> float:
    inside = 0
    for outcome, times in counted(drawn(p, n, samples, between, draws, seed=n + samples)):
        rewards = {str(i): [1.0] * k for i, k in enumerate(outcome)}
        score = score_of(rewards, samples)
        assert score.low < score.high
        inside += times * (score.low <= p <= score.high)
    return inside / draws


SPREADS = (0.1, 0.5, 0.9)


@pytest.mark.parametrize(("p", "between"), list(itertools.product((0.02, 0.1, 0.5, 0.9), SPREADS)))
def test_the_interval_of_four_samples_covers(p: float, between: float) -> None:
    assert coverage(p, 30, 4, between, 1500) >= (0.915 if enough(p, 30) else 0.885)  # less 2 standard errors of 1500


@pytest.mark.long
@pytest.mark.parametrize(("p", "between"), list(itertools.product((0.02, 0.1, 0.5, 0.9), SPREADS)))
def test_the_interval_of_four_samples_covers_in_20000_draws(p: float, between: float) -> None:
    assert coverage(p, 30, 4, between, 20_000) >= (0.93 if enough(p, 30) else 0.90)


def false_positives(p: float, n: int, samples: int, draws: int) -> tuple[float, float]:
    """How often the test finds, and the interval of the difference excludes, what is not there."""
    chance = np.random.default_rng(n + samples)
    rates = chance.beta(p, 1 - p, (draws, n))  # half of the variance lies between problems
    before, after = chance.binomial(samples, rates), chance.binomial(samples, rates)
    keys = [str(i) for i in range(n)]
    wrong = outside = 0
    for old, new in zip(before.tolist(), after.tolist(), strict=True):
        pair = paired(
            {key: [1.0] * k for key, k in zip(keys, old, strict=True)},
            {key: [1.0] * k for key, k in zip(keys, new, strict=True)},
            samples,
        )
        wrong += pair.p < 0.05
        outside += not pair.delta.low <= 0 <= pair.delta.high
    return wrong / draws, outside / draws


SIZES = ((30, 4), (104, 1), (208, 1))


@pytest.mark.parametrize(("p", "size"), list(itertools.product((0.02, 0.1, 0.5, 0.9), SIZES)))
def test_paired_tests_rarely_find_what_is_not_there(p: float, size: tuple[int, int]) -> None:
    wrong, outside = false_positives(p, *size, draws=400)
    assert wrong <= 0.055 + 2 * math.sqrt(0.05 * 0.95 / 400)
    assert outside <= 0.07 + 2 * math.sqrt(0.05 * 0.95 / 400)


@pytest.mark.long
@pytest.mark.parametrize(("p", "size"), list(itertools.product((0.02, 0.1, 0.5, 0.9), SIZES)))
def test_paired_tests_rarely_find_what_is_not_there_in_20000_draws(p: float, size: tuple[int, int]) -> None:
    wrong, outside = false_positives(p, *size, draws=20_000)
    assert wrong <= 0.055
    assert outside <= 0.07


def test_mcnemar_never_exceeds_its_level_summed_exactly() -> None:
    for discordant in [*range(1, 40), 60, 90, 119]:
        wrong = sum(stats.binom.pmf(k, discordant, 0.5) for k in range(discordant + 1)
                    if mcnemar_exact(k, discordant - k) < 0.05)  # fmt: skip
        assert wrong <= 0.05


def test_the_luck_of_the_best_of_equals_is_found_for_the_most_part() -> None:
    """Ten equal candidates on 104 problems: the true luck of the best, and the mean of what the bootstrap says."""
    chance, p, n, k = np.random.default_rng(9), 0.4, 104, 10
    true: list[float] = []
    found: list[float] = []
    for run in range(16):
        rows = chance.binomial(1, p, (k, n)).tolist()
        true.append(max(sum(row) / n for row in rows) - p)
        optimism = selection_optimism({f"c{i}": solved(*row) for i, row in enumerate(rows)}, 1, seed=run)
        assert optimism is not None
        found.append(optimism.value)
    assert 0.55 <= np.mean(found) / np.mean(true) <= 0.95


_binary = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=60)


@settings(max_examples=150, deadline=None)
@given(_binary)
def test_a_pair_reversed_is_its_mirror(sides: list[tuple[int, int]]) -> None:
    before, after = solved(*(a for a, _ in sides)), solved(*(b for _, b in sides))
    there, back = paired(before, after, 1), paired(after, before, 1)
    assert (there.p, there.gained, there.lost) == (back.p, back.lost, back.gained)
    assert there.delta.value == pytest.approx(-back.delta.value)
    assert there.delta.low <= there.delta.value <= there.delta.high
    assert 0 < there.p <= 1


def of(solved_of: tuple[int, int]) -> Score:
    n, k = solved_of
    return score_of(solved(*[1] * k, *[0] * (n - k)), 1)


_score = st.integers(1, 300).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))).map(of)


@settings(max_examples=100, deadline=None)
@given(_score, _score)
def test_an_unpaired_difference_holds_its_estimate(before: Score, after: Score) -> None:
    delta = unpaired_delta(before, after)
    assert -1 <= delta.low <= delta.value <= delta.high <= 1
    assert delta.low < delta.high


def test_the_interval_of_a_difference_agrees_with_its_test_mostly() -> None:
    """Tango's interval and McNemar's exact test are different methods: the exact test is the stricter one."""
    for gained, lost in itertools.product(range(12), repeat=2):
        low, high = tango(gained, lost, 104)
        if mcnemar_exact(gained, lost) < 0.05:
            assert not low <= 0 <= high
    assert paired_delta(solved(0, 1), solved(0, 1), 1).value == 0
