"""The seam between an evaluation and whatever serves the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from grader.protocol import ModelRef
from isolation.problem import BenchError


class EngineError(BenchError):
    """The engine could not start, could not load a model, or died more often than a round is asked again."""


class RequestRefused(BenchError):
    """The engine is well but will not answer this request (a prompt too long, a template that refuses the roles).

    The harness that asked is told ``what``; nothing else of the evaluation is touched.
    """


@dataclass(frozen=True, slots=True)
class Completion:
    """One pinned model call. Exactly one of ``messages`` and ``prompt`` is set.

    ``messages`` are rendered with the model's own template; when the last one is the assistant's, generation goes on
    from its text. ``seed`` decides the draw of this call alone, whatever it is batched with.
    """

    max_tokens: int
    messages: tuple[tuple[str, str], ...] | None = None
    prompt: str | None = None
    stop: tuple[str, ...] = ()
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    presence_penalty: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Completed:
    """What came back. A stop string, when one was hit, is the end of ``text`` (as a harness tool needs to see it)."""

    text: str
    finish_reason: str
    tokens_in: int
    tokens_out: int
    seconds: float


class Engine(Protocol):
    """A model server in its own sandbox, warm between evaluations. Times in seconds."""

    async def start(self) -> str:
        """Start it; returns name, version, device and dtype in one word. Raises EngineError."""
        ...

    async def load(self, model: ModelRef) -> None:
        """Serve ``model`` and generate one token with it. Raises EngineError: the candidate cannot be served."""
        ...

    async def sessions(self, opened: Sequence[str], closed: Sequence[str]) -> None:
        """Tell of sessions that begin and end, in one message, so that no round can fall between them."""
        ...

    async def complete(self, session: str, call: Completion) -> Completed:
        """One reply. Survives a restart of the engine: the call is held and asked again, at most twice.

        Raises RequestRefused (this request cannot be answered) or EngineError (nothing can).
        """
        ...

    async def sleep(self) -> None: ...
    async def wake(self) -> None: ...
    async def stop(self) -> None: ...
