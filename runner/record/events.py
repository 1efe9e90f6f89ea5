"""Every event of the journal, and the rows of train.jsonl and report.json. The truth of a run is a list of these.

A journal line is the envelope (``v seq t el prev``) and one payload, flat. ``t`` is Unix time in seconds, ``el`` the
budget seconds used, ``prev`` the sha256 of the previous line. Reading never fails: a payload that this version does
not know, or that does not fit, is kept as :class:`Unknown` and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from pydantic import ValidationError

from grader.protocol import Delta, ProblemRow, Score, ScoreFile, SplitInfo, TrajectoryStep
from runner.record.usage import BudgetLimits, BudgetTick, LlmUse, Split
from tasks.spec import Component, Frozen

__all__ = [
    "BudgetLimits", "BudgetTick", "Delta", "LlmUse", "ProblemRow", "Score",
    "ScoreFile", "Split", "SplitInfo", "TrajectoryStep",
]  # fmt: skip

SCHEMA_VERSION = 1

Phase = Literal["starting", "waiting", "baseline", "research", "selecting", "hidden_test", "reporting", "finished"]
Verb = Literal["train", "validate", "sample"]


class RunStarted(Frozen):
    """``official_seed``: of the hidden test, where its draws are a stream of their own. ``recipe_fields``: what may be
    set of a trainer that is out of scope. ``teacher``: a model that may be sampled."""

    kind: Literal["run_started"] = "run_started"
    run: str
    task: str
    problems: str
    model: str
    agent: str
    scope: tuple[Component, ...]
    seed: int
    samples: int
    profile: str
    protocol: str
    budget: BudgetLimits
    config_digest: str
    boot_id: str
    version: str
    comparable: bool
    official_seed: int | None = None
    recipe_fields: tuple[str, ...] = ()
    teacher: str | None = None


class IsolationChecked(Frozen):
    """What holds on this machine: ``weak`` walls (recorded by themselves) and those missing but ``allowed``."""

    kind: Literal["isolation_checked"] = "isolation_checked"
    weak: tuple[str, ...]
    allowed: tuple[str, ...]


class TaskLoaded(Frozen):
    """``same``: validation and hidden are the same problems (only a protocol that says so allows it)."""

    kind: Literal["task_loaded"] = "task_loaded"
    validation: SplitInfo
    hidden: SplitInfo
    engine: str
    same: bool = False


class PhaseChanged(Frozen):
    kind: Literal["phase_changed"] = "phase_changed"
    phase: Phase


class AgentStarted(Frozen):
    kind: Literal["agent_started"] = "agent_started"
    agent: str
    argv: tuple[str, ...]
    version: str = ""
    session: str = ""
    resumed: bool = False


class AgentTurn(Frozen):
    """A claim of the agent's own output: what it said in one line. Never a source of scores or tokens.
    ``session``: the id by which its framework goes on with this conversation, where the output names it.
    """

    kind: Literal["agent_turn"] = "agent_turn"
    n: int
    summary: str
    tool: str = ""
    seconds: float = 0.0
    tokens: int = 0
    session: str = ""


class AgentEnded(Frozen):
    """``final``: it is not started again, whatever becomes of the runner; the research phase is over."""

    kind: Literal["agent_ended"] = "agent_ended"
    reason: Literal["finished", "exited", "signal", "deadline", "stopped", "crashed"]
    exit_code: int | None = None
    signal: int | None = None
    final: bool = False


class DiffSize(Frozen):
    """How far a component moved from the parent's: lines (code) or examples (data)."""

    added: int = 0
    removed: int = 0
    files: int = 0


class CandidateCreated(Frozen):
    """``components``: those whose ids differ from the parent's (the design). c00 has no parent."""

    kind: Literal["candidate_created"] = "candidate_created"
    candidate: str
    parent: str | None
    model: str
    data: str
    trainer: str
    harness: str
    components: tuple[Component, ...] = ()
    diff: dict[Component, DiffSize] = {}
    hypothesis: str = ""


class EditRefused(Frozen):
    kind: Literal["edit_refused"] = "edit_refused"
    component: Component
    where: str
    reason: str


class JobQueued(Frozen):
    kind: Literal["job_queued"] = "job_queued"
    job: str
    verb: Verb


class TrainStarted(Frozen):
    kind: Literal["train_started"] = "train_started"
    job: str
    parents: tuple[str, ...]
    data: str
    trainer: str
    hypothesis: str = ""


class TrainProgress(Frozen):
    kind: Literal["train_progress"] = "train_progress"
    job: str
    step: int
    steps: int
    loss: float | None = None


JobStatus = Literal["ok", "failed", "refused", "cut", "late", "cancelled", "lost"]


class TrainFinished(Frozen):
    kind: Literal["train_finished"] = "train_finished"
    job: str
    status: JobStatus
    seconds: float
    model: str | None = None
    error: str = ""


class Taught(Frozen):
    """A training's data: the teacher whose ``samples`` the agent had, and how many ``rows`` hold a reply as it was."""

    teacher: str
    samples: tuple[str, ...]
    rows: int | None
    of: int | None


