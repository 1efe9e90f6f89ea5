"""What the services of the research side share: the frozen configuration, the record, the grader, clock and lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from grader.protocol import Cancel, Progress, Reply, Request
from runner.config import RunConfig
from runner.record.journal import Journal
from runner.record.rundir import RunDir
from runner.research.budget import Budget
from runner.research.lease import Lease
from runner.research.memory import MemoryPlan
from runner.research.teacher import Teacher
from tasks.spec import Component

_CANCEL_S = 60.0
ON_PROGRESS = Callable[[Progress], None]


class Grader(Protocol):
    """The one method of :class:`grader.client.GraderClient` that research uses."""

    async def call(self, request: Request, on_progress: ON_PROGRESS | None = None) -> Reply: ...


@dataclass(slots=True)
class Lab:
    """Everything a service of the research phase needs; built once by the loop.

    ``runtime`` is a short private folder for sockets and for files copied into sandboxes. ``initial`` are the snapshot
    ids of P0's components, ``problems`` the number of validation problems (from the grader's setup).
    ``official_is_selection``: the last test is on the validation problems themselves. ``teacher`` may be sampled.
    ``laid_out`` are the snapshots whose trees were made, or found to be whole, by this process.
    """

    config: RunConfig
    rundir: RunDir
    journal: Journal
    grader: Grader
    budget: Budget
    lease: Lease
    runtime: Path
    memory: MemoryPlan
    initial: dict[Component, str] = field(default_factory=dict)
    problems: int = 0
    official_is_selection: bool = False
    teacher: Teacher | None = None
    laid_out: set[str] = field(default_factory=set)

    @property
    def scratch(self) -> Path:
        """Outputs of running jobs, below the run folder; each is removed when its job ends."""
        return self.rundir.path / "scratch"

    @property
    def samples(self) -> Path:
        """What models answered to the agent's own prompts, where it reads it."""
        return self.rundir.feedback / "samples"

    @property
    def python(self) -> Path:
        """The interpreter of the model environment."""
        return Path(self.config.model_env) / "bin" / "python"

    @property
    def accelerator(self) -> bool:
        return self.config.engine.device == "cuda"


async def ask(grader: Grader, request: Request, on_progress: ON_PROGRESS | None = None) -> Reply:
    """Call the grader; if the asking task is cancelled, the request is cancelled there and its end awaited, so that
    nothing runs on once the lease is given back."""
    asking = asyncio.ensure_future(grader.call(request, on_progress))
    try:
        return await asyncio.shield(asking)
    except asyncio.CancelledError:
        await grader.call(Cancel(id=f"cancel-{request.id}", target=request.id))
        await asyncio.wait({asking}, timeout=_CANCEL_S)
        asking.cancel()
        raise
