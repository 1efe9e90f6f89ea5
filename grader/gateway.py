"""The model as one harness session sees it: an OpenAI-compatible server on a unix socket of its own.

Who asks is decided by which socket: it is mounted into one sandbox alone. A request is parsed strictly and built anew
with the task's decoding; what the harness may decide is ``stop`` and a smaller ``max_tokens``. Every call is recorded
here, and that record is the trajectory: what a harness says about itself is not.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from aiohttp import web

from grader.engines.base import Completed, Completion, Engine, EngineError, RequestRefused
from grader.http import HangUp, error, read_object, strict_connection
from grader.request import Asked, Refused, chat_request, text_request
from grader.strict import shorten
from tasks.spec import Decoding, ProblemLimits

MAX_BODY = 2 << 20
MAX_CONNECTIONS = 8
MAX_REQUESTS = 1024
BODY_S = 10.0
KEPT_PROMPT = 128 << 10


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded model call. ``seconds`` include waiting for the round; ``finish_reason`` may be ``refused``."""

    prompt: str
    reply: str
    finish_reason: str
    tokens_in: int
    tokens_out: int
    seconds: float
    overwritten: tuple[str, ...]


class Clock:
    """The two clocks of a session: both stand while its request is pending at the engine.

    ``wall_s`` is all the time the harness may use itself, ``think_s`` the time from one reply to its next request.
    """

    def __init__(self, limits: ProblemLimits) -> None:
        self._limits = limits
        self._used = 0.0
        self._since: float | None = None
        self.changed = asyncio.Event()

    def go(self) -> None:
        """The harness may think: at the start and after each reply."""
        self._since = time.monotonic()
        self.changed.set()

    def stop(self) -> None:
        """A request of the harness is pending."""
        if self._since is not None:
            self._used += time.monotonic() - self._since
        self._since = None
        self.changed.set()

    def left(self) -> float | None:
        """Seconds until the session is over, or None while its request is pending."""
        if self._since is None:
            return None
        thinking = time.monotonic() - self._since
        return min(self._limits.wall_s - self._used - thinking, self._limits.think_s - thinking)


@dataclass(slots=True)
class Usage:
    """What a session has asked for so far."""

    calls: list[Call] = field(default_factory=list)
    requests: int = 0
    asked: int = 0
    refused: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    attempts: Counter[str] = field(default_factory=Counter)


