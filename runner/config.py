"""The one frozen configuration of a run: flags, TOML file and task defaults, resolved, checked and digested."""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

from pydantic import Field

from grader.protocol import EngineConfig
from isolation.problem import BenchError
from runner.record.events import BudgetLimits
from tasks.spec import Component, Decoding, Frozen, ProblemLimits


class ConfigError(BenchError):
    """A flag, a key or a file of the configuration is wrong."""


class IntakeSizes(Frozen):
    """The most that a snapshot of each component may hold, in bytes, and how many files."""

    data: Annotated[int, Field(gt=0)] = 20 << 30
    trainer: Annotated[int, Field(gt=0)] = 20 << 20
    harness: Annotated[int, Field(gt=0)] = 5 << 20
    files: Annotated[int, Field(gt=0)] = 50_000


class RunConfig(Frozen):
    """Everything that decides a run. Equal configurations have equal digests. Paths are absolute host paths."""

    task: str
    problems: str
    validation_file: str | None
    hidden_file: str | None
    source_files: tuple[str, ...] = ()
    model: str
    base_dir: str
    model_env: str
    agent: str
    scope: tuple[Component, ...]
    seed: int
    samples: Annotated[int, Field(gt=0)]
    decoding: Decoding
    limits: ProblemLimits
    engine: EngineConfig
    budget: BudgetLimits
    profile: Literal["laptop", "workstation"]
    protocol: Literal["vibetraining", "rsibench-data"] = "vibetraining"
    selection_policy: Literal["best_validated", "none"] = "best_validated"
    intake: IntakeSizes = IntakeSizes()
    disk_reserve: int = 1 << 30
    training_limit_s: float | None = None
    agent_resumes: Annotated[int, Field(ge=0)] = 3
    allow_weak: tuple[str, ...] = ()

    def digest(self) -> str:
        """sha256 over the canonical JSON of all fields."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()
