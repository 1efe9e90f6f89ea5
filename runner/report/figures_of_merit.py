"""What a search was worth, from its state alone. The definitions that every report and comparison uses.

``v1 … vn`` are the valid validations of the agent's candidates in the order in which they became valid; P0 is not one
of them. All scores are in 0…1, all times in budget seconds. Whatever is missing makes a figure None, never an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from runner.record.describe import waiting_share
from runner.record.events import Delta
from runner.record.naming import names
from runner.record.state import INITIAL, CandidateState, RunState, chosen, valid, validation_of
from tasks.spec import COMPONENTS, Component

AfterPeak = Literal["ends at peak", "recovers", "ends below"]


@dataclass(frozen=True, slots=True)
class Merit:
    """The figures of one run.

    ``peak`` is the first argmax of v. ``after_peak``: vn is the peak itself, equals it again after a fall, or lies
    below it. ``attempts``: validations that were spent; under rsibench-data also trainings that made no model.
    ``regret``: the best of P0 and v, minus the selected, on validation; never negative. ``transfer``: hidden minus
    validation of the selected. ``designs``: candidates that moved each component.
    """

    initial: float | None
    first: float | None
    first_id: str | None
    peak: float | None
    peak_id: str | None
    last: float | None
    attempts: int
    valid: int
    gain_over_initial: float | None
    gain_over_first: float | None
    after_peak: AfterPeak | None
    seconds_to_first_improvement: float | None
    seconds_to_peak: float | None
    waiting_share: float | None
    selected_id: str | None
    regret: float | None
    transfer: float | None
    delta_test: Delta | None
    designs: Mapping[Component, int]


def measure(state: RunState) -> Merit:
    """The figures of ``state``; total, also over runs that never got anywhere."""
    tried = valid(state, initial=False)
    scores = [candidate.validation.score for candidate in tried if candidate.validation is not None]
    initial = _score(state, INITIAL)
    peak = max(scores, default=None)
    top = tried[scores.index(peak)] if peak is not None else None
    selected = chosen(state)
    on_validation = _score(state, selected)
    return Merit(
        initial=initial,
        first=scores[0] if scores else None,
        first_id=tried[0].id if tried else None,
        peak=peak,
        peak_id=top.id if top else None,
        last=scores[-1] if scores else None,
        attempts=_attempts(state),
        valid=len(tried),
        gain_over_initial=_minus(peak, initial),
        gain_over_first=_minus(peak, scores[0] if scores else None),
        after_peak=after_peak(scores),
        seconds_to_first_improvement=_first_improvement(tried, initial),
        seconds_to_peak=top.validated_el if top else None,
        waiting_share=waiting_share(state.budget.split),
        selected_id=selected,
        regret=_minus(max((x for x in (peak, initial) if x is not None), default=None), on_validation),
        transfer=_minus(state.hidden.selected.score if state.hidden else None, on_validation),
        delta_test=state.hidden.delta if state.hidden else None,
        designs=designs(state),
    )


def after_peak(scores: list[float]) -> AfterPeak | None:
    """What the search did after its first highest score."""
    if not scores:
        return None
    peak = max(scores)
    if scores.index(peak) == len(scores) - 1:
        return "ends at peak"
    return "recovers" if scores[-1] == peak else "ends below"


def designs(state: RunState) -> dict[Component, int]:
    """How many candidates moved each component against their parent."""
    made = [candidate for candidate in state.candidates.values() if candidate.id != INITIAL]
    return {component: sum(component in item.components for item in made) for component in COMPONENTS}


def _score(state: RunState, candidate: str | None) -> float | None:
    score = validation_of(state, candidate)
    return score.score if score else None


def _minus(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _attempts(state: RunState) -> int:
    if names(state).counts_trainings:
        return len(state.trials.attempts)
    return sum(map(_was_tried, state.candidates.values()))


def _was_tried(candidate: CandidateState) -> bool:
    return candidate.id != INITIAL and candidate.status not in ("created", "validating")


def _first_improvement(tried: list[CandidateState], initial: float | None) -> float | None:
    if initial is None:
        return None
    better = (item for item in tried if item.validation is not None and item.validation.score > initial)
    return next((item.validated_el for item in better), None)
