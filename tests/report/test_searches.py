"""The table of searches: 24 settings with known fractions, and every edge."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from journal_samples import candidate, validated
from report_kit import Made, a_good_run, flags

from runner.record import events as ev
from runner.report.gather import summaries
from runner.report.searches import Setting, searches, settings_of


def settings_24() -> list[Setting]:
    """24 searches: 14 improve over their first valid attempt; one ends at its peak, and of the 23 that go on after it
    18 end below and 5 recover it."""
    improved_below = [Setting("aime", (0.2, 0.5, None, 0.3)) for _ in range(10)]
    improved_recovered = [Setting("gpqa", (0.2, 0.5, 0.4, 0.5)) for _ in range(3)]
    improved_at_peak = [Setting("gpqa", (0.2, None, 0.4))]
    flat_below = [Setting("aime", (0.4, 0.3, 0.2)) for _ in range(8)]
    flat_recovered = [Setting("aime", (math.nan, 0.4, 0.1, 0.4)) for _ in range(2)]
    return [*improved_below, *improved_recovered, *improved_at_peak, *flat_below, *flat_recovered]


def test_the_table_of_24_settings() -> None:
    table = searches(settings_24())
    assert (table.improved.part, table.improved.whole) == (14, 24)
    assert (table.below.part, table.below.whole) == (18, 23)
    assert (table.recovered.part, table.recovered.whole) == (5, 23)
    assert table.settings == 24
    assert table.valid == 3.0
    assert {name for name, *_ in table.gains} == {"aime", "gpqa"}


@pytest.mark.parametrize(
    ("attempts", "improved", "below", "recovered"),
    [
        ((), (0, 0), (0, 0), (0, 0)),
        ((None, math.nan, math.inf), (0, 0), (0, 0), (0, 0)),
        ((0.3,), (0, 1), (0, 0), (0, 0)),
        ((0.3, 0.3, 0.3), (0, 1), (0, 1), (1, 1)),  # all ties: went on, and stands at the peak again
        ((0.5, 0.2), (0, 1), (1, 1), (0, 1)),  # peak first
        ((0.2, None, 0.5), (1, 1), (0, 0), (0, 0)),  # peak last
        ((0.2, 0.5, None), (1, 1), (0, 0), (0, 0)),  # only invalid attempts after the peak
    ],
)
def test_every_edge_has_a_place(
    attempts: tuple[float | None, ...],
    improved: tuple[int, int],
    below: tuple[int, int],
    recovered: tuple[int, int],
) -> None:
    table = searches([Setting("aime", attempts)])
    assert (table.improved.part, table.improved.whole) == improved
    assert (table.below.part, table.below.whole) == below
    assert (table.recovered.part, table.recovered.whole) == recovered


def test_of_nothing_there_is_nothing() -> None:
    table = searches([])
    assert (table.settings, table.valid, table.money, table.hours, table.gains) == (0, None, None, None, ())


def test_gains_are_medians_by_benchmark() -> None:
    table = searches([
        Setting("aime", (0.1, 0.4), initial=0.2, money=1.0, hours=2.0),
        Setting("aime", (0.1, 0.2), initial=None, money=None, hours=4.0),
        Setting("gpqa", (None,), initial=0.3, money=3.0, hours=6.0),
    ])  # fmt: skip
    assert table.gains[0] == ("aime", pytest.approx(0.2), pytest.approx(0.2))
    assert table.gains[1] == ("gpqa", None, None)
    assert (table.money, table.hours, table.valid) == (2.0, 4.0, 2.0)


def test_runs_become_settings(tmp_path: Path) -> None:
    run = a_good_run(tmp_path)
    (setting,) = settings_of(summaries([run]))
    assert setting.scores == pytest.approx([0.15, 0.8, 0.0])
    assert len(setting.attempts) == 4 and setting.initial == pytest.approx(0.1)
    assert (setting.money, setting.hours) == (0.5, pytest.approx(100 / 3600))


def test_a_candidate_validated_twice_is_one_attempt_and_a_missing_p0_is_none(tmp_path: Path) -> None:
    made = Made(tmp_path)
    again = validated("j9", "c07", "e9", 0.9, repeat=True)
    made.payloads += [candidate("c07", None, "m00", "data"), validated("j8", "c07", "e8", 0.25), again]
    (setting,) = settings_of(summaries([made.write()]))
    assert setting.scores == [0.25]
    assert setting.initial is None


def test_a_selection_that_was_never_validated_still_counts_as_a_search(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.validate(flags("10"))
    failed = made.fail()
    made.payloads.append(ev.Selected(candidate=failed, by="agent", final=True))
    (summary,) = summaries([made.write()])
    assert (summary.selected, summary.merit.regret, summary.tested) == (None, None, False)
    assert searches(settings_of([summary])).improved.whole == 0


_attempts = st.lists(st.none() | st.floats(0, 1) | st.just(math.nan), max_size=8).map(tuple)


@given(st.lists(_attempts, max_size=12))
def test_the_table_always_adds_up(every: list[tuple[float | None, ...]]) -> None:
    table = searches([Setting("aime", attempts) for attempts in every])
    assert table.below.part + table.recovered.part == table.below.whole == table.recovered.whole
    assert table.improved.part <= table.improved.whole <= table.settings
    assert table.below.whole <= table.improved.whole
