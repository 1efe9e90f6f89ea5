"""The words of a task: its specification (task.toml), its problems, and the seams by which it is run and judged.

A task folder holds ``task.toml``, a loader, a pure scorer, ``brief.md`` and ``workspace/`` (D0, T0, H0). Nothing here
does work at import, and nothing here may read a workspace or a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

Component = Literal["data", "trainer", "harness"]
SplitName = Literal["validation", "hidden"]
COMPONENTS: tuple[Component, ...] = ("data", "trainer", "harness")
LETTERS: Mapping[Component, str] = {"data": "D", "trainer": "T", "harness": "H"}


class TaskError(Exception):
    """A task, a problems file or a split is malformed or missing: what, where, and what to do about it.

    Has the three fields of ``isolation.problem.BenchError`` without importing it: tasks know nothing else of ours.
    """

    def __init__(self, what: str, *, where: str = "", do: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.do = do

    def __str__(self) -> str:
        return "".join((f"{self.where}: " if self.where else "", self.what, f". {self.do}" if self.do else ""))


class Frozen(BaseModel):
    """A value that is checked once at the edge and never changes; unknown keys are errors.

    What checks it is built when it is first needed: no program needs the models of all the others at its start.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class Decoding(Frozen):
    """How the grader samples, the same for both splits; a harness may only add stops and ask for fewer tokens."""

    temperature: Annotated[float, Field(ge=0)] = 0.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    presence_penalty: float = 0.0
    max_tokens: Annotated[int, Field(gt=0)] = 256


class ProblemLimits(Frozen):
    """What one session (one problem, one sample) may use. Times in seconds, sizes in bytes."""

    calls_per_problem: Annotated[int, Field(gt=0)] = 8
    tokens_per_problem: Annotated[int, Field(gt=0)] = 1024
    wall_s: Annotated[float, Field(gt=0)] = 120.0
    think_s: Annotated[float, Field(gt=0)] = 30.0
    answer_bytes: Annotated[int, Field(gt=0)] = 1 << 20


class DatasetRef(Frozen):
    """A pinned dataset: a Hugging Face id and revision, and the file in it."""

    repo: str
    revision: str
    file: str


class Override(Frozen):
    """Fields of ``Decoding`` and ``ProblemLimits`` that a profile replaces (a small model on a CPU writes less)."""

    decoding: dict[str, float] = {}
    limits: dict[str, float] = {}


class ProblemSet(Frozen):
    """One set of problems of a task, with its defaults. ``kind`` names the loader."""

    kind: Literal["mini", "aime"]
    title: str
    comparable: bool
    samples: Annotated[int, Field(gt=0)]
    decoding: Decoding
    limits: ProblemLimits
    validation: DatasetRef | None = None
    hidden: DatasetRef | None = None
    sources: tuple[DatasetRef, ...] = ()
    laptop: Override | None = None


class TaskSpec(Frozen):
    """What task.toml says: title, scope, the problem sets and the default budget (seconds) per profile.

    ``recipe_fields``: the keys of the trainer's recipe.toml that an agent may set where the trainer itself is fixed.
    """

    name: str
    title: str
    scope: tuple[Component, ...]
    budgets: dict[str, float]
    recipe_fields: tuple[str, ...] = ()
    sets: dict[str, ProblemSet]


class Problem(Frozen):
    """One item of a split. ``gold`` never leaves the vault; ``question`` is what a harness is shown."""

    id: str
    question: str
    gold: str
    kind: str = ""
    level: int = 0


class Verdict(Frozen):
    """A judged answer: reward in 0…1 and the code of the rule that gave it."""

    reward: Annotated[float, Field(ge=0, le=1)]
    reason: str


class JudgePlan(Frozen):
    """Judging that needs a sandbox: files to lay out, the command to run, and in which root."""

    files: dict[str, str]
    command: tuple[str, ...]
    timeout_s: float
    where: Literal["pristine", "same"]


class Public(Frozen):
    """What a session is told about its problem."""

    id: str
    instruction: str
    tools: tuple[dict[str, Any], ...] = ()


class Episode(Protocol):
    """A problem being worked on. Tasks without an environment answer ``finish`` and refuse the rest."""

    def exec(self, command: str, timeout_s: float) -> Mapping[str, Any]: ...
    def tool(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]: ...
    def say(self, text: str) -> Mapping[str, Any]: ...
    def finish(self, answer: str) -> None: ...


class Task(Protocol):
    """What the vault needs of a task. Implementations are pure apart from ``load``."""

    def load(self, name: str, split: SplitName, files: Mapping[SplitName, Path]) -> Sequence[Problem]:
        """The problems of ``split`` of the set ``name``; ``files`` are what only the vault mounts, one per split."""
        ...

    def public(self, problem: Problem) -> Public: ...
    def open(self, problem: Problem) -> Episode: ...
    def plan(self, problem: Problem, submission: str) -> Verdict | JudgePlan: ...
    def verdict(self, problem: Problem, evidence: Mapping[str, Any]) -> Verdict: ...
