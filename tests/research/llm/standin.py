"""A stand-in upstream, written by us: it speaks the three APIs, plays what a test planned, and keeps what it was sent.

It refuses what is not canonical: whatever reaches it that the gateway should have held back is a test's failure.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

PATHS = {"/v1/messages": "messages", "/v1/messages/count_tokens": "count_tokens", "/v1/responses": "responses",
         "/v1/chat/completions": "chat"}  # fmt: skip
HEADERS = {"host", "user-agent", "accept", "accept-encoding", "content-type", "content-length", "x-api-key",
           "authorization", "anthropic-version", "anthropic-beta"}  # fmt: skip


@dataclass(frozen=True)
class Turn:
    """What the model says next: a text, then tool calls (name, arguments), and what it reports as used."""

    text: str = "hello"
    tools: tuple[tuple[str, dict[str, Any]], ...] = ()
    input: int = 100
    cached: int = 40
    output: int = 7


@dataclass
class Sent:
    """A request as it arrived."""

    api: str
    headers: dict[str, str]
    body: dict[str, Any]


Plan = Callable[[Sent], Turn]
Act = Callable[[web.Request, web.StreamResponse, list[bytes]], Awaitable[None]]


async def play(_request: web.Request, out: web.StreamResponse, events: list[bytes]) -> None:
    """The plain way: one event after the other."""
    for event in events:
        await out.write(event)


@dataclass
class StandIn:
    """``plan`` chooses the turn of a request, ``act`` how a stream is sent, ``refusals`` what is answered first."""

    plan: Plan = lambda _sent: Turn()
    act: Act = play
    refusals: list[tuple[int, dict[str, Any]] | Callable[[], Awaitable[None]]] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""
    _runner: web.AppRunner | None = None

    async def start(self) -> StandIn:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{rest:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def never(self) -> None:
        """Accept a request and say nothing."""
        await self.closing.wait()

    async def close(self) -> None:
        assert self._runner is not None
        self.closing.set()
        await self._runner.cleanup()

    def used(self) -> dict[str, int]:
        """The figures it reported, summed as the gateway should have them."""
        return {
            "input": sum(turn.input - turn.cached for turn in self.turns),
            "cached": sum(turn.cached for turn in self.turns),
            "cache_write": 0,
            "output": sum(turn.output for turn in self.turns),
        }

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        api = PATHS.get(request.raw_path)
        strange = {name.lower() for name in request.headers} - HEADERS
        if request.method != "POST" or api is None or strange or request.version != (1, 1):
            self.faults.append(f"{request.method} {request.raw_path} {sorted(strange)}")
            return web.json_response({"error": {"message": "not canonical"}}, status=400)
        raw = await request.read()
        body = json.loads(raw)
        if raw != json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode():
            self.faults.append("a body in another spelling")
        sent = Sent(api, {name.lower(): value for name, value in request.headers.items()}, body)
        self.sent.append(sent)
        if self.refusals:
            refusal = self.refusals.pop(0)
            if not isinstance(refusal, tuple):
                await refusal()
                return web.json_response({}, status=500)
            return web.json_response({"error": refusal[1]}, status=refusal[0])
        if api == "count_tokens":
            return web.json_response({"input_tokens": 100})
        turn = self.plan(sent)
        self.turns.append(turn)
        if not body["stream"]:
            return web.json_response(whole(api, turn, body["model"]))
        out = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await out.prepare(request)
        await self.act(request, out, stream(api, turn, body["model"]))
        return out


def event(data: dict[str, Any], *, named: bool = True) -> bytes:
    name = f"event: {data['type']}\n" if named else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


def stream(api: str, turn: Turn, model: str) -> list[bytes]:
    """A turn as the events of an API."""
    return {"messages": _messages, "responses": _responses, "chat": _chat}[api](turn, model)


def whole(api: str, turn: Turn, model: str) -> dict[str, Any]:
    """A turn as one reply."""
    if api == "messages":
        return {**_message(turn, model), "content": [{"type": "text", "text": turn.text}], "usage": _claude(turn)}
    if api == "responses":
        part = {"type": "output_text", "text": turn.text, "annotations": []}
        return _response(turn, model, "completed", [{"type": "message", "role": "assistant", "content": [part]}])
    choice = {"index": 0, "message": {"role": "assistant", "content": turn.text}, "finish_reason": "stop"}
    return {"id": "x", "object": "chat.completion", "model": model, "choices": [choice], "usage": _openai(turn)}


def _claude(turn: Turn) -> dict[str, int]:
    uncached = turn.input - turn.cached
    return {"input_tokens": uncached, "cache_read_input_tokens": turn.cached, "cache_creation_input_tokens": 0,
            "output_tokens": turn.output}  # fmt: skip


def _openai(turn: Turn) -> dict[str, Any]:
    return {"prompt_tokens": turn.input, "completion_tokens": turn.output,
            "prompt_tokens_details": {"cached_tokens": turn.cached}}  # fmt: skip


def _message(turn: Turn, model: str) -> dict[str, Any]:
    reason = "tool_use" if turn.tools else "end_turn"
    return {"id": f"msg_{id(turn)}", "type": "message", "role": "assistant", "model": model, "content": [],
            "stop_reason": reason, "stop_sequence": None}  # fmt: skip


def _messages(turn: Turn, model: str) -> list[bytes]:
    start = {**_message(turn, model), "stop_reason": None, "usage": {**_claude(turn), "output_tokens": 1}}
    events = [{"type": "message_start", "message": start}]
    blocks: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"type": "text", "text": ""}, {"type": "text_delta", "text": turn.text})
    ]
    for number, (name, given) in enumerate(turn.tools):
        block = {"type": "tool_use", "id": f"toolu_{id(turn)}_{number}", "name": name, "input": {}}
        blocks.append((block, {"type": "input_json_delta", "partial_json": json.dumps(given)}))
    for index, (block, delta) in enumerate(blocks):
        events += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    reason = {"stop_reason": "tool_use" if turn.tools else "end_turn", "stop_sequence": None}
    events += [
        {"type": "message_delta", "delta": reason, "usage": {"output_tokens": turn.output}},
        {"type": "message_stop"},
    ]
    return [event(one) for one in events]


def _response(turn: Turn, model: str, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    usage = {"input_tokens": turn.input, "input_tokens_details": {"cached_tokens": turn.cached},
             "output_tokens": turn.output, "output_tokens_details": {"reasoning_tokens": 0},
             "total_tokens": turn.input + turn.output}  # fmt: skip
    return {"id": f"resp_{id(turn)}", "object": "response", "created_at": 0, "status": status, "model": model,
            "output": output, "error": None, "usage": usage if status == "completed" else None}  # fmt: skip


def _responses(turn: Turn, model: str) -> list[bytes]:
    part = {"type": "output_text", "text": turn.text, "annotations": []}
    said = {"type": "message", "id": f"msg_{id(turn)}", "role": "assistant", "status": "completed", "content": [part]}
    calls = []
    for number, (name, given) in enumerate(turn.tools):
        ids = {"id": f"fc_{id(turn)}_{number}", "call_id": f"call_{id(turn)}_{number}", "name": name}
        form = {"type": "function_call", "arguments": json.dumps(given)}
        if "" in given:  # a tool that takes a text, not an object
            form = {"type": "custom_tool_call", "input": given[""]}
        calls.append({**ids, **form, "status": "completed"})
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": _response(turn, model, "in_progress", [])},
        {"type": "response.output_item.added", "output_index": 0, "item": {**said, "content": []}},
        {"type": "response.output_text.delta", "item_id": said["id"], "output_index": 0, "content_index": 0,
         "delta": turn.text},
        {"type": "response.output_item.done", "output_index": 0, "item": said},
    ]  # fmt: skip
    for number, call in enumerate(calls, 1):
        events += [
            {"type": "response.output_item.added", "output_index": number, "item": call},
            {"type": "response.output_item.done", "output_index": number, "item": call},
        ]
    events.append({"type": "response.completed", "response": _response(turn, model, "completed", [said, *calls])})
    return [event({**one, "sequence_number": number}) for number, one in enumerate(events)]


def _chat(turn: Turn, model: str) -> list[bytes]:
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": model}
    calls = [
        {"index": number, "id": f"call_{id(turn)}_{number}", "type": "function",
         "function": {"name": name, "arguments": json.dumps(given)}}
        for number, (name, given) in enumerate(turn.tools)
    ]  # fmt: skip
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": turn.text}]
    deltas += [{"tool_calls": calls}] if calls else []
    events = [{**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    reason = "tool_calls" if calls else "stop"
    events.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    events.append({**base, "choices": [], "usage": _openai(turn)})
    return [*(event(one, named=False) for one in events), b"data: [DONE]\n\n"]
