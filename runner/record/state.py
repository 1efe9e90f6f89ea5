"""What a run is at one moment: the value that the journal folds to. Views, the loop and resume all read this.

Everything is immutable. It is grouped so that the events that come most (progress, ticks) replace small parts.
Seconds named ``el`` are budget seconds, ``t`` Unix time. Scores are in 0…1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from grader.protocol import Score
from runner.record.attempts import Attempts
from runner.record.events import (
    BudgetTick,
    DiffSize,
    HiddenFinished,
    Integrity,
    IsolationChecked,
    JobStatus,
    LeaseChanged,
    ModelCreated,
    Phase,
    RunFinished,
    RunStarted,
    SampleStarted,
    Selected,
    Split,
    TaskLoaded,
    Verb,
    Warned,
)
from tasks.spec import Component

INITIAL = "c00"
_FREE = LeaseChanged(holder=None)
_NOTHING_USED = BudgetTick(wall_s=0.0, split=Split())

CandidateStatus = Literal["created", "validating"] | JobStatus


@dataclass(frozen=True, slots=True)
class Mark:
    """Where in the journal: the newest event's number and times, and how many were folded. ``damaged`` counts lines
    that could not be read, ``damaged_line`` is the last of them."""

    seq: int = 0
    t: float = 0.0
    el: float = 0.0
    events: int = 0
    damaged: int = 0
    damaged_line: int = 0


@dataclass(frozen=True, slots=True)
class Head:
    """What was settled before research began, and how often the run was taken up again. ``boot_id`` is the newest."""

    started: RunStarted | None = None
    started_t: float = 0.0
    isolation: IsolationChecked | None = None
    task: TaskLoaded | None = None
    boot_id: str = ""
    resumes: int = 0
    gap_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PhaseMark:
    """A phase and when it began."""

    phase: Phase
    t: float
    el: float


@dataclass(frozen=True, slots=True)
class AgentState:
    """The agent: ``turns`` and ``saying`` are its own claims. ``ended`` is why it ended, empty while it runs; ``over``:
    it is never started again."""

    name: str = ""
    version: str = ""
    session: str = ""
    starts: int = 0
    turns: int = 0
    saying: str = ""
    tool: str = ""
    running: bool = False
    ended: str = ""
    over: bool = False
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class CandidateState:
    """A candidate. ``validation`` is its valid score; ``late`` one that came after the deadline and counts nowhere.

    ``validated_el`` is when it was first valid. Status ``ok`` means valid.
    """

    id: str
    parent: str | None = None
    model: str = ""
    data: str = ""
    trainer: str = ""
    harness: str = ""
    components: tuple[Component, ...] = ()
    diff: Mapping[Component, DiffSize] = field(default_factory=dict)
    hypothesis: str = ""
    el: float = 0.0
    status: CandidateStatus = "created"
    validation: Score | None = None
    late: Score | None = None
    validated_el: float | None = None
    eval: str = ""
    error: str = ""
    cached: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelState:
    """A model and the facts that the gate recorded of it."""

    made: ModelCreated
    el: float = 0.0
    hypothesis: str = ""

    @property
    def id(self) -> str:
        """m00 is the base."""
        return self.made.model

    @property
    def parents(self) -> tuple[str, ...]:
        """The models it was trained from."""
        return self.made.parents


@dataclass(frozen=True, slots=True)
class JobState:
    """A job of the desk: queued, running, or ended with a status."""

    id: str
    verb: Verb
    status: Literal["queued", "running"] | JobStatus = "queued"
    queued_el: float = 0.0
    started_el: float | None = None
    started_t: float | None = None
    seconds: float = 0.0
    candidate: str = ""
    model: str = ""
    eval: str = ""
    error: str = ""
    hypothesis: str = ""
    lesson: SampleStarted | None = None  # of a sampling of a teacher: what was asked


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the current job is: problem samples of a validation, steps of a training; ``loss`` is a claim."""

    done: int = 0
    total: int = 0
    loss: float | None = None

    @property
    def share(self) -> float:
        """0…1, whatever the numbers are."""
        return min(1.0, max(0.0, self.done / self.total)) if self.total > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Work:
    """What is happening now."""

    current: JobState | None = None
    progress: Progress = Progress()
    queue: tuple[JobState, ...] = ()
    lease: LeaseChanged = _FREE


