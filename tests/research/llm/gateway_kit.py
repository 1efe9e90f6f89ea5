"""A real gateway process before a stand-in upstream, spoken to over its unix socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from standin import StandIn

from runner.research.llm.client import LlmGateway
from runner.research.llm.protocol import Door, Limits, Notice, Price, Style, Totals, Upstream

CANARY = "sk-canary-8c1f5a90b7"
MODEL = "model-1"
PRICE = Price(input=3.0, cached=0.3, cache_write=3.75, output=15.0, source="test", date="2026-11-30")


@dataclass
class Kit:
    """One gateway with one door; everything it told."""

    folder: Path
    standin: StandIn
    gateway: LlmGateway
    notices: list[Notice] = field(default_factory=list)
    heard: list[Totals] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    async def start(
        cls, folder: Path, standin: StandIn, style: Style, *, limits: Limits | None = None, price: Price = PRICE,
        **upstream: Any,
    ) -> Kit:  # fmt: skip
        where = Upstream(style=style, base_url=standin.url, **{"key_env": "TEST_LLM_KEY", "drain_s": 30.0, **upstream})
        door = Door(
            role="researcher", socket=str(folder / "llm.sock"), models=(MODEL,), upstream=where, price=price,
            limits=limits or Limits(),
        )  # fmt: skip
        kit = cls(folder, standin, None)  # type: ignore[arg-type]
        kit.gateway = LlmGateway((door,), folder / "llm.jsonl", folder / "llm.log", kit._noticed, kit._hear)
        await kit.gateway.start()
        return kit

    def _hear(self, totals: Totals) -> None:
        self.heard.append(totals)
        self.changed.set()

    def _noticed(self, notice: Notice) -> None:
        self.notices.append(notice)
        self.changed.set()

    async def until(self, so: Callable[[], bool]) -> None:
        """Wait until what the gateway told makes it ``so``."""
        while not so():
            self.changed.clear()
            await self.changed.wait()

    async def until_calls(self, count: int) -> Totals:
        """The totals once they hold ``count`` calls."""
        await self.until(lambda: bool(self.heard) and self.heard[-1].calls >= count)
        return self.heard[-1]

    @property
    def what(self) -> list[str]:
        return [notice.what for notice in self.notices]

    async def raw(self, data: bytes) -> bytes:
        """All that comes back for bytes that end a connection, one way or the other."""
        reader, writer = await asyncio.open_unix_connection(self.folder / "llm.sock", limit=1 << 26)
        try:
            writer.write(data)
            await writer.drain()
        except ConnectionError:
            pass
        try:
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()

    async def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        """A POST; the status and the body."""
        return split(await self.raw(request("POST", path, json.dumps(body).encode(), headers)))

    async def ask(self, api: str, *, stream: bool = True, **fields: Any) -> tuple[int, bytes]:
        """A good request of an API."""
        path, body = good(api, stream=stream)
        return await self.post(path, {**body, **fields})


def good(api: str, *, stream: bool = True) -> tuple[str, dict[str, Any]]:
    """The path and the body of the smallest good request."""
    said = [{"role": "user", "content": "hi"}]
    match api:
        case "messages":
            return "/v1/messages?beta=true", {"model": MODEL, "max_tokens": 1000, "messages": said, "stream": stream}
        case "count_tokens":
            return "/v1/messages/count_tokens", {"model": MODEL, "messages": said}
        case "responses":
            return "/v1/responses", {"model": MODEL, "input": said, "stream": stream, "store": False}
        case _:
            return "/v1/chat/completions", {"model": MODEL, "messages": said, "stream": stream}


def request(method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> bytes:
    """A request as bytes; its connection ends with the reply."""
    lines = {"Host": "x", "Connection": "close", "Content-Length": str(len(body)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def split(raw: bytes) -> tuple[int, bytes]:
    """Status and body of a reply; chunked ones are put together. 0: nothing came."""
    if not raw:
        return 0, b""
    head, _, body = raw.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    if b"transfer-encoding: chunked" not in head.lower():
        return status, body
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size or b"0", 16)
        whole, body = whole + body[:length], body[length + 2 :]
    return status, whole
