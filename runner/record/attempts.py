"""The attempts of a search, in order: each valid or invalid. What the events of jobs say, counted; nothing of its own.

An attempt that made no model, or whose score never came or came late, is invalid. A training that was cut or cancelled
and a result that was handed out again are no attempts. P0 is none either.
"""

from __future__ import annotations

from dataclasses import dataclass

from runner.record.events import TrainFinished, ValidationFinished

_INITIAL = "c00"
_MADE_NOTHING = ("failed", "refused")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt, by the job that decided it. ``candidate`` None: there never was one. ``why`` it is invalid."""

    n: int
    job: str
    candidate: str | None
    valid: bool
    why: str = ""


Attempts = tuple[Attempt, ...]


def after_training(before: Attempts, said: TrainFinished) -> Attempts:
    """A training that made no model is an invalid attempt; one that made a model decides nothing yet."""
    return _and(before, said.job, None, said.error or said.status) if said.status in _MADE_NOTHING else before


def after_validation(before: Attempts, said: ValidationFinished, *, known: bool) -> Attempts:
    """``known``: the candidate had a score already. A validation that never got a candidate is booked on c00, without
    an evaluation: what was asked for was an attempt all the same."""
    if said.candidate == _INITIAL:
        return _and(before, said.job, None, said.error) if not said.eval and said.status in _MADE_NOTHING else before
    if known or said.repeat:
        return before
    if said.status == "ok" and said.score is not None:
        return (*before, Attempt(len(before) + 1, said.job, said.candidate, valid=True))
    if said.status in ("ok", "late", *_MADE_NOTHING):
        return _and(before, said.job, said.candidate, said.error or said.status)
    return before


def _and(before: Attempts, job: str, candidate: str | None, why: str) -> Attempts:
    return (*before, Attempt(len(before) + 1, job, candidate, valid=False, why=why))