@dataclass(frozen=True, slots=True)
class Trials:
    """What was made. ``valid`` are the ids of valid candidates in order, P0 with them; ``best`` the first argmax."""

    candidates: Mapping[str, CandidateState] = field(default_factory=dict)
    models: Mapping[str, ModelState] = field(default_factory=dict)
    jobs: Mapping[str, JobState] = field(default_factory=dict)
    valid: tuple[str, ...] = ()
    best: str | None = None
    attempts: Attempts = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ends. ``hidden`` is the first and only hidden result."""

    selected: Selected | None = None
    claimed: str | None = None
    progress: Progress = Progress()
    note: str = ""
    hidden: HiddenFinished | None = None
    finished: RunFinished | None = None
    finished_t: float = 0.0


@dataclass(frozen=True, slots=True)
class Seen:
    """A noticed thing and when; ``seq`` keeps the order between groups."""

    seq: int
    el: float
    what: Integrity | Warned


@dataclass(frozen=True, slots=True)
class Group:
    """All notices of one kind: how many, and the first few, so that no flood of one kind hides another."""

    count: int = 0
    first: tuple[Seen, ...] = ()


@dataclass(frozen=True, slots=True)
class Notes:
    """What our code saw, by ``what``; refused edits by component; kinds this version does not know, with counts."""

    integrity: Mapping[str, Group] = field(default_factory=dict)
    warnings: Mapping[str, Group] = field(default_factory=dict)
    refused: Mapping[Component, int] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)
    actions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunState:
    """A run, folded. The properties are the flat names to read it by."""

    mark: Mark = Mark()
    head: Head = Head()
    phase: Phase = "starting"
    phases: tuple[PhaseMark, ...] = ()
    agent: AgentState = AgentState()
    work: Work = Work()
    trials: Trials = Trials()
    budget: BudgetTick = _NOTHING_USED
    outcome: Outcome = Outcome()
    notes: Notes = Notes()

    @property
    def seq(self) -> int:
        """The newest folded event."""
        return self.mark.seq

    @property
    def t(self) -> float:
        """Its Unix time."""
        return self.mark.t

    @property
    def el(self) -> float:
        """Its budget seconds."""
        return self.mark.el

    @property
    def run(self) -> RunStarted | None:
        """What the run is, once it has started."""
        return self.head.started

    @property
    def boot_id(self) -> str:
        """The boot of the machine that last wrote."""
        return self.head.boot_id

    @property
    def weak(self) -> tuple[str, ...]:
        """Walls that are weak on the machine."""
        return self.head.isolation.weak if self.head.isolation else ()

    @property
    def allowed(self) -> tuple[str, ...]:
        """Walls that are missing and were allowed to be."""
        return self.head.isolation.allowed if self.head.isolation else ()

    @property
    def candidates(self) -> Mapping[str, CandidateState]:
        """By id, in order of making."""
        return self.trials.candidates

    @property
    def models(self) -> Mapping[str, ModelState]:
        """By id, in order of making."""
        return self.trials.models

    @property
    def jobs(self) -> Mapping[str, JobState]:
        """Ended jobs by id, in order of their end."""
        return self.trials.jobs

    @property
    def current(self) -> JobState | None:
        """The running job."""
        return self.work.current

    @property
    def queue(self) -> tuple[JobState, ...]:
        """Jobs that wait."""
        return self.work.queue

    @property
    def selected(self) -> Selected | None:
        """The selection so far; ``final`` when it can no longer change."""
        return self.outcome.selected

    @property
    def hidden(self) -> HiddenFinished | None:
        """The hidden test, once it is over."""
        return self.outcome.hidden

    @property
    def finished(self) -> RunFinished | None:
        """How the run ended, once it has."""
        return self.outcome.finished

    @property
    def unknown_count(self) -> int:
        """Events of unknown kinds, and lines that could not be read."""
        return sum(self.notes.unknown.values()) + self.mark.damaged

    @property
    def initial(self) -> Score | None:
        """P0 on validation."""
        return validation_of(self, INITIAL)

    @property
    def best(self) -> CandidateState | None:
        """The valid candidate with the highest validation score, the first of equals; P0 counts."""
        return self.candidates.get(self.trials.best) if self.trials.best else None


def validation_of(state: RunState, candidate: str | None) -> Score | None:
    """The valid validation score of a candidate, if it has one."""
    known = state.candidates.get(candidate) if candidate else None
    return known.validation if known else None


def chosen(state: RunState) -> str | None:
    """The selected candidate: the one that was tested, else claimed, else selected last."""
    if state.hidden is not None:
        return state.hidden.candidate
    return state.outcome.claimed or (state.selected.candidate if state.selected else None)


def valid(state: RunState, *, initial: bool = True) -> list[CandidateState]:
    """Valid candidates in the order in which they became valid; without P0 if ``initial`` is false."""
    return [state.candidates[name] for name in state.trials.valid if initial or name != INITIAL]


def best_so_far(state: RunState) -> list[tuple[float, str, float]]:
    """The step line of the best: (budget seconds, candidate, score) wherever a valid candidate, P0 included, rose."""
    steps: list[tuple[float, str, float]] = []
    for candidate in valid(state):
        score = candidate.validation
        if score is not None and (not steps or score.score > steps[-1][2]):
            steps.append((candidate.validated_el or 0.0, candidate.id, score.score))
    return steps


def integrity(state: RunState) -> list[Seen]:
    """Integrity events that were kept, in order."""
    kept = [seen for group in state.notes.integrity.values() for seen in group.first]
    return sorted(kept, key=lambda seen: seen.seq)


def integrity_count(state: RunState) -> int:
    """All integrity events, kept or only counted."""
    return sum(group.count for group in state.notes.integrity.values())
