"""The grader as the runner knows it: a child process that answers JSON lines.

The child dies with its stdin, and with its parent. Its stderr goes to a log file.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from grader.errors import GraderError
from grader.protocol import Cancel, Noticed, Progress, Reply, Request, Shutdown

MAX_LINE = 16 << 20
CLOSE_S = 20.0
_PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR", "VIBETRAINING_HOME", "VIBETRAINING_CGROUP", "XDG_RUNTIME_DIR")

_MESSAGE: TypeAdapter[Progress | Noticed | Reply] = TypeAdapter(
    Annotated[Progress | Noticed | Reply, Field(discriminator="kind")]
)

OnProgress = Callable[[Progress], None]
OnNotice = Callable[[Noticed], None]


class GraderClient:
    """One running grader. Requests may overlap; the grader does them one at a time, ``cancel`` excepted."""

    def __init__(self, process: asyncio.subprocess.Process, log_path: Path, on_notice: OnNotice) -> None:
        self._process = process
        self._log_path = log_path
        self._on_notice = on_notice
        self._waiting: dict[str, asyncio.Future[Reply]] = {}
        self._progress: dict[str, OnProgress] = {}
        self._count = itertools.count(1)
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(
        cls, log_path: Path, *, on_notice: OnNotice = lambda _: None, env: Mapping[str, str] | None = None
    ) -> GraderClient:
        """Spawns the grader; call it from the main thread. ``env`` adds to the few variables that are passed on."""
        own = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        with log_path.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "grader.server",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**own, **(env or {})},
                start_new_session=True,  # a Ctrl-C at the terminal is the runner's to handle
                limit=MAX_LINE,
            )
        return cls(process, log_path, on_notice)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None and not self._reading.done()

    def new_id(self) -> str:
        """An id for the next request."""
        return f"q{next(self._count)}"

    async def call(self, request: Request, on_progress: OnProgress | None = None) -> Reply:
        """Sends ``request`` and waits for its reply. Raises GraderError when the grader died; cancelling the caller
        cancels the request in the grader too, but does not wait for it."""
        if not self.alive:
            raise self._dead()
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[request.id] = future
        if on_progress is not None:
            self._progress[request.id] = on_progress
        try:
            await self._send(request)
            return await future
        except asyncio.CancelledError:
            with suppress(GraderError):
                await self._send(Cancel(id=self.new_id(), target=request.id))
            raise
        finally:
            self._waiting.pop(request.id, None)
            self._progress.pop(request.id, None)

    async def cancel(self, target: str) -> None:
        """Stops the request ``target``; whoever called it gets its reply with ``cancelled``."""
        await self.call(Cancel(id=self.new_id(), target=target))

    async def close(self) -> None:
        """Shutdown, then EOF, then a kill: returns when the process is gone."""
        if self.alive:
            with suppress(GraderError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self.call(Shutdown(id=self.new_id()))
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _send(self, request: Request) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(request.model_dump_json().encode() + b"\n")
            await self._process.stdin.drain()
        except ConnectionError:
            raise self._dead() from None

    async def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            while line := await self._process.stdout.readline():
                self._take(_MESSAGE.validate_json(line))
        except (ValueError, ValidationError):
            self._process.kill()
        finally:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(self._dead())

    def _take(self, message: Progress | Noticed | Reply) -> None:
        match message:
            case Reply():
                future = self._waiting.get(message.id)
                if future is not None and not future.done():
                    future.set_result(message)
            case Progress():
                if message.id in self._progress:
                    self._progress[message.id](message)
            case Noticed():
                self._on_notice(message)

    def _dead(self) -> GraderError:
        return GraderError("the grader has died", where=str(self._log_path), do="Its log says why; then resume the run")
