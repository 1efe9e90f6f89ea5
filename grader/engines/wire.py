"""What an engine's server and its manager say to each other over HTTP: requests built, replies capped and checked."""

from __future__ import annotations

import json
from typing import Any, Literal
from urllib.parse import quote

import aiohttp
from pydantic import Field

from grader.engines.base import Completed, Completion, EngineError, RequestRefused
from isolation.clean import clean_line
from tasks.spec import Frozen

MAX_REPLY = 32 << 20


class Ready(Frozen):
    """The line a server prints when it can be asked."""

    ready: Literal[True]
    transformers: str = Field(max_length=40)
    torch: str = Field(max_length=40)
    device: str = Field(max_length=20)
    dtype: str = Field(max_length=20)
    threads: int
    pid: int


def header(session: str) -> str:
    """A session id as a header can carry it."""
    return quote(session, safe=":.-_")


def request_of(call: Completion) -> tuple[str, dict[str, Any]]:
    """Path and body of a call."""
    body: dict[str, Any] = {"max_tokens": call.max_tokens, "stop": list(call.stop), "temperature": call.temperature}
    body |= {"top_p": call.top_p, "top_k": call.top_k, "presence_penalty": call.presence_penalty, "seed": call.seed}
    if call.messages is None:
        return "/v1/completions", {**body, "prompt": call.prompt}
    return "/v1/chat/completions", {**body, "messages": [{"role": r, "content": c} for r, c in call.messages]}


async def capped(reply: aiohttp.ClientResponse) -> bytes:
    data = bytearray()
    async for block in reply.content.iter_chunked(1 << 16):
        data += block
        if len(data) > MAX_REPLY:
            raise EngineError(f"the engine's reply is larger than {MAX_REPLY} bytes", where="engine")
    return bytes(data)


def value_of(status: int, data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise EngineError("the engine's reply is not JSON", where="engine") from error
    if not isinstance(value, dict):
        raise EngineError("the engine's reply is not an object", where="engine")
    if status == 200:
        return value
    why = clean_line(str(value.get("error", "")), 300)
    if 400 <= status < 500:
        raise RequestRefused(why or f"status {status}", where="engine")
    raise EngineError(f"the engine answered with status {status}: {why}", where="engine")


def completed(value: dict[str, Any], chat: bool, seconds: float) -> Completed:
    """The reply in our words. Raises EngineError when it is not a completion."""
    try:
        choice, usage = value["choices"][0], value["usage"]
        text = choice["message"]["content"] if chat else choice["text"]
        reason = choice["finish_reason"]
        tokens = (usage["prompt_tokens"], usage["completion_tokens"])
    except (KeyError, IndexError, TypeError) as error:
        raise EngineError("the engine's reply is not a completion", where="engine") from error
    if not isinstance(text, str) or reason not in ("stop", "length") or any(type(n) is not int for n in tokens):
        raise EngineError("the engine's reply is not a completion", where="engine")
    return Completed(text, reason, *tokens, seconds)
