"""What a reply used, read from it as it passes: the upstream's own figures, else an estimate.

The reply comes from the upstream, which is trusted; still nothing here raises on what it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from runner.research.lenient import object_of
from runner.research.llm.protocol import Api, Tokens

EVENT_BYTES = 64 << 20
BYTES_A_TOKEN = 3  # text has about four: an estimate is not to be cheaper than the truth
_BLANK_LINE = re.compile(rb"\n\n|\r\n\r\n")
_SEAM = 3  # a blank line may begin this many bytes before the end of what is there
_DONE = b"[DONE]"

# Of a hundred thousand events a handful says more than a piece of text. Only events with one of these bytes in them are
# parsed. A model's text cannot hide one: inside a JSON string a quotation mark has a backslash before it, so a text
# that holds such a word costs a parse, and no more.
_MARKS: Mapping[Api, tuple[bytes, ...]] = {
    "messages": (b'"usage"', b"message_stop", b'"error"'),
    "responses": (b'"usage"', b"response.completed", b"response.incomplete", b"response.failed", b'"error"'),
    "chat": (b'"usage"', _DONE, b'"error"'),
    "count_tokens": (b"",),
}
_NULL_USAGE = re.compile(rb'"usage"\s*:\s*null')


def _texts(*names: str) -> re.Pattern[bytes]:
    """Finds the strings under these names; in raw JSON they are at least as long as what they spell."""
    return re.compile(rb'"(?:%s)"\s*:\s*"([^"\\]*+(?:\\.[^"\\]*+)*+)"' % "|".join(names).encode())


_TEXTS: Mapping[Api, re.Pattern[bytes]] = {
    "messages": _texts("text", "thinking", "partial_json", "signature"),
    "responses": _texts("delta"),
    "chat": _texts("content", "reasoning_content", "reasoning", "refusal", "arguments", "name", "input"),
    "count_tokens": _texts("text"),
}


class Events:
    """Cuts a stream of server-sent events where an event ends, bytes unchanged; holds no more than a part of one."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._held = 0
        self._seam = b""

    def feed(self, chunk: bytes) -> bytes:
        """The whole events that are there with ``chunk``; empty while none is. Raises ValueError for one too large."""
        data = self._seam + chunk
        ends = (data.rfind(blank) + len(blank) for blank in (b"\n\n", b"\r\n\r\n") if blank in data)
        end = max(ends, default=0)
        if not end:
            self._hold(chunk)
            return b""
        cut = end - len(self._seam)
        whole = b"".join([*self._rest, chunk[:cut]])
        self._rest, self._held, self._seam = [], 0, b""
        self._hold(chunk[cut:])
        return whole

    def _hold(self, part: bytes) -> None:
        self._rest.append(part)
        self._held += len(part)
        self._seam = (self._seam + part)[-_SEAM:]
        if self._held > EVENT_BYTES:
            raise ValueError("an event of the upstream is larger than 64 MiB")


def each(events: bytes) -> Iterator[bytes]:
    """Whole events one by one, each with its closing blank line."""
    start = 0
    for end in _BLANK_LINE.finditer(events):
        yield events[start : end.end()]
        start = end.end()


def data_of(event: bytes) -> bytes:
    """The data of an event."""
    return b"\n".join(line[5:].strip() for line in event.splitlines() if line.startswith(b"data:"))


class Meter:
    """Follows one reply. ``done``: its last event came; ``exact``: it came, and the upstream said what it used."""

    def __init__(self, api: Api, input_estimate: int) -> None:
        self._api = api
        self._read = _READERS[api]
        self._estimate = input_estimate
        self._known: dict[str, int] = {}
        self._text = 0
        self._told = False
        self.done = False

    @property
    def exact(self) -> bool:
        return self.done and self._told

    def follow(self, events: bytes, *, hide_usage: bool = False) -> bytes:
        """Take whole events of a stream; what of them passes on: all, or all but those that carry the usage alone."""
        if self._plain(events):
            return events
        return b"".join([event for event in each(events) if not (self._event(event) and hide_usage)])

    def whole(self, body: bytes) -> None:
        """Take a reply that is no stream."""
        said = object_of(body)
        self._take({"type": "message_delta", **said} if self._api == "messages" else said)
        self._text += 0 if self._told else len(body)
        self.done = True

    def _plain(self, events: bytes) -> bool:
        """Are these pieces of text and nothing else? Their text is counted then."""
        for mark in _MARKS[self._api]:
            if mark in events and not (mark == b'"usage"' and self._no_usage(events)):
                return False
        text = sum(map(len, _TEXTS[self._api].findall(events)))
        if not text and b'"delta"' in events:
            return False  # text under a name that is not known here: it is not free
        self._text += text
        return True

    def _no_usage(self, events: bytes) -> bool:
        """Some upstreams say in each event that they do not say it yet."""
        return len(_NULL_USAGE.findall(events)) == events.count(b'"usage"')

    def _event(self, event: bytes) -> bool:
        """Take one event; True where it carries nothing but the usage."""
        data = data_of(event)
        if self._api == "chat" and data == _DONE:
            self.done = True
            return False
        return self._take(object_of(data))

    def _take(self, said: dict[str, Any]) -> bool:
        usage, final = _usage_of(self._api, said)
        for name, count in self._read(usage).items():
            self._known[name] = max(count, self._known.get(name, 0))  # a later word never lowers the account
        self._told = self._told or (final and bool(usage)) or self._api == "count_tokens"  # which uses nothing
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
