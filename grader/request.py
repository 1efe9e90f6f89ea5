"""A harness's model request, checked and built anew: what it may decide passes, the rest is the task's.

Pure functions of the parsed body. Field names that are counted come from a fixed list, never from the body.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from grader.engines.base import Completed, Completion
from tasks.spec import Decoding

MAX_STOPS = 8
MAX_STOP_CHARS = 64
MAX_MESSAGES = 256
ROLES = frozenset({"system", "user", "assistant"})

# Everything else an OpenAI-compatible server understands and that would change what the model does.
DECIDED_HERE = frozenset({
    "temperature", "top_p", "top_k", "min_p", "typical_p", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "length_penalty", "seed", "logit_bias", "logprobs", "top_logprobs", "echo", "suffix",
    "ignore_eos", "min_tokens", "stop_token_ids", "skip_special_tokens", "include_stop_str_in_output",
    "use_beam_search", "response_format", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
    "structured_outputs", "tools", "tool_choice", "functions", "function_call", "parallel_tool_calls",
    "chat_template", "chat_template_kwargs", "add_generation_prompt", "continue_final_message",
    "add_special_tokens", "truncate_prompt_tokens", "reasoning_effort", "modalities", "prediction",
    "service_tier", "store"
})  # fmt: skip
# Fields that change nothing here and are passed over in silence.
HARMLESS = frozenset({"model", "messages", "prompt", "stop", "max_tokens", "max_completion_tokens", "user", "metadata"})
COUNTED_ONE = ("n", "best_of")


class Refused(Exception):
    """A request gets an HTTP error and nothing else. ``attempt`` names it in the journal; ``cut`` hangs up."""

    def __init__(self, status: int, message: str, *, attempt: str = "", cut: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.attempt = attempt
        self.cut = cut


@dataclass(frozen=True, slots=True)
class Asked:
    """What a harness may ask. Exactly one of ``messages`` and ``prompt`` is set."""

    max_tokens: int
    stop: tuple[str, ...]
    messages: tuple[tuple[str, str], ...] | None
    prompt: str | None
    overwritten: tuple[str, ...]

    def completion(self, decoding: Decoding, max_tokens: int, seed: int) -> Completion:
        """The pinned call."""
        return Completion(
            max_tokens=max_tokens,
            messages=self.messages,
            prompt=self.prompt,
            stop=self.stop,
            temperature=decoding.temperature,
            top_p=decoding.top_p,
            top_k=decoding.top_k,
            presence_penalty=decoding.presence_penalty,
            seed=seed,
        )

    def shown(self) -> str:
        """The prompt as a trajectory shows it: text, or the messages as JSON."""
        if self.messages is None:
            return self.prompt or ""
        return json.dumps([{"role": role, "content": text} for role, text in self.messages], ensure_ascii=False)

    def envelope(self, reply: Completed, created: int) -> dict[str, Any]:
        """The reply in OpenAI's form; ``created`` in Unix seconds."""
        chat = self.messages is not None
        text = {"message": {"role": "assistant", "content": reply.text}} if chat else {"text": reply.text}
        return {
            "id": "call",
            "object": "chat.completion" if chat else "text_completion",
            "created": created,
            "model": "model",
            "choices": [{"index": 0, **text, "finish_reason": reply.finish_reason, "logprobs": None}],
            "usage": {
                "prompt_tokens": reply.tokens_in,
                "completion_tokens": reply.tokens_out,
                "total_tokens": reply.tokens_in + reply.tokens_out,
            },
        }


def chat_request(body: dict[str, Any], decoding: Decoding) -> Asked:
    """POST /v1/chat/completions. Raises Refused."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not 0 < len(messages) <= MAX_MESSAGES:
        raise Refused(400, f"messages must be a list of 1 to {MAX_MESSAGES} messages")
    return _asked(body, decoding, tuple(_message(message) for message in messages), None)


def text_request(body: dict[str, Any], decoding: Decoding) -> Asked:
    """POST /v1/completions. Raises Refused."""
    prompt = body.get("prompt")
    if not isinstance(prompt, str) or not prompt:
        raise Refused(400, "prompt must be one non-empty string")
    return _asked(body, decoding, None, prompt)


def _asked(
    body: dict[str, Any], decoding: Decoding, messages: tuple[tuple[str, str], ...] | None, prompt: str | None
) -> Asked:
    for name in COUNTED_ONE:
        if body.get(name) not in (None, 1) or body.get(name) is True:
            raise Refused(400, f"{name} must be 1: one call is one reply", attempt=f"{name} > 1")
    if body.get("stream"):
        raise Refused(400, "streaming is not offered: send the request without stream")
    asked, cut = _max_tokens(body, decoding.max_tokens)
    return Asked(asked, _stops(body.get("stop")), messages, prompt, _overwritten(body, decoding, cut))


def _message(message: object) -> tuple[str, str]:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(role, str) or role not in ROLES:
        raise Refused(400, "a message needs a role: system, user or assistant")
    return role, _content(message.get("content"))


def _content(content: object) -> str:
    """Text, or OpenAI's list of text parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        if len(parts) == len(content) and all(isinstance(part, str) for part in parts):
            return "".join(str(part) for part in parts)
    raise Refused(400, "the content of a message must be text")


def _stops(stop: object) -> tuple[str, ...]:
    stops = [] if stop is None else [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or len(stops) > MAX_STOPS:
        raise Refused(400, f"stop must be a string or a list of at most {MAX_STOPS} strings")
    if not all(isinstance(text, str) and 0 < len(text) <= MAX_STOP_CHARS for text in stops):
        raise Refused(400, f"a stop must be a string of 1 to {MAX_STOP_CHARS} characters")
    return tuple(stops)


def _max_tokens(body: dict[str, Any], limit: int) -> tuple[int, bool]:
    """What is asked for, at most ``limit``, and whether it was cut."""
    value = body.get("max_completion_tokens")
    value = body.get("max_tokens") if value is None else value
    if value is None:
        return limit, False
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Refused(400, "max_tokens must be a whole number of at least 1")
    return min(value, limit), value > limit


def _overwritten(body: dict[str, Any], decoding: Decoding, cut: bool) -> tuple[str, ...]:
    """Names of fields that were sent and did not count, sorted; all unknown ones under one name."""
    pinned = decoding.model_dump()
    names = {"max_tokens"} if cut else set()
    for name, value in body.items():
        if name in HARMLESS or name in (*COUNTED_ONE, "stream", "stream_options") or value is None:
            continue
        if name not in DECIDED_HERE:
            names.add("unknown field")
        elif name not in pinned or value != pinned[name]:
            names.add(name)
    return tuple(sorted(names))
