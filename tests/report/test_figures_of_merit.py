"""The definitions of a run's figures, on the edges."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_samples import candidate, score, validated, whole_run

from runner.record import events as ev
from runner.record.events import Event, Payload
from runner.record.fold import fold
from runner.record.state import RunState
from runner.report.card import card
from runner.report.figures_of_merit import after_peak, measure
from runner.report.markdown import markdown


def folded(*payloads: Payload) -> RunState:
    """The state after the payloads, one second apart."""
    state = RunState()
    for n, payload in enumerate(payloads, 1):
        state = fold(state, Event(v=1, seq=n, t=float(n), el=float(n), prev="", payload=payload))
    return state


def search(initial: float | None, *scores: float | None, selected: str | None = None) -> RunState:
    """A search whose candidates c01, c02, … have these validation scores; None is a failed validation."""
    said: list[Payload] = [] if initial is None else [validated("j0", "c00", "e0", initial)]
    for n, value in enumerate(scores, 1):
        said.append(candidate(f"c{n:02d}", "c00", "m00", "harness"))
        said.append(validated(f"j{n}", f"c{n:02d}", f"e{n}", value, "ok" if value is not None else "failed"))
    if selected is not None:
        said.append(ev.Selected(candidate=selected, by="agent", final=True))
    return folded(*said)


def test_a_plain_search() -> None:
    merit = measure(search(0.3, 0.2, None, 0.5, 0.4, selected="c04"))
    assert (merit.initial, merit.first, merit.peak, merit.last) == (0.3, 0.2, 0.5, 0.4)
    assert (merit.first_id, merit.peak_id, merit.selected_id) == ("c01", "c03", "c04")
    assert (merit.attempts, merit.valid) == (4, 3)
    assert merit.gain_over_initial == pytest.approx(0.2)
    assert merit.gain_over_first == pytest.approx(0.3)
    assert merit.after_peak == "ends below"
    assert merit.regret == pytest.approx(0.1)
    assert merit.seconds_to_first_improvement == merit.seconds_to_peak == 7.0
    assert merit.designs == {"data": 0, "trainer": 0, "harness": 4}


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ([], None),
        ([0.5], "ends at peak"),
        ([0.1, 0.5], "ends at peak"),
        ([0.5, 0.1], "ends below"),
        ([0.5, 0.1, 0.5], "recovers"),
        ([0.5, 0.5], "recovers"),
    ],
)
def test_after_the_peak(scores: list[float], words: str | None) -> None:
    assert after_peak(scores) == words


def test_no_valid_attempt() -> None:
    merit = measure(search(0.3, None, None))
    assert (merit.peak, merit.first, merit.after_peak, merit.gain_over_initial) == (None, None, None, None)
    assert (merit.attempts, merit.valid) == (2, 0)


def test_without_p0_there_are_no_gains_over_it() -> None:
    merit = measure(search(None, 0.2, 0.4, selected="c02"))
    assert merit.gain_over_initial is None
    assert merit.seconds_to_first_improvement is None
    assert merit.gain_over_first == pytest.approx(0.2)
    assert merit.regret == 0.0


def test_of_equal_peaks_the_first_is_the_peak() -> None:
    assert measure(search(0.3, 0.4, 0.4)).peak_id == "c01"


def test_equal_to_p0_is_no_improvement() -> None:
    merit = measure(search(0.3, 0.3, 0.2))
    assert merit.seconds_to_first_improvement is None
    assert merit.gain_over_initial == 0.0


def test_p0_may_be_selected_and_may_have_been_best() -> None:
    assert measure(search(0.3, 0.2, selected="c00")).regret == 0.0
    assert measure(search(0.3, 0.2, selected="c01")).regret == pytest.approx(0.1)


def test_a_selection_that_was_never_validated_has_no_regret_and_no_transfer() -> None:
    merit = measure(search(0.3, None, selected="c01"))
    assert (merit.selected_id, merit.regret, merit.transfer) == ("c01", None, None)


def test_transfer_and_the_hidden_difference() -> None:
    state = folded(*(payload for payload, _, _ in whole_run()))
    merit = measure(state)
    assert merit.transfer == pytest.approx(0.515 - 0.537)
    assert merit.delta_test is not None
    assert merit.delta_test.value == pytest.approx(0.215)
    assert merit.waiting_share == pytest.approx(732 / 780)


def test_an_empty_run_has_no_figures_and_still_a_card() -> None:
    merit = measure(RunState())
    assert (merit.initial, merit.selected_id, merit.waiting_share) == (None, None, None)
    assert "not started" in card(RunState())
    assert "not started" in markdown(RunState())


optional = st.none() | st.floats(0, 1)


@settings(max_examples=150, deadline=None)
@given(optional, st.lists(optional, max_size=6), st.none() | st.integers(0, 7), st.booleans())
def test_figures_card_and_report_are_total(
    initial: float | None, scores: list[float | None], choice: int | None, tested: bool
) -> None:
    state = search(initial, *scores, selected=None if choice is None else f"c{choice:02d}")
    if tested and choice is not None:
        delta = ev.Delta(value=0.1, low=0.0, high=0.2)
        result = ev.HiddenFinished(
            candidate=f"c{choice:02d}", initial=score(0.3), selected=score(0.4), delta=delta, status="candidate_crash"
        )
        state = fold(state, Event(v=1, seq=999, t=999.0, el=999.0, prev="", payload=result))
    merit = measure(state)
    assert merit.regret is None or merit.regret >= 0
    assert merit.valid <= merit.attempts
    assert card(state)
    assert markdown(state)