class ModelCreated(Frozen):
    """Provenance: ``job`` of the training service that made it (None for the base), and from what."""

    kind: Literal["model_created"] = "model_created"
    model: str
    job: str | None
    format: Literal["base", "adapter", "full"]
    parents: tuple[str, ...]
    data: str
    trainer: str
    sha256: str
    bytes: int
    no_change: bool = False
    delta_norm: float = 0.0
    delta_norm_max: float = 0.0
    delta_norm_max_tensor: str = ""
    taught: Taught | None = None


class ValidationStarted(Frozen):
    kind: Literal["validation_started"] = "validation_started"
    job: str
    candidate: str
    eval: str
    problems: int
    samples: int


class ValidationProgress(Frozen):
    kind: Literal["validation_progress"] = "validation_progress"
    job: str
    candidate: str
    done: int
    total: int


class ValidationFinished(Frozen):
    """``status`` ok has a score. ``repeat``: the recorded result of an equal candidate, no new draw."""

    kind: Literal["validation_finished"] = "validation_finished"
    job: str
    candidate: str
    eval: str
    status: JobStatus
    seconds: float
    score: Score | None = None
    cached: bool = False
    repeat: bool = False
    error: str = ""


class SampleStarted(Frozen):
    """A sampling that needs no accelerator: of a teacher. ``sample`` is the name of its replies, from here on taken."""

    kind: Literal["sample_started"] = "sample_started"
    job: str
    model: str
    prompts: int
    n: int
    sample: str = ""


class SampleFinished(Frozen):
    """``teacher``: ``model`` is the teacher, of which ``replies`` have come, in the file ``sample``. Fewer than
    ``prompts`` × ``n``: the file is a part, whatever ended the sampling."""

    kind: Literal["sample_finished"] = "sample_finished"
    job: str
    model: str
    prompts: int
    n: int
    status: JobStatus
    seconds: float
    error: str = ""
    teacher: bool = False
    sample: str = ""
    replies: int | None = None


class LeaseChanged(Frozen):
    kind: Literal["lease_changed"] = "lease_changed"
    holder: Literal["training", "grading", "sampling"] | None
    job: str | None = None


class Integrity(Frozen):
    """What our code saw: a refusal, a spoof, an attempt. ``what`` is the kind of attempt, in a few words."""

    kind: Literal["integrity"] = "integrity"
    what: str
    where: str = ""
    detail: str = ""


class Warned(Frozen):
    kind: Literal["warning"] = "warning"
    what: str
    where: str = ""
    do: str = ""


class HumanAction(Frozen):
    kind: Literal["human_action"] = "human_action"
    action: Literal["stop", "kill"]


class RunResumed(Frozen):
    kind: Literal["run_resumed"] = "run_resumed"
    boot_id: str
    gap_s: float
    phase: Phase


class Selected(Frozen):
    kind: Literal["selected"] = "selected"
    candidate: str
    by: Literal["agent", "policy"]
    policy: str = ""
    final: bool = False


class HiddenClaimed(Frozen):
    kind: Literal["hidden_claimed"] = "hidden_claimed"
    candidate: str


class HiddenProgress(Frozen):
    kind: Literal["hidden_progress"] = "hidden_progress"
    done: int
    total: int
    note: str = ""


class HiddenFinished(Frozen):
    kind: Literal["hidden_finished"] = "hidden_finished"
    candidate: str
    initial: Score
    selected: Score
    delta: Delta
    status: Literal["ok", "candidate_crash"]
    overlap: Literal["clean", "found", "not_checked"] = "not_checked"


class RunFinished(Frozen):
    kind: Literal["run_finished"] = "run_finished"
    status: Literal["ok", "no_score", "stopped", "failed"]
    reason: str = ""


Payload = (
    RunStarted
    | IsolationChecked
    | TaskLoaded
    | PhaseChanged
    | AgentStarted
    | AgentTurn
    | AgentEnded
    | CandidateCreated
    | EditRefused
    | JobQueued
    | TrainStarted
    | TrainProgress
    | TrainFinished
    | ModelCreated
    | ValidationStarted
    | ValidationProgress
    | ValidationFinished
    | SampleStarted
    | SampleFinished
    | LeaseChanged
    | BudgetTick
    | Integrity
    | Warned
    | HumanAction
    | RunResumed
    | Selected
    | HiddenClaimed
    | HiddenProgress
    | HiddenFinished
    | RunFinished
)
_KINDS: dict[str, type[Payload]] = {one.model_fields["kind"].default: one for one in get_args(Payload)}
ENVELOPE = ("v", "seq", "t", "el", "prev")


class Unknown(Frozen):
    """A payload of a newer version, or one that does not fit: kept whole, counted, never an error."""

    kind: str
    fields: dict[str, Any]
    why: str


@dataclass(frozen=True, slots=True)
class Event:
    """One journal line, read."""

    v: int
    seq: int
    t: float
    el: float
    prev: str
    payload: Payload | Unknown


def parse_payload(fields: dict[str, Any]) -> Payload | Unknown:
    """The payload in ``fields`` (without the envelope); total over any JSON object."""
    name, why = fields.get("kind"), "unknown kind"
    kind = name if isinstance(name, str) else "?"
    try:
        if kind in _KINDS:
            return _KINDS[kind].model_validate(fields)
    except ValidationError as error:
        why = str(error.errors()[0]["type"])
    return Unknown(kind=kind, fields=fields, why=why)
