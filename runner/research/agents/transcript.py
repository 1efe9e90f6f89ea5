"""Reading what an agent prints: every line may be torn, huge or forged, and is a claim at most."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from isolation.clean import clean_line
from runner.record.events import AgentTurn

SUMMARY = 400
LONG_S = 5.0
_OPEN = 256
_MOST_TOKENS = 10**9


def first_line(value: object) -> str:
    """What a text says in one safe line; empty for what is no text."""
    return clean_line(value, SUMMARY) if isinstance(value, str) else ""


def text_of(content: object) -> str:
    """A text, or the texts of a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return "\n".join(texts)


def count(usage: object, name: str) -> int:
    """A number of tokens that a line claims; 0 for what is none."""
    value = usage.get(name) if isinstance(usage, dict) else None
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS
    return int(value) if fits and value is not None else 0


def turn(summary: str, *, tool: str = "", tokens: int = 0, seconds: float = 0.0, session: str = "") -> AgentTurn:
    """A turn in safe words; whoever journals it numbers it."""
    safe = clean_line(summary, SUMMARY)
    return AgentTurn(
        n=0, summary=safe, tool=clean_line(tool, 80), tokens=tokens, seconds=round(seconds, 1), session=session
    )


@dataclass(slots=True)
class Tools:
    """The tools that are at work, so that their ends say how long they took."""

    clock: Callable[[], float] = time.monotonic
    _open: OrderedDict[str, tuple[str, float]] = field(default_factory=OrderedDict)

    def begin(self, key: object, name: str) -> None:
        """A tool was called."""
        if isinstance(key, str):
            self._open[key[:100]] = (name, self.clock())
            while len(self._open) > _OPEN:
                self._open.popitem(last=False)

    def end(self, key: object, text: str, *, failed: bool) -> AgentTurn | None:
        """A turn for a tool that failed or took long; the others were told when they began."""
        name, since = self._open.pop(str(key)[:100], ("", None))
        seconds = 0.0 if since is None else self.clock() - since
        if not failed and seconds < LONG_S:
            return None
        return turn(f"failed: {text}" if failed else f"done: {text}", tool=name, seconds=seconds)
