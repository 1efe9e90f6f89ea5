"""One door of the gateway: an HTTP server on a unix socket that is mounted into one sandbox, for one role.

Who asks is decided by which socket. Everything but a short list of exact requests is refused; what is let through is
parsed, checked and built anew; no byte and no header of the client reaches the upstream.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from aiohttp import web

from grader.http import HangUp, read_object, strict_connection
from grader.request import Refused
from runner.research.llm import anthropic, openai
from runner.research.llm.account import Account
from runner.research.llm.draft import Draft
from runner.research.llm.protocol import APIS, Api, Door, Notice
from runner.research.llm.relay import Relay
from runner.research.llm.rules import Builder
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
        # Taken before a body is read: who waits is held back by its socket and costs no memory.
        self._room = asyncio.Semaphore(door.limits.streams)

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
        self._tell("integrity", what, detail)

    def _trouble(self, trouble: Trouble) -> None:
        what = "the LLM upstream refuses the key" if trouble.key else "trouble with the LLM upstream"
        self._tell("warning", what, trouble.message)

    def _tell(self, level: Literal["integrity", "warning"], what: str, detail: str) -> None:
        """Tell of the first, tenth, hundredth… of a kind: the sandbox can make them, and a flood is a few lines."""
        self._seen[what] += 1
        count = self._seen[what]
        if str(count).strip("0") == "1":
            times = f" ({count} times)" if count > 1 else ""
            self._notify(Notice(level=level, what=what, where=f"{self._door.role} LLM", detail=detail + times))

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
        async with self._room:
            body = await read_object(request, limit=MAX_BODY, seconds=BODY_S, max_depth=MAX_DEPTH)
            draft = Draft.of(_BUILDERS[api](body, self._door.models))
            del body
            call = await self._account.begin(api, draft.model, draft.estimate, draft.asked)
            relay = Relay(
                self._client,
                self._account,
                call,
                api=api,
                estimate=draft.estimate,
                asked=draft.asked,
                on_trouble=self._trouble,
            )
            return await relay.run(
                request,
                draft.payload(call.max_output),
                anthropic.betas(request.headers.get("anthropic-beta", "")),
                stream=draft.stream,
                hide_usage=draft.usage_hidden,
                stuck_s=self._door.limits.stuck_s,
            )


def error(status: int, message: str) -> web.Response:
    """An error that clients of both styles read."""
    kind = "rate_limit_error" if status == 429 else "invalid_request_error" if status < 500 else "api_error"
    told = {"type": kind, "message": message, "code": "insufficient_quota" if status == 429 else kind}
    return web.json_response({"type": "error", "error": told}, status=status)


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "type": "model", "object": "model", "created": 0, "display_name": name, "owned_by": "run"}
