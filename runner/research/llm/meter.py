"""What a reply used, read from it as it passes: the upstream's own figures, else an estimate.

The reply comes from the upstream, which is trusted; still nothing here raises on what it holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from runner.research.llm.protocol import Api, Tokens

EVENT_BYTES = 64 << 20
_BLANK_LINE = re.compile(rb"\n\n|\r\n\r\n")
BYTES_A_TOKEN = 3  # text has about four: an estimate is not to be cheaper than the truth


class Events:
    """Cuts a stream of server-sent events into whole events, each with its closing blank line, bytes unchanged."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The events that ``chunk`` completes."""
        data = self._rest + chunk
        start = 0
        for end in _BLANK_LINE.finditer(data):
            yield data[start : end.end()]
            start = end.end()
        self._rest = data[start:]
        if len(self._rest) > EVENT_BYTES:
            raise ValueError("an event of the upstream is larger than 64 MiB")


def data_of(event: bytes) -> dict[str, Any]:
    """The JSON object of an event; empty where it has none."""
    lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
    return loads(b"\n".join(lines))


def loads(data: bytes) -> dict[str, Any]:
    """A JSON object, or an empty one."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


class Meter:
    """Follows one reply. ``done``: its last event came; ``exact``: the upstream said what it used."""

    def __init__(self, api: Api, input_estimate: int) -> None:
        self._api = api
        self._read = _READERS[api]
        self._estimate = input_estimate
        self._known: dict[str, int] = {}
        self._text = 0
        self.done = False
        self.exact = False

    def event(self, event: bytes) -> bool:
        """Take one event of a stream; True where it carries nothing but the usage."""
        if self._api == "chat" and b"data: [DONE]" in event:
            self.done = True
            return False
        return self._take(data_of(event))

    def whole(self, body: bytes) -> None:
        """Take a reply that is no stream."""
        said = loads(body)
        self._take({"type": "message_delta", **said} if self._api == "messages" else said)
        self.done = True

    def _take(self, said: dict[str, Any]) -> bool:
        usage, final = _usage_of(self._api, said)
        self._known.update(self._read(usage))
        self.exact = self.exact or (final and bool(usage))
        self.done = self.done or said.get("type") in _LAST
        self._text += _text_of(said)
        return self._api == "chat" and bool(usage) and not said.get("choices")

    def output(self) -> int:
        """The generated tokens so far: the upstream's figure, else an estimate."""
        known = self._known.get("output", 0)
        return known if self.exact else max(known, -(-self._text // BYTES_A_TOKEN))

    def tokens(self) -> Tokens:
        """What the reply used as far as it is known; what is not known is estimated from what passed."""
        inputs = {name: self._known.get(name, 0) for name in ("input", "cached", "cache_write")}
        if not self._known and self._api != "count_tokens":
            inputs["input"] = self._estimate
        return Tokens(**inputs, output=self.output())


_LAST = frozenset({"message_stop", "response.completed", "response.incomplete", "response.failed", "error"})


def _usage_of(api: Api, said: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """The usage object of an event, and whether it is the last word."""
    kind = said.get("type")
    if kind == "message_start":
        return _object(_object(said.get("message")).get("usage")), False
    if api == "responses":
        inner = said if said.get("object") == "response" else _object(said.get("response"))
        return _object(inner.get("usage")), True
    if api == "count_tokens":
        return {}, True
    return _object(said.get("usage")), True


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text_of(said: Mapping[str, Any]) -> int:
    """Bytes of generated text in an event: everything under a ``delta``, whatever the API calls it."""
    delta = said.get("delta")
    if isinstance(delta, str):
        return len(delta.encode("utf-8", "replace"))
    found = _strings(delta) if isinstance(delta, dict) else 0
    choices = said.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        found += _strings(_object(choice).get("delta"))
    return found


def _strings(value: object, depth: int = 6) -> int:
    if isinstance(value, str):
        return len(value.encode("utf-8", "replace"))
    if depth and isinstance(value, dict):
        return sum(_strings(one, depth - 1) for key, one in value.items() if key not in ("type", "role", "id"))
    if depth and isinstance(value, list):
        return sum(_strings(one, depth - 1) for one in value)
    return 0


def _number(usage: Mapping[str, Any], *path: str) -> int:
    value: object = usage
    for name in path:
        value = _object(value).get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _messages(usage: Mapping[str, Any]) -> dict[str, int]:
    names = {
        "input": "input_tokens",
        "cached": "cache_read_input_tokens",
        "cache_write": "cache_creation_input_tokens",
        "output": "output_tokens",
    }
    return {ours: _number(usage, theirs) for ours, theirs in names.items() if usage.get(theirs) is not None}


def _responses(usage: Mapping[str, Any]) -> dict[str, int]:
    return _split(usage, "input_tokens", "output_tokens")


def _chat(usage: Mapping[str, Any]) -> dict[str, int]:
    return _split(usage, "prompt_tokens", "completion_tokens")


def _split(usage: Mapping[str, Any], prompt: str, reply: str) -> dict[str, int]:
    """OpenAI's figures: its input holds what the cache gave."""
    if not usage:
        return {}
    whole = _number(usage, prompt)
    cached = min(whole, _number(usage, f"{prompt}_details", "cached_tokens"))
    return {"input": whole - cached, "cached": cached, "output": _number(usage, reply)}


def _nothing(_usage: Mapping[str, Any]) -> dict[str, int]:
    return {}


_READERS = {"messages": _messages, "responses": _responses, "chat": _chat, "count_tokens": _nothing}
