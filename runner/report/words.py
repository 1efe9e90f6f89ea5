"""What a comparison says, in words: the same in Markdown, HTML and the terminal. Plain, clean text; the split of
every number is named."""

from __future__ import annotations

from collections.abc import Iterator

from grader.protocol import Delta
from runner.record.describe import count, delta_text, foreign, number
from runner.record.naming import names
from runner.record.pairs import Pair
from runner.record.state import INITIAL, validation_of
from runner.report.gather import REFERENCE
from runner.report.statistics import Fraction, Spread, unpaired_delta
from runner.report.story import Story

_SOME = 8


def p_text(p: float) -> str:
    """``p = 0.034``, ``p < 0.001``."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.0995 else f"p = {p:.2f}"


def name_of(candidate: str) -> str:
    """P0, or the candidate's id."""
    return "P0" if candidate == INITIAL else foreign(candidate, 20)


def verdict_text(pair: Pair, other: str) -> str:
    """``within noise of c03``, ``better than P0``."""
    link = "of" if pair.verdict == "within noise" else "than"
    return f"{pair.verdict} {link} {name_of(other)}"


def flips_text(pair: Pair) -> str:
    """``43 gained, 1 lost of 108``: problems whose mean rose and fell."""
    return f"{count(len(pair.gained))} gained, {count(len(pair.lost))} lost of {count(pair.n)}"


def pair_text(pair: Pair, other: str) -> str:
    """One comparison: ``+39.8 [+29.9, +49.6] points, 43 gained, 1 lost of 108, p < 0.001 (…): better than c01``."""
    test = f"{p_text(pair.p)} ({pair.test})"
    return f"{delta_text(pair.delta)} points, {flips_text(pair)}, {test}: {verdict_text(pair, other)}"


def spread_text(spread: Spread | None, *, points: bool = False) -> str:
    """A mean over runs: ``42.1 ± 1.3 (n=3)``; ± is the standard error, absent for one run."""
    if spread is None:
        return "–"
    mean = delta_text(spread.mean) if points else number(spread.mean * 100)
    error = f" ± {number(spread.sem * 100)}" if spread.sem is not None else ""
    return f"{mean}{error} (n={count(spread.n)})"


def spread_interval(spread: Spread | None) -> str:
    """``[39.2, 45.0]``, the 95 % t-interval over runs; – for one run."""
    if spread is None or spread.low is None or spread.high is None:
        return "–"
    return f"[{number(spread.low * 100)}, {number(spread.high * 100)}]"


def fraction_text(fraction: Fraction) -> str:
    """``14/24 = 58 % [39, 76]``; ``0/0`` has no value."""
    of = f"{count(fraction.part)}/{count(fraction.whole)}"
    if fraction.value is None:
        return of
    return f"{of} = {fraction.value * 100:.0f} % [{fraction.low * 100:.0f}, {fraction.high * 100:.0f}]"


def conclusion(story: Story) -> str:
    """What the run shows, in one sentence."""
    hidden, merit, called = story.state.hidden, story.merit, names(story.state)
    if hidden is None:
        return f"No {called.test}: the run has no result yet."
    if story.state.selected is not None and story.state.selected.policy == REFERENCE:
        return "A reference: a fixed system, evaluated as it is. Nobody searched, so there is no gain."
    if hidden.candidate == INITIAL:
        return "The initial system itself was selected: no gain by definition."
    holds_zero = hidden.delta.low <= 0 <= hidden.delta.high
    name = foreign(merit.selected_id or "", 20)
    if holds_zero:
        return f"On {called.problems} no difference between {name} and P0 can be told from noise."
    return f"On {called.problems} {name} is {'better' if hidden.delta.value > 0 else 'worse'} than P0."


def sureness(story: Story) -> Iterator[str]:
    """How sure the result is, one line each: the hidden comparison, the validation ones, and the luck of the choice."""
    state, selected = story.state, story.merit.selected_id
    called = names(state)
    if story.hidden is not None:
        yield f"{called.COUNTED}, {name_of(selected or '')} against P0: {pair_text(story.hidden, INITIAL)}"
    elif state.hidden is not None:
        difference = f"{delta_text(state.hidden.delta)} points, paired interval"
        yield f"{called.COUNTED}, {name_of(selected or '')} against P0: {difference}"
    mine = next((item for item in story.decisions if item.selected), None)
    if mine is not None and mine.to_initial is not None:
        yield f"{called.SEEN}, {name_of(mine.candidate.id)} against P0: {pair_text(mine.to_initial, INITIAL)}"
    yield _looks(story)
    if story.rivals:
        more = f" and {len(story.rivals) - _SOME} more" if len(story.rivals) > _SOME else ""
        yield f"{called.SEEN} cannot tell the selected from {', '.join(map(name_of, story.rivals[:_SOME]))}{more}"
    on_validation = validation_of(state, selected)
    if state.hidden is not None and on_validation is not None:
        moved: Delta = unpaired_delta(on_validation, state.hidden.selected)
        others = "the same problems, other draws: not paired" if called.same else "other problems: not paired"
        yield f"transfer of the selected, {called.COUNTED} − {called.SEEN}: {delta_text(moved)} points ({others})"


def _looks(story: Story) -> str:
    called = names(story.state)
    spent = f"{called.looks} spent: {count(story.merit.attempts)}, valid: {count(story.merit.valid)}"
    if story.merit.valid < 2:
        return spent
    if story.optimism is None:
        return f"{spent}; the best of several is too high by the luck of being picked"
    luck = f"about {number(story.optimism.value * 100)} points (bootstrap of the choice)"
    return f"{spent}; picking the best flatters its {called.SEEN} score by {luck}"
