"""The schemas of the files a run leaves beside its journal: a line of train.jsonl, and report.json."""

from __future__ import annotations

from typing import Literal

from grader.protocol import Delta, Score
from runner.record.events import Integrity, Split
from tasks.spec import Component, Frozen


class TrainRow(Frozen):
    """A line of train.jsonl, as a trainer's metrics said it: a claim, not a measurement of ours."""

    step: int
    steps: int = 0
    loss: float | None = None
    lr: float | None = None
    tokens: int | None = None
    seconds: float | None = None


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
