"""The ``sample`` verb: replies to the agent's own prompts, from a gated model, without a problem in sight.

The prompts are the agent's: hostile text, bounded here. Seeds derive from (seed, prompt, reply), so asking again
gives the same replies under the same batches.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.engines.base import Completed, Completion, Engine, EngineError, RequestRefused
from grader.errors import GraderError
from grader.evaluate import call_seed
from grader.protocol import Generate
from grader.request import ROLES
from grader.strict import StrictError, parse_object
from isolation.files import write_atomic

MAX_PROMPTS = 10_000
MAX_REPLIES = 50_000
MAX_PROMPT_BYTES = 1 << 20
MAX_FILE = 64 << 20


@dataclass(frozen=True, slots=True)
class Prompt:
    """One line of the prompts file. A line with ``prompt`` is one user message, as in the training data."""

    messages: tuple[tuple[str, str], ...]


def read_prompts(path: Path, n: int) -> list[Prompt]:
    """The prompts of a JSON-lines file; raises GraderError with the line that is wrong."""
    if path.stat().st_size > MAX_FILE:
        raise GraderError(f"larger than {MAX_FILE >> 20} MiB", where=path.name, do="Split the prompts")
    prompts: list[Prompt] = []
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                prompts.append(_prompt(line, f"{path.name}:{number}"))
            if len(prompts) > MAX_PROMPTS or len(prompts) * n > MAX_REPLIES:
                most = f"{MAX_PROMPTS} prompts and {MAX_REPLIES} replies"
                raise GraderError(f"more than {most} at once", where=path.name, do="Split the prompts")
    if not prompts:
        raise GraderError("no prompts", where=path.name, do='Write one {"prompt": "..."} per line')
    return prompts


def _prompt(line: bytes, where: str) -> Prompt:
    if len(line) > MAX_PROMPT_BYTES:
        raise GraderError("a line longer than 1 MiB", where=where, do="Shorten the prompt")
    try:
        fields = parse_object(line)
    except StrictError as error:
        raise GraderError(str(error), where=where, do='Write {"prompt": "..."} or {"messages": [...]}') from None
    text, messages = fields.get("prompt"), fields.get("messages")
    if isinstance(text, str) and text and messages is None:
        return Prompt((("user", text),))
    if isinstance(messages, list) and messages and text is None and all(_is_message(one) for one in messages):
        return Prompt(tuple((one["role"], one["content"]) for one in messages))
    raise GraderError("neither prompt nor messages", where=where, do='Write {"prompt": "..."} or {"messages": [...]}')


def _is_message(one: Any) -> bool:
    if not isinstance(one, dict):
        return False
    role, content = one.get("role"), one.get("content")
    return isinstance(role, str) and role in ROLES and isinstance(content, str)


class Sampling:
    """One request of the verb."""

    def __init__(self, engine: Engine, request: Generate, wave: int, on_progress: Callable[[int, int], None]) -> None:
        self._engine = engine
        self._request = request
        self._wave = wave
        self._on_progress = on_progress
        self._done = 0

    async def run(self) -> dict[str, Any]:
        """Writes ``out_file`` whole and returns its counts. Raises GraderError or EngineError."""
        request = self._request
        prompts = read_prompts(Path(request.prompts_file), request.n)
        await self._engine.load(request.model)
        jobs = [(index, sample) for index in range(len(prompts)) for sample in range(request.n)]
        lines: list[str] = []
        refused = tokens = 0
        for start in range(0, len(jobs), self._wave):
            wave = jobs[start : start + self._wave]
            for (index, sample), reply in zip(wave, await self._wave_of(prompts, wave, start, len(jobs)), strict=True):
                refused += reply.finish_reason == "refused"
                tokens += reply.tokens_out
                lines.append(_line(index, sample, reply))
        write_atomic(Path(request.out_file), "".join(lines).encode("utf-8", "replace"))
        return {"prompts": len(prompts), "replies": len(lines), "refused": refused, "tokens_out": tokens}

    async def _wave_of(
        self, prompts: Sequence[Prompt], wave: Sequence[tuple[int, int]], start: int, total: int
    ) -> list[Completed]:
        keys = [f"{start + offset:06d}" for offset in range(len(wave))]
        await self._engine.sessions(keys, ())
        calls = [
            asyncio.create_task(self._one(key, prompts[index], index, sample, total))
            for key, (index, sample) in zip(keys, wave, strict=True)
        ]
        try:
            return list(await asyncio.gather(*calls))
        finally:
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            with suppress(EngineError):
                await self._engine.sessions((), keys)

    async def _one(self, key: str, prompt: Prompt, index: int, sample: int, total: int) -> Completed:
        request = self._request
        call = Completion(
            max_tokens=request.max_tokens,
            messages=prompt.messages,
            temperature=request.temperature,
            seed=call_seed(request.seed, f"sample {index}", sample, 0),
        )
        try:
            reply = await self._engine.complete(key, call)
        except RequestRefused as refusal:
            reply = Completed(refusal.what, "refused", 0, 0, 0.0)
        self._done += 1
        self._on_progress(self._done, total)
        return reply


def _line(index: int, sample: int, reply: Completed) -> str:
    fields = {
        "prompt": index,
        "sample": sample,
        "text": reply.text,
        "finish_reason": reply.finish_reason,
        "tokens_in": reply.tokens_in,
        "tokens_out": reply.tokens_out,
    }
    return json.dumps(fields) + "\n"
