"""One door of the gateway: an HTTP server on a unix socket that is mounted into one sandbox, for one role.

Who asks is decided by which socket. Everything but a short list of exact requests is refused; what is let through is
parsed, checked and built anew; no byte and no header of the client reaches the upstream.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from grader.http import HangUp, read_object, strict_connection
from grader.request import Refused
from runner.research.llm import anthropic, openai
from runner.research.llm.account import Account, Call
from runner.research.llm.meter import BYTES_A_TOKEN
from runner.research.llm.protocol import APIS, Api, Door, Notice
from runner.research.llm.relay import Relay
from runner.research.llm.rules import Builder, Canonical
from runner.research.llm.upstream import Client, Trouble

MAX_BODY = 32 << 20
BODY_S = 120.0
MAX_CONNECTIONS = 64
MAX_DEPTH = 100
_SHUTDOWN_S = 0.1  # aiohttp takes 0 for "for ever"
_POSTS: dict[str, Api] = {
    "/v1/messages": "messages",
    "/v1/messages?beta=true": "messages",
    "/v1/messages/count_tokens": "count_tokens",
    "/v1/messages/count_tokens?beta=true": "count_tokens",
    "/v1/responses": "responses",
    "/v1/chat/completions": "chat",
}
_BUILDERS: dict[Api, Builder] = {
    "messages": anthropic.messages,
    "count_tokens": anthropic.count_tokens,
    "responses": openai.responses,
    "chat": openai.chat,
}


class DoorServer:
    """Serves one door. ``notify`` carries attempts and troubles to the runner."""

    def __init__(self, door: Door, client: Client, account: Account, notify: Callable[[Notice], None]) -> None:
        self._door = door
        self._client = client
        self._account = account
        self._notify = notify
        self._path = Path(door.socket)
        self._seen: Counter[str] = Counter()
        self._http = web.Server(self._handle)
        self._unix: asyncio.Server | None = None
        self._handling: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Listen; the socket's folder is private."""
        self._path.unlink(missing_ok=True)
        loop = asyncio.get_running_loop()
        self._unix = await loop.create_unix_server(self._connection, path=str(self._path), backlog=64)
        self._path.chmod(0o600)

    async def close(self) -> None:
        """Cut what is open; every call is charged first."""
        if self._unix is not None:
            self._unix.close()
        for task in self._handling:
            task.cancel()
        await asyncio.gather(*self._handling, return_exceptions=True)
        await self._http.shutdown(_SHUTDOWN_S)
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _connection(self) -> asyncio.BaseProtocol:
        if len(self._http.connections) >= MAX_CONNECTIONS:
            self._attempt("too many connections", "")
            return HangUp()
        return strict_connection(self._http, self._malformed)

    def _malformed(self) -> None:
        self._account.refused()
        self._attempt("LLM request: malformed", "bytes that are not HTTP")

    def _attempt(self, what: str, detail: str) -> None:
        """Tell of the first, tenth, hundredth… attempt of a kind: a flood is one line in ten times as many."""
        self._seen[what] += 1
        count = self._seen[what]
        if str(count).strip("0") == "1":
            times = f" ({count} times)" if count > 1 else ""
            self._notify(Notice(level="integrity", what=what, where=f"{self._door.role} LLM", detail=detail + times))

    def _trouble(self, trouble: Trouble) -> None:
        what = "the LLM upstream refuses the key" if trouble.key else "trouble with the LLM upstream"
        self._notify(Notice(level="warning", what=what, where=f"{self._door.role} LLM", detail=trouble.message))

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._handling.add(task)
        try:
            return await self._route(request)
        except Refused as refusal:
            return self._refused(refusal)
        except Exception as broken:  # ours, not the sandbox's; its text could hold what a request or a key held
            self._trouble(Trouble(500, f"a fault of the gateway: {type(broken).__name__}", again=False))
            return error(500, "the gateway failed")
        finally:
            self._handling.discard(task)

    def _refused(self, refusal: Refused) -> web.Response:
        if refusal.status < 500:  # the others are the upstream's trouble
            self._account.refused()
        if refusal.attempt:
            self._attempt(refusal.attempt, refusal.message)
        response = error(refusal.status, refusal.message)
        if refusal.status == 429:
            response.headers["x-should-retry"] = "false"
        if refusal.cut:
            response.force_close()
        return response

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        match request.method, request.raw_path:
            case "HEAD", "/":
                return web.Response()
            case "GET", "/v1/models":
                return web.json_response({"object": "list", "data": [_model(name) for name in self._door.models]})
            case "GET", "/v1/responses" if "upgrade" in request.headers:
                response = error(426, "web sockets are not offered: send POST")
                response.force_close()
                return response
            case "POST", path if _POSTS.get(path) in APIS[self._door.upstream.style]:
                return await self._call(request, _POSTS[path])
            case _:
                raise Refused(404, "there is no such path here", attempt="LLM request: path", cut=True)

    async def _call(self, request: web.BaseRequest, api: Api) -> web.StreamResponse:
        if request.headers.get("Content-Encoding", "identity") != "identity" or request.headers.get("Expect"):
            raise Refused(415, "send the body as it is, uncompressed", attempt="LLM request: compressed body", cut=True)
        body = await read_object(request, limit=MAX_BODY, seconds=BODY_S, max_depth=MAX_DEPTH)
        canonical = _BUILDERS[api](body, self._door.models)
        estimate = len(encode(canonical.body)) // BYTES_A_TOKEN
        call = await self._account.begin(api, canonical.body["model"], estimate, canonical.asked)
        relay = Relay(self._client, self._account, call, api=api, estimate=estimate, on_trouble=self._trouble)
        betas = anthropic.betas(request.headers.get("anthropic-beta", ""))
        return await relay.run(
            request,
            encode(clamped(canonical, call)),
            betas,
            stream=canonical.stream,
            hide_usage=canonical.usage_hidden,
        )


def clamped(canonical: Canonical, call: Call) -> dict[str, Any]:
    """The body with the limit that the account gave its reply; thinking is made to fit below it."""
    body = dict(canonical.body)
    if call.max_output is None or not canonical.limit_field:
        return body
    limit = min(call.max_output, canonical.asked or call.max_output)
    body[canonical.limit_field] = limit
    thinking = body.get("thinking")
    if isinstance(thinking, dict) and isinstance(thinking.get("budget_tokens"), int):
        if limit <= 1024:
            del body["thinking"]
        else:
            body["thinking"] = {**thinking, "budget_tokens": min(thinking["budget_tokens"], limit - 1)}
    return body


def encode(body: dict[str, Any]) -> bytes:
    """The one spelling of a request."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def error(status: int, message: str) -> web.Response:
    """An error that clients of both styles read."""
    kind = "rate_limit_error" if status == 429 else "invalid_request_error" if status < 500 else "api_error"
    told = {"type": kind, "message": message, "code": "insufficient_quota" if status == 429 else kind}
    return web.json_response({"type": "error", "error": told}, status=status)


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "type": "model", "object": "model", "created": 0, "display_name": name, "owned_by": "run"}
