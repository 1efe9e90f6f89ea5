"""A grader that is started again when it dies, so that a crash of its process costs a wave and not the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from grader.client import GraderClient
from grader.errors import GraderError, ProblemsError
from grader.protocol import GraderSetup, Noticed, Progress, Reply, Request, SetupResult

_ATTEMPTS = 3


class SteadyGrader:
    """One grader at a time; a request that a death interrupted is asked again of the next one.

    That is safe for every request: an evaluation goes on from its committed waves, the gate and sampling start over,
    and the hidden test is held by its ledger.
    """

    def __init__(self, setup: GraderSetup, log_path: Path, on_notice: Callable[[Noticed], None]) -> None:
        self._setup = setup
        self._log_path = log_path
        self._on_notice = on_notice
        self._client: GraderClient | None = None
        self._starting = asyncio.Lock()
        self._opened: SetupResult | None = None

    @property
    def pid(self) -> int | None:
        """The pid of the grader's process while one lives."""
        return self._client.pid if self._client is not None and self._client.alive else None

    async def start(self) -> SetupResult:
        """Start the grader and set it up. Raises GraderError with the grader's own reason."""
        await self._living()
        assert self._opened is not None
        return self._opened

    async def call(self, request: Request, on_progress: Callable[[Progress], None] | None = None) -> Reply:
        """The reply to ``request``, over as many as two restarts. Raises GraderError after that."""
        for attempt in range(_ATTEMPTS):
            client = await self._living()
            try:
                return await client.call(request, on_progress)
            except GraderError:
                if client.alive or attempt == _ATTEMPTS - 1:
                    raise
                self._on_notice(Noticed(level="warning", what="the grader died and was started again", where="grader"))
        raise AssertionError("unreachable")

    async def close(self) -> None:
        """End the grader and everything it started."""
        if self._client is not None:
            await self._client.close()

    async def _living(self) -> GraderClient:
        async with self._starting:
            if self._client is not None and self._client.alive:
                return self._client
            if self._client is not None:
                await self._client.close()
            self._client = await GraderClient.start(self._log_path, on_notice=self._on_notice)
            reply = await self._client.call(self._setup)
            if not reply.ok:
                await self._client.close()
                if reply.fault == "problems":
                    raise ProblemsError(reply.error)
                raise GraderError(reply.error or "could not be set up", where="grader", do=f"See {self._log_path}")
            opened = SetupResult.model_validate(reply.result)
            self._unchanged(opened)
            self._opened = opened
            return self._client

    def _unchanged(self, opened: SetupResult) -> None:
        """A grader that came back must hold the very same problems."""
        if self._opened is not None and (opened.validation, opened.hidden) != (
            self._opened.validation,
            self._opened.hidden,
        ):
            raise GraderError("the problems changed during the run", where="grader", do="Restore them and resume")
