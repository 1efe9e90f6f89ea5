"""The one fixed address behind a socket: who holds the key, how a request leaves, what an upstream's error means."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from isolation.clean import clean_line
from isolation.problem import BenchError
from runner.research.lenient import object_of
from runner.research.llm import anthropic
from runner.research.llm.protocol import Api, Upstream

PATHS: dict[Api, str] = {
    "messages": "/v1/messages",
    "count_tokens": "/v1/messages/count_tokens",
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
}
REPLY_BYTES = 64 << 20
_ERROR_BYTES = 64 << 10
_ERROR_CHARS = 2000
_PASSED_ON = frozenset({400, 413, 422})
_KEY_TROUBLE = frozenset({401, 402, 403, 407})
_AGAIN = frozenset({408, 409, 425, 429})


class LlmError(BenchError):
    """The LLM gateway cannot start, or has died."""


class Trouble(Exception):
    """The upstream gave no reply. ``again``: worth another try, after ``after_s`` where it said so. ``silent``: it has
    the request and said nothing for as long as it may; what it did with it in that time is not free."""

    def __init__(
        self, status: int, message: str, *, again: bool, key: bool = False, after_s: float = 0.0, silent: bool = False
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.again = again
        self.key = key
        self.after_s = after_s
        self.silent = silent


@dataclass(frozen=True, slots=True)
class Key:
    """A secret that does not show itself."""

    value: str

    def __repr__(self) -> str:
        return "Key(…)"


def read_key(upstream: Upstream) -> Key | None:
    """The key, from where the configuration says; None for an upstream without one. Raises LlmError."""
    if upstream.key_file is not None:
        try:
            value = Path(upstream.key_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not a text"
            raise LlmError(f"the key file cannot be read ({reason})", where="llm.key_file", do="Check it") from None
    elif upstream.key_env is not None:
        value = os.environ.get(upstream.key_env, "").strip()
    else:
        return None
    if not value or not value.isprintable() or not value.isascii():
        source = upstream.key_file or f"${upstream.key_env}"
        raise LlmError("no key", where=source, do="Set the variable, or name a file: --set llm.key_file=FILE")
    return Key(value)


def _kept_alive(info: tuple[Any, ...]) -> socket.socket:
    """A socket that notices a peer that is gone: a model may be silent for an hour, a dead one for ever."""
    made = socket.socket(family=info[0], type=info[1], proto=info[2])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 8)
    return made


class Reply:
    """An accepted reply of the upstream: its first bytes are there."""

    def __init__(self, response: aiohttp.ClientResponse, first: bytes, idle_s: float) -> None:
        self._response = response
        self._first = first
        self._idle_s = idle_s

    async def chunks(self, patience: list[float]) -> AsyncIterator[bytes]:
        """The bytes as they come. ``patience`` may hold a smaller number of seconds, put there while it streams.

        Raises TimeoutError and aiohttp's errors where the stream breaks.
        """
        chunk = self._first
        while chunk:
            yield chunk
            async with asyncio.timeout(min([self._idle_s, *patience])):
                chunk = await self._response.content.readany()

    async def body(self) -> bytes:
        """All of a reply that is no stream."""
        data = bytearray()
        async for chunk in self.chunks([]):
            data += chunk
            if len(data) > REPLY_BYTES:
                raise ValueError("a reply of the upstream is larger than 64 MiB")
        return bytes(data)


class Client:
    """Sends canonical requests to one upstream, with its key."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self._key = read_key(upstream)
        connector: aiohttp.BaseConnector
        if upstream.socket is not None:
            connector = aiohttp.UnixConnector(upstream.socket, limit=0)
        else:
            connector = aiohttp.TCPConnector(limit=0, socket_factory=_kept_alive)
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=30.0),
            headers={"User-Agent": "vibetraining-bench", "Accept-Encoding": "identity"},
        )

    async def close(self) -> None:
        await self._session.close()

    @asynccontextmanager
    async def ask(self, api: Api, payload: bytes, betas: str, *, stream: bool) -> AsyncIterator[Reply]:
        """One try. Raises Trouble where no reply begins."""
        url = self.upstream.base_url.rstrip("/").removesuffix("/v1") + PATHS[api]
        headers = self._headers(betas, stream)
        sending = self._session.post(url, data=payload, headers=headers, allow_redirects=False)
        try:
            async with asyncio.timeout(self.upstream.first_byte_s):
                response = await sending
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._unanswered("cannot be reached", error, stream) from None
        async with response:
            if response.status != 200:
                raise await self._trouble(response)
            yield Reply(response, await self._first(response, stream), self.upstream.idle_s)

    async def _first(self, response: aiohttp.ClientResponse, stream: bool) -> bytes:
        try:
            async with asyncio.timeout(self.upstream.first_byte_s):
                return await response.content.readany()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._unanswered("accepted and then said nothing", error, stream) from None

    def _unanswered(self, what: str, error: Exception, stream: bool) -> Trouble:
        """A try without a reply. Silence after a whole request is no sign of trouble where the reply is no stream: it
        comes at its end, and another try would only pay for another one."""
        if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ClientError):
            return Trouble(503, f"said nothing in {self.upstream.first_byte_s:g} s", again=stream, silent=True)
        return Trouble(503, f"{what} ({type(error).__name__})", again=True)

    def _headers(self, betas: str, stream: bool) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream" if stream else "application/json"}
        if self.upstream.style == "anthropic":
            headers["anthropic-version"] = anthropic.VERSION
            if betas:
                headers["anthropic-beta"] = betas
            if self._key is not None:
                headers["x-api-key"] = self._key.value
        elif self._key is not None:
            headers["Authorization"] = f"Bearer {self._key.value}"
        return headers

    async def _trouble(self, response: aiohttp.ClientResponse) -> Trouble:
        status = response.status
        try:
            async with asyncio.timeout(30):
                text = self._message(await response.content.read(_ERROR_BYTES))
        except (aiohttp.ClientError, OSError, TimeoutError):
            text = ""
        text = text or f"status {status}"
        if status in _KEY_TROUBLE or "insufficient_quota" in text:
            return Trouble(400, f"the upstream refuses this run's key (status {status}): {text}", again=False, key=True)
        if status in _PASSED_ON:
            return Trouble(status, text, again=False)
        again = status in _AGAIN or status >= 500
        return Trouble(503 if again else 400, text, again=again, after_s=_seconds(response.headers.get("Retry-After")))

    def _message(self, body: bytes) -> str:
        """The upstream's own words about an error, without the key."""
        error = object_of(body).get("error")
        said = error.get("message") if isinstance(error, dict) else error
        code = error.get("code") if isinstance(error, dict) else None
        text = said if isinstance(said, str) else body.decode("utf-8", "replace")
        text = f"{text} ({code})" if isinstance(code, str) else text
        if self._key is not None:
            text = text.replace(self._key.value, "[key]")
        return clean_line(text, _ERROR_CHARS)


def _seconds(header: str | None) -> float:
    try:
        return min(120.0, max(0.0, float(header or 0)))
    except ValueError:
        return 0.0
