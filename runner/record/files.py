"""The schemas of the files a run leaves beside its journal: a line of train.jsonl, and report.json."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from grader.protocol import Delta, Score
from runner.record.events import Integrity, Split
from tasks.spec import Component, Frozen

_Count = Annotated[int, Field(ge=0, le=10**15)]
_Sane = Annotated[float, Field(ge=-1e15, le=1e15)]


class TrainRow(Frozen):
    """A line of train.jsonl, as a trainer's metrics said it: a claim, not a measurement of ours."""

    step: _Count
    steps: _Count = 0
    loss: _Sane | None = None
    lr: _Sane | None = None
    tokens: Annotated[int, Field(ge=-(10**15), le=10**15)] | None = None
    seconds: _Sane | None = None


class ReportCandidate(Frozen):
    id: str
    parent: str | None
    components: tuple[Component, ...]
    model: str
    hypothesis: str
    validation: Score | None
    status: str


class ReportIsolation(Frozen):
    weak: tuple[str, ...]
    allowed: tuple[str, ...]


class ReportValidation(Frozen):
    initial: Score | None
    selected: Score | None
    best: Score | None


class ReportHidden(Frozen):
    initial: Score | None
    selected: Score | None
    delta: Delta | None


class ReportBudget(Frozen):
    wall_s: float
    split: Split
    tokens: int
    money: float | None


class ReportAttempt(Frozen):
    n: int
    job: str
    candidate: str | None
    valid: bool
    why: str


class ReportOfficial(Frozen):
    """What the scores are under rsibench-data: ``validation`` holds the selection score, ``hidden`` the official one.

    ``is_selection_set``: both are on the same problems. ``seed``: that of the official draws."""

    seed: int | None
    is_selection_set: bool
    attempts: tuple[ReportAttempt, ...]
    recipe_fields: tuple[str, ...]


class Report(Frozen):
    """report.json. Its keys are stable; scores are in 0…1. ``official`` is null under the default protocol."""

    run: str
    task: str
    problems: str
    model: str
    agent: str
    scope: tuple[Component, ...]
    seed: int
    isolation: ReportIsolation
    validation: ReportValidation
    hidden: ReportHidden
    candidates: tuple[ReportCandidate, ...]
    budget: ReportBudget
    protocol: str = "vibetraining"
    official: ReportOfficial | None = None
    selected_by: Literal["agent", "policy"] | None
    integrity: tuple[Integrity, ...]