class Gateway:
    """The server of one session. ``failure`` is set when the engine, not the harness, is at fault."""

    def __init__(
        self,
        *,
        engine: Engine,
        session: str,
        socket: Path,
        decoding: Decoding,
        limits: ProblemLimits,
        seed: Callable[[int], int],
    ) -> None:
        self._engine = engine
        self._session = session
        self._socket = socket
        self._decoding = decoding
        self._limits = limits
        self._seed = seed
        self._opened = asyncio.Event()
        self._one = asyncio.Lock()
        self._closing = False
        self._pending: asyncio.Task[Completed] | None = None
        self._http: web.Server | None = None
        self._unix: asyncio.Server | None = None
        self.clock = Clock(limits)
        self.usage = Usage()
        self.failure: asyncio.Future[NoReturn] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        """Bind the socket; requests wait until :meth:`open`."""
        loop = asyncio.get_running_loop()
        self._http = web.Server(self._handle)
        self._unix = await loop.create_unix_server(self._connection, path=str(self._socket), backlog=16)

    def open(self) -> None:
        """The engine knows the session: its requests may pass, its clocks run."""
        self.clock.go()
        self._opened.set()

    async def settle(self) -> None:
        """No new request passes; a pending one is waited for, so that what a round holds depends on nobody's exit."""
        self._closing = True
        if self._unix is not None:
            self._unix.close()
        if self._pending is not None:
            await asyncio.wait({self._pending})

    async def close(self) -> None:
        """Cut everything that is still there."""
        self._closing = True
        if self._unix is not None:
            self._unix.close()
        if self._pending is not None:
            self._pending.cancel()
            await asyncio.wait({self._pending})
        if self._http is not None:
            await self._http.shutdown(0.1)
        if not self.failure.cancel():
            self.failure.exception()  # read, so that it is not reported as lost
        with suppress(OSError):
            self._socket.unlink()

    def _connection(self) -> asyncio.BaseProtocol:
        assert self._http is not None
        if self._closing or self.usage.requests >= MAX_REQUESTS:
            return HangUp()
        if len(self._http.connections) >= MAX_CONNECTIONS:
            self.usage.attempts["too many connections"] += 1
            return HangUp()
        return strict_connection(self._http, self._malformed)

    def _malformed(self) -> None:
        self.usage.refused += 1
        self.usage.attempts["malformed request"] += 1

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.usage.requests += 1
        try:
            if self.usage.requests > MAX_REQUESTS:
                raise Refused(429, "too many requests", attempt="too many requests", cut=True)
            return await self._route(request)
        except Refused as refusal:
            return self._refused(refusal)
        except Exception as broken:  # ours, not the harness's: the evaluation has no score, rather than a wrong one
            self._fail(EngineError(f"{type(broken).__name__} in a model call", where="gateway"))
            return self._refused(Refused(503, "the model cannot be reached", cut=True))

    def _refused(self, refusal: Refused) -> web.Response:
        self.usage.refused += 1
        if refusal.attempt:
            self.usage.attempts[refusal.attempt] += 1
        response = error(refusal.status, refusal.message)
        if refusal.cut:
            response.force_close()
        return response

    def _fail(self, broken: EngineError) -> None:
        if not self.failure.done():
            self.failure.set_exception(broken)

    async def _route(self, request: web.BaseRequest) -> web.Response:
        match request.method, request.raw_path:
            case "GET", "/v1/models":
                return web.json_response({"object": "list", "data": [{"id": "model", "object": "model", "created": 0}]})
            case "POST", "/v1/chat/completions":
                return await self._answer(request, chat_request)
            case "POST", "/v1/completions":
                return await self._answer(request, text_request)
            case _:
                raise Refused(404, "there is no such path here", attempt="unknown path", cut=True)

    async def _answer(
        self, request: web.BaseRequest, build: Callable[[dict[str, Any], Decoding], Asked]
    ) -> web.Response:
        """One call, start to end; a second one queues behind it before its body is read."""
        async with self._one:
            asked = build(await read_object(request, limit=MAX_BODY, seconds=BODY_S), self._decoding)
            await self._opened.wait()
            reply = await self._call(asked)
        return web.json_response(asked.envelope(reply, int(time.time())))

    async def _call(self, asked: Asked) -> Completed:
        usage, limits = self.usage, self._limits
        if self._closing:
            raise Refused(503, "the session has ended", cut=True)
        if usage.asked >= limits.calls_per_problem:
            raise Refused(429, f"all {limits.calls_per_problem} model calls of this problem are used")
        left = limits.tokens_per_problem - usage.tokens_out
        if left <= 0:
            raise Refused(429, f"all {limits.tokens_per_problem} generated tokens of this problem are used")
        completion = asked.completion(self._decoding, min(asked.max_tokens, left), self._seed(usage.asked))
        usage.asked += 1
        started = time.monotonic()
        self.clock.stop()
        try:
            reply = _sound(await self._ask(completion))
        except RequestRefused as refusal:
            self._record(asked, Completed(refusal.what, "refused", 0, 0, 0.0), started)
            raise Refused(400, refusal.what) from None
        finally:
            self.clock.go()
        self._record(asked, reply, started)
        return reply

    async def _ask(self, completion: Completion) -> Completed:
        """The call as a task of its own: a client that hangs up does not change what the round holds."""
        self._pending = asyncio.create_task(self._engine.complete(self._session, completion))
        try:
            return await asyncio.shield(self._pending)
        except EngineError as broken:
            self._fail(broken)
            raise Refused(503, "the model cannot be reached", cut=True) from None
        finally:
            self._pending = self._pending if not self._pending.done() else None

    def _record(self, asked: Asked, reply: Completed, started: float) -> None:
        usage = self.usage
        usage.tokens_in += reply.tokens_in
        usage.tokens_out += reply.tokens_out
        usage.calls.append(
            Call(
                prompt=shorten(asked.shown(), KEPT_PROMPT),
                reply=reply.text,
                finish_reason=reply.finish_reason,
                tokens_in=reply.tokens_in,
                tokens_out=reply.tokens_out,
                seconds=time.monotonic() - started,
                overwritten=asked.overwritten,
            )
        )


def _sound(reply: Completed) -> Completed:
    """A text that can be written as UTF-8, whatever a checkpoint made the engine say."""
    return replace(reply, text=reply.text.encode("utf-8", "replace").decode())
