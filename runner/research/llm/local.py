"""A model on this machine as the researcher's: the program's own engine, in its own sandbox, behind a unix socket.

It is an upstream of the LLM gateway like any other and speaks Chat Completions: texts in, a text out, no tools. On the
CPU always: the accelerator is the target system's.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from grader.engines.base import Completed, Completion, EngineError, RequestRefused
from grader.engines.transformers import OnNotice, TransformersEngine
from grader.protocol import EngineConfig, ModelRef
from runner.research.memory import Share

REPLY_TOKENS = 512
_TEMPERATURE = 0.7  # a model that always takes the likeliest word repeats its last command for ever
_ROLES = {"system": "system", "developer": "system", "user": "user", "tool": "user", "assistant": "assistant"}


@asynccontextmanager
async def served(
    base_dir: Path, model_env: Path, runtime: Path, log: Path, *, share: Share, seed: int, on_notice: OnNotice
) -> AsyncIterator[Path]:
    """The model in ``base_dir``, served around the block on the socket that is yielded; ``runtime`` is a private
    folder with a short path, ``share`` what its engine may hold. Raises EngineError where it cannot be loaded."""
    nothing = runtime / "none"
    nothing.mkdir(exist_ok=True)
    config = EngineConfig(device="cpu", dtype="bfloat16", wave=share.batch)
    engine = TransformersEngine(
        config, model_env, base_dir, nothing, runtime, log, on_notice=on_notice, memory=share.memory, rounds=False,
        more_memory="a smaller local model, or more machine",
    )  # fmt: skip
    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/v1/chat/completions", _Chat(engine, seed).answer)
    front = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    try:
        await engine.start()
        await engine.load(ModelRef(id="m00", format="base"))
        await front.setup()
        await web.UnixSite(front, str(runtime / "s")).start()
        yield runtime / "s"
    finally:
        await front.cleanup()
        await engine.stop()


class _Chat:
    """Answers requests; each draws anew, the same run draws the same."""

    def __init__(self, engine: TransformersEngine, seed: int) -> None:
        self._engine = engine
        self._seed = seed
        self._calls = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions."""
        self._calls += 1
        try:
            body = await request.json()
            call = completion_of(body, self._seed * 1_000_003 + self._calls)
            done = await self._engine.complete(f"agent-{self._calls}", call)
        except (RequestRefused, ValueError) as refusal:
            return web.json_response({"error": {"message": str(refusal)}}, status=400)
        except (KeyError, TypeError):
            return web.json_response({"error": {"message": "not a request that this model understands"}}, status=400)
        except EngineError as broken:
            return web.json_response({"error": {"message": str(broken)}}, status=500)
        if not body.get("stream"):
            choice = {"message": {"role": "assistant", "content": done.text}, "finish_reason": done.finish_reason}
            return web.json_response({"object": "chat.completion", "choices": [{"index": 0, **choice}], **_usage(done)})
        return web.Response(body=_events(done), content_type="text/event-stream")


def completion_of(body: dict[str, Any], seed: int) -> Completion:
    """A request as the engine takes it. Raises ValueError for what it cannot do."""
    if body.get("tools"):
        raise ValueError("this model has no tools: let it write its commands as text")
    messages = tuple((_ROLES[message["role"]], _text(message.get("content"))) for message in body["messages"])
    stop = body.get("stop") or ()
    return Completion(
        max_tokens=body.get("max_completion_tokens") or body.get("max_tokens") or REPLY_TOKENS,
        messages=messages,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        temperature=body.get("temperature", _TEMPERATURE),
        top_p=body.get("top_p", 1.0),
        presence_penalty=body.get("presence_penalty", 0.0),
        seed=seed,
    )


def _text(content: object) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else []
    if not all(isinstance(part, dict) and part.get("type") == "text" for part in parts):
        raise ValueError("this model reads text only")
    return "\n".join(str(part["text"]) for part in parts)


def _usage(done: Completed) -> dict[str, Any]:
    return {"usage": {"prompt_tokens": done.tokens_in, "completion_tokens": done.tokens_out}}


def _events(done: Completed) -> bytes:
    """A whole reply as the events of a stream."""
    said = {"index": 0, "delta": {"role": "assistant", "content": done.text}, "finish_reason": None}
    end = {"index": 0, "delta": {}, "finish_reason": done.finish_reason}
    chunks = ({"choices": [said]}, {"choices": [end]}, {"choices": [], **_usage(done)})
    return b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks) + b"data: [DONE]\n\n"
