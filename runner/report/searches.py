"""What a set of searches has in common: how many improved, and what became of those that went on after their peak.

The statistics of the RSIBench-Data protocol. A setting is one search: the scores of its attempts in order, None (or a
number that is none) where an attempt was invalid. Total: no attempt, one attempt and ties all have a place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from runner.record.naming import Names, names_of
from runner.report.figures_of_merit import after_peak
from runner.report.gather import REFERENCE, Summary
from runner.report.statistics import Fraction, fraction, median

_DEFAULT = names_of("vibetraining")


@dataclass(frozen=True, slots=True)
class Setting:
    """One search on one benchmark. ``initial`` is P0 on the same split, where it was scored."""

    benchmark: str
    attempts: tuple[float | None, ...]
    initial: float | None = None
    money: float | None = None
    hours: float | None = None

    @property
    def scores(self) -> list[float]:
        """The valid scores, in order."""
        return [value for value in self.attempts if value is not None and math.isfinite(value)]


@dataclass(frozen=True, slots=True)
class Searches:
    """The table. ``improved``: the peak above the first valid score, of the searches with a valid score. ``below``
    and ``recovered``: where the last valid score stands against the peak, of the searches that went on after it.
    ``gains``: by benchmark, the median of peak − first valid and of peak − P0. ``called``: what the scores are."""

    settings: int
    improved: Fraction
    below: Fraction
    recovered: Fraction
    valid: float | None
    money: float | None
    hours: float | None
    gains: tuple[tuple[str, float | None, float | None], ...]
    called: Names = _DEFAULT


def tables(runs: Iterable[Summary]) -> list[Searches]:
    """One table for the searches of each protocol: their attempts are not counted alike."""
    by_protocol: dict[str, list[Summary]] = {}
    for run in runs:
        by_protocol.setdefault(run.benchmark.protocol, []).append(run)
    made = (
        replace(searches(settings_of(mine)), called=names_of(protocol))
        for protocol, mine in sorted(by_protocol.items(), reverse=True)
    )
    return [table for table in made if table.settings]


def searches(settings: Sequence[Setting]) -> Searches:
    """The table of a set of searches."""
    scored = [scores for setting in settings if (scores := setting.scores)]
    ends = [after_peak(scores) for scores in scored]
    went_on = sum(end != "ends at peak" for end in ends)
    return Searches(
        settings=len(settings),
        improved=fraction(sum(max(scores) > scores[0] for scores in scored), len(scored)),
        below=fraction(ends.count("ends below"), went_on),
        recovered=fraction(ends.count("recovers"), went_on),
        valid=median([float(len(setting.scores)) for setting in settings]),
        money=median([setting.money for setting in settings if setting.money is not None]),
        hours=median([setting.hours for setting in settings if setting.hours is not None]),
        gains=tuple(_gains(settings)),
    )


def _gains(settings: Sequence[Setting]) -> Iterator[tuple[str, float | None, float | None]]:
    for name in dict.fromkeys(setting.benchmark for setting in settings):
        mine = [setting for setting in settings if setting.benchmark == name and setting.scores]
        over_first = [max(setting.scores) - setting.scores[0] for setting in mine]
        over_initial = [max(s.scores) - s.initial for s in mine if s.initial is not None]
        yield name, median(over_first), median(over_initial)


def settings_of(runs: Iterable[Summary]) -> list[Setting]:
    """Each run with a search as a setting: P0 and its candidates on validation, invalid attempts counted as such."""
    found = []
    for run in runs:
        if run.system.agent == REFERENCE:
            continue
        scores: list[float | None] = [score for _, score in run.points]
        invalid: list[float | None] = [None] * (run.merit.attempts - len(scores))
        found.append(
            Setting(
                benchmark=f"{run.benchmark.task}/{run.benchmark.problems}",
                attempts=tuple(scores + invalid),
                initial=run.merit.initial,
                money=run.money,
                hours=run.wall_s / 3600,
            )
        )
    return found
