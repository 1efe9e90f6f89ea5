"""One request's way to the upstream and its reply's way back: retried while nothing has passed, charged whatever ends.

A client that hangs up does not end the reply: it is read on for a while, so that the account holds the upstream's own
figure, and the client's place among the streams stays taken.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import aiohttp
from aiohttp import web

from grader.request import Refused
from runner.research.llm.account import SEEN_EVERY, Account, Call, add
from runner.research.llm.meter import Events, Meter
from runner.research.llm.protocol import Api, Tokens
from runner.research.llm.upstream import Client, Reply, Trouble

BREATH_S = 10.0  # a comment this often keeps a waiting client's stream alive
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 60.0
_BROKEN = (aiohttp.ClientError, OSError, TimeoutError, ValueError)
OnTrouble = Callable[[Trouble], None]


class Stream:
    """The client's side of a streaming reply. ``gone``: it hung up, or took nothing for ``stuck_s`` and was hung up on:
    a client that does not read must not hold the upstream's reply back, or what it cost would never be known."""

    def __init__(self, request: web.BaseRequest, stuck_s: float) -> None:
        self._request = request
        self._stuck_s = stuck_s
        self._response: web.StreamResponse | None = None
        self.gone = False

    @property
    def begun(self) -> bool:
        return self._response is not None

    async def write(self, data: bytes) -> None:
        """Send bytes; a client that is not there any more is noticed, never an error."""
        if self.gone:
            return
        try:
            async with asyncio.timeout(self._stuck_s):
                if self._response is None:
                    self._response = web.StreamResponse(
                        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
                    )
                    await self._response.prepare(self._request)
                await self._response.write(data)
        except TimeoutError:
            self.gone = True
            self.tear()
        except (ConnectionError, RuntimeError):
            self.gone = True

    async def finish(self) -> web.StreamResponse:
        """The end, as it should be."""
        assert self._response is not None
        if not self.gone:
            try:
                async with asyncio.timeout(self._stuck_s):
                    await self._response.write_eof()
            except TimeoutError:
                self.gone = True
                self.tear()
            except (ConnectionError, RuntimeError):
                self.gone = True
        return self._response

    def tear(self) -> None:
        """The end of a reply that broke off: the client must not take it for whole."""
        if self._request.transport is not None:
            self._request.transport.abort()


class Relay:
    """Forwards one call that the account has let through."""

    def __init__(
        self,
        client: Client,
        account: Account,
        call: Call,
        *,
        api: Api,
        estimate: int,
        asked: int | None,
        on_trouble: OnTrouble,
    ) -> None:
        """``estimate`` and ``asked``: the tokens of the request, and of the longest reply that it wants."""
        self._client = client
        self._account = account
        self._call = call
        self._api = api
        self._meter = Meter(api, estimate)
        self._estimate = estimate
        self._longest = call.max_output or asked or 0
        self._on_trouble = on_trouble
        self._asked = False
        self._unsaid = Tokens()  # what tries may have used that were never answered

    async def run(
        self,
        request: web.BaseRequest,
        payload: bytes,
        betas: str,
        *,
        stream: bool,
        hide_usage: bool,
        stuck_s: float,
    ) -> web.StreamResponse:
        """The reply to the client. Raises Refused where the upstream gives none. The call is charged either way."""
        out = Stream(request, stuck_s)
        try:
            return await self._tries(out, payload, betas, stream=stream, hide_usage=hide_usage)
        finally:
            if self._asked:
                self._end("cut")
            else:
                self._account.end(self._call, "failed", self._unsaid, estimated=self._unsaid != Tokens())
            await self._account.freed()

    async def _tries(
        self, out: Stream, payload: bytes, betas: str, *, stream: bool, hide_usage: bool
    ) -> web.StreamResponse:
        pause = _FIRST_PAUSE_S
        tries = self._client.upstream.tries
        for number in range(1, tries + 1):
            self._asked = True  # from here on the upstream may be at work, whatever becomes of us
            try:
                async with self._client.ask(self._api, payload, betas, stream=stream) as reply:
                    return await (self._stream(out, reply, hide_usage) if stream else self._whole(reply))
            except Trouble as trouble:
                self._asked = False
                if trouble.silent:
                    self._unanswered(stream)
                if not trouble.again or number == tries or out.gone:
                    self._on_trouble(trouble)
                    return await self._give_up(out, trouble)
                await self._wait(out, max(pause, trouble.after_s), stream)
                pause = min(_LONGEST_PAUSE_S, pause * 2)
        raise AssertionError("unreachable")

    async def _wait(self, out: Stream, seconds: float, stream: bool) -> None:
        """Wait for the next try; a streaming client hears that it is still being served."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (left := until - loop.time()) > 0 and not out.gone:
            if stream:
                await out.write(b": waiting for the model\n\n")
            await asyncio.sleep(min(BREATH_S, left))

    async def _give_up(self, out: Stream, trouble: Trouble) -> web.StreamResponse:
        if not out.begun:
            raise Refused(trouble.status, f"the model cannot answer: {trouble.message}")
        await out.write(_error_event(trouble.message))
        return await out.finish()

    async def _stream(self, out: Stream, reply: Reply, hide_usage: bool) -> web.StreamResponse:
        events = Events()
        patience: list[float] = []
        told = SEEN_EVERY
        try:
            async for chunk in reply.chunks(patience):
                if self._meter.done or not (whole := events.feed(chunk)):
                    continue  # what comes behind the end belongs to nothing
                passing = self._meter.follow(whole, hide_usage=hide_usage)
                if self._meter.done:
                    self._end("ok")
                elif (used := self._meter.output()) >= told:
                    told = used + SEEN_EVERY
                    self._account.seen(self._call, add(self._unsaid, self._meter.tokens()))
                if passing:
                    await out.write(passing)
                if out.gone and not patience:
                    patience.append(self._client.upstream.drain_s)
        except _BROKEN as error:
            self._on_trouble(Trouble(503, f"a reply broke off ({type(error).__name__})", again=False))
        if not self._meter.done or not out.begun:
            out.tear()
            raise Refused(503, "the reply of the model broke off", cut=True)
        return await out.finish()

    async def _whole(self, reply: Reply) -> web.Response:
        try:
            body = await reply.body()
        except _BROKEN as error:
            self._on_trouble(Trouble(503, f"a reply broke off ({type(error).__name__})", again=False))
            raise Refused(503, "the reply of the model broke off", cut=True) from None
        self._meter.whole(body)
        self._end("ok")
        return web.Response(body=body, content_type="application/json")

    def _unanswered(self, stream: bool) -> None:
        """Take a try into account that the upstream has and said nothing to: its input, and where the reply would only
        come at its end, all that it may have generated."""
        if self._api == "count_tokens":
            return
        longest = 0 if stream else self._longest
        self._unsaid = add(self._unsaid, Tokens(input=self._estimate, output=longest))
        self._account.seen(self._call, self._unsaid)

    def _end(self, status: str) -> None:
        exact = self._meter.exact and self._unsaid == Tokens()
        self._account.end(self._call, status, add(self._unsaid, self._meter.tokens()), estimated=not exact)


def _error_event(message: str) -> bytes:
    """An error in a stream that has begun, as the clients of all three APIs read it."""
    error = {"type": "api_error", "code": "server_error", "message": f"the model cannot answer: {message}"}
    return f"event: error\ndata: {json.dumps({'type': 'error', 'error': error})}\n\n".encode()
