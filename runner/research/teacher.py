"""The teacher: a model outside, which answers the agent's own prompts through the LLM gateway's second door.

The desk is the client; no sandbox has this socket. What comes back is foreign text: it is bounded here, and written
where the agent reads it, with the teacher's name on every row. The account is the gateway's.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from isolation.clean import clean_line
from runner.research.llm.protocol import Limits, Style

MAX_REPLIES = 50_000
REPLY_TOKENS = 4096  # where the agent names no limit: a call reserves what its reply may cost
_REPLY_CHARS = 1 << 20
_ALL_CHARS = 128 << 20
_ERROR_BYTES = 64 << 10
_SPENT = 429
_PATHS: dict[Style, str] = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}


@dataclass(frozen=True, slots=True)
class Teacher:
    """Where it is asked, and as what. ``limits``: how many calls at once, and how long a reply may be."""

    socket: Path
    model: str
    style: Style
    limits: Limits


@dataclass(frozen=True, slots=True)
class Wanted:
    """``n`` replies to each prompt (checked lines, as the grader reads them), drawn at ``temperature`` (None: the
    teacher's own)."""

    prompts: Sequence[bytes]
    n: int
    max_tokens: int | None
    temperature: float | None


@dataclass(slots=True)
class Lesson:
    """What has come so far, by (prompt, sample), each told to ``keep`` at once; ``error`` is the first that did not, in
    one line."""

    keep: Callable[[Mapping[str, Any]], None] = lambda _row: None
    rows: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    failed: int = 0
    error: str = ""
    spent: bool = False
    chars: int = 0

    def add(self, prompt: int, sample: int, said: Mapping[str, Any]) -> None:
        """Take in one reply."""
        row = {"prompt": prompt, "sample": sample, **said}
        self.keep(row)
        self.rows[prompt, sample] = row
        self.chars += len(row["text"])


async def learn(teacher: Teacher, wanted: Wanted, lesson: Lesson, on_reply: Callable[[int, int], None]) -> None:
    """Ask for every reply and put it into ``lesson`` as it comes, so that an end in between loses nothing paid for.

    Ends early once a budget is used up. Never raises for what the model or its upstream does.
    """
    total = len(wanted.prompts) * wanted.n
    room = asyncio.Semaphore(teacher.limits.streams)
    connector = aiohttp.UnixConnector(str(teacher.socket), limit=0)
    timeout = aiohttp.ClientTimeout(total=None)  # the gateway's own limits end a call; the budget ends the phase

    async with aiohttp.ClientSession(connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as http:

        async def one(index: int, sample: int) -> None:
            async with room:
                if lesson.spent:
                    return
                said = await _reply(http, teacher, body_of(teacher, wanted, wanted.prompts[index]))
            if isinstance(said, _No):
                lesson.failed += 1
                lesson.error = lesson.error or said.line
                lesson.spent = lesson.spent or said.spent
            else:
                lesson.add(index, sample, {**said, "teacher": teacher.model})
                if lesson.chars > _ALL_CHARS:
                    lesson.spent, lesson.error = True, lesson.error or "more text than one file may hold: ask for less"
            on_reply(len(lesson.rows), total)

        asks = [asyncio.create_task(one(i, k)) for i in range(len(wanted.prompts)) for k in range(wanted.n)]
        try:
            await asyncio.gather(*asks)
        finally:
            for ask in asks:
                ask.cancel()
            await asyncio.gather(*asks, return_exceptions=True)


def body_of(teacher: Teacher, wanted: Wanted, prompt: bytes) -> dict[str, Any]:
    """The request for one reply to one checked prompt, in the teacher's API."""
    fields = json.loads(prompt)
    messages = fields.get("messages") or [{"role": "user", "content": fields["prompt"]}]
    most = min(wanted.max_tokens or REPLY_TOKENS, teacher.limits.max_output)
    body: dict[str, Any] = {"model": teacher.model}
    if wanted.temperature is not None:  # what nobody asked for is not sent: some models refuse the field
        body["temperature"] = wanted.temperature
    if teacher.style == "openai":
        return {**body, "messages": messages, "max_completion_tokens": most}
    system = "\n\n".join(one["content"] for one in messages if one["role"] == "system")
    turns = [one for one in messages if one["role"] != "system"] or [{"role": "user", "content": system}]
    return {**body, "messages": turns, "max_tokens": most, **({"system": system} if system else {})}


@dataclass(frozen=True, slots=True)
class _No:
    """No reply: one line, and whether nothing more can be asked."""

    line: str
    spent: bool = False


async def _reply(http: aiohttp.ClientSession, teacher: Teacher, body: dict[str, Any]) -> dict[str, Any] | _No:
    try:
        async with http.post(f"http://teacher{_PATHS[teacher.style]}", json=body) as answer:
            if answer.status != 200:
                return _No(_error(await answer.content.read(_ERROR_BYTES)), spent=answer.status == _SPENT)
            return _row(teacher.style, json.loads(await answer.read()))
    except (aiohttp.ClientError, OSError, ValueError, RecursionError) as error:
        return _No(f"no reply of the gateway ({type(error).__name__})")


def _error(body: bytes) -> str:
    try:
        said = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        said = body.decode("utf-8", "replace")
    return clean_line(str(said), 300)


def _row(style: Style, said: Any) -> dict[str, Any] | _No:
    """The text of a reply and what is known of it; total over whatever an upstream sends."""
    try:
        if style == "openai":
            choice, usage = said["choices"][0], said.get("usage") or {}
            text, finish = choice["message"]["content"], choice.get("finish_reason")
            counts = usage.get("prompt_tokens"), usage.get("completion_tokens")
        else:
            usage, finish = said.get("usage") or {}, said.get("stop_reason")
            text = "".join(part["text"] for part in said["content"] if part.get("type") == "text")
            counts = usage.get("input_tokens"), usage.get("output_tokens")
    except (KeyError, IndexError, TypeError, AttributeError):
        return _No("a reply that is none of its API")
    if not isinstance(text, str):
        return _No("a reply without a text")
    return {
        "text": text[:_REPLY_CHARS],
        "finish_reason": clean_line(str(finish), 40),
        "tokens_in": counts[0] if isinstance(counts[0], int) else 0,
        "tokens_out": counts[1] if isinstance(counts[1], int) else 0,
    }
