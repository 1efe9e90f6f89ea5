"""The one frozen configuration of a run: flags, TOML file and task defaults, resolved, checked and digested."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

import tomli
import tomli_w
from pydantic import Field, ValidationError

from grader.protocol import EngineConfig
from isolation.problem import BenchError
from runner.record.events import BudgetLimits
from runner.research.llm.protocol import Price, Style
from tasks.spec import Component, Decoding, Frozen, ProblemLimits


class ConfigError(BenchError):
    """A flag, a key or a file of the configuration is wrong."""


class IntakeSizes(Frozen):
    """The most that a snapshot of each component may hold, in bytes, and how many files.

    ``opaque_*``: of these, how many bytes may be no text (binary files, encoded or incompressible text, long arrays of
    numbers). Weights have to come from the training service, not from a file of the agent's.
    """

    data: Annotated[int, Field(gt=0)] = 20 << 30
    trainer: Annotated[int, Field(gt=0)] = 20 << 20
    harness: Annotated[int, Field(gt=0)] = 5 << 20
    files: Annotated[int, Field(gt=0)] = 50_000
    opaque_data: Annotated[int, Field(ge=0)] = 1 << 20
    opaque_trainer: Annotated[int, Field(ge=0)] = 64 << 10
    opaque_harness: Annotated[int, Field(ge=0)] = 64 << 10


class LlmConfig(Frozen):
    """Where the researcher's model is and what it costs. Secrets are named here, never held.

    ``accelerator_hour_price`` counts towards money; None: unknown, or no accelerator. ``local``: the folder of a model
    that the program's own engine serves; ``base_url`` is then not used.
    """

    style: Style
    base_url: str
    local: str | None = None
    key_env: str | None = None
    key_file: str | None = None
    prices: dict[str, Price] = {}
    accelerator_hour_price: Annotated[float, Field(ge=0)] | None = None
    streams: Annotated[int, Field(ge=1)] = 8
    max_output: Annotated[int, Field(ge=16)] = 64_000
    tries: Annotated[int, Field(ge=1)] = 8
    first_byte_s: Annotated[float, Field(gt=0)] = 900.0
    idle_s: Annotated[float, Field(gt=0)] = 7200.0


ProtocolName = Literal["vibetraining", "rsibench-data"]


class RunConfig(Frozen):
    """Everything that decides a run. Equal configurations have equal digests. Paths are absolute host paths.

    ``recipe_fields``: keys of the trainer's recipe that may be set although the trainer is out of scope.
    ``official_seed``: the draws of the one hidden test, where they are a stream of their own. ``teacher_model`` is
    reached by `vibe sample --teacher`, at ``teacher``.
    ``engine_memory`` in bytes bounds the model server's sandbox; None: by the model and the machine.
    """

    task: str
    problems: str
    validation_file: str | None = None
    hidden_file: str | None = None
    source_files: tuple[str, ...] = ()
    model: str
    base_dir: str
    model_env: str
    agent: str
    agent_model: str | None = None
    reasoning_effort: Literal["minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    agent_files: tuple[str, ...] = ()
    llm: LlmConfig | None = None
    scope: tuple[Component, ...]
    seed: int
    samples: Annotated[int, Field(gt=0)]
    decoding: Decoding
    limits: ProblemLimits
    engine: EngineConfig
    engine_memory: Annotated[int, Field(ge=1 << 30)] | None = None
    budget: BudgetLimits
    profile: Literal["laptop", "workstation"]
    protocol: ProtocolName = "vibetraining"
    recipe_fields: tuple[str, ...] = ()
    official_seed: Annotated[int, Field(ge=0)] | None = None
    teacher_model: str | None = None
    teacher: LlmConfig | None = None
    selection_policy: Literal["best_validated", "none"] = "best_validated"
    intake: IntakeSizes = IntakeSizes()
    disk_reserve: int = 1 << 30
    training_limit_s: float | None = None
    agent_resumes: Annotated[int, Field(ge=0)] = 3
    allow_weak: tuple[str, ...] = ()

    @property
    def editable(self) -> tuple[Component, ...]:
        """The components that an agent finds writable: its scope, and the trainer where recipe fields may be set."""
        return self.scope if not self.recipe_fields else tuple(dict.fromkeys((*self.scope, "trainer")))

    def digest(self) -> str:
        """sha256 over the canonical JSON of all fields."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    def to_toml(self) -> str:
        """The configuration as a person reads it and ``--config`` takes it; unset values are left out."""
        return tomli_w.dumps(_without_none(self.model_dump(mode="json")))

    @classmethod
    def from_toml(cls, text: str, where: str) -> RunConfig:
        """The configuration that :meth:`to_toml` wrote. Raises ConfigError."""
        try:
            return cls.model_validate_json(json.dumps(tomli.loads(text)))
        except (tomli.TOMLDecodeError, ValidationError) as error:
            line = str(error).splitlines()[0]
            raise ConfigError(
                f"is not the configuration of a run: {line}", where=where, do="Restore run.toml"
            ) from None


def _without_none(table: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, dict) else value
        for key, value in table.items()
        if value is not None
    }
