"""A checked request between its check and its sending: bytes already, but for what the account decides about its reply.

What was parsed is let go here: a request that waits for its turn holds its bytes, not the many objects they make.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from runner.research.llm.meter import BYTES_A_TOKEN
from runner.research.llm.rules import Canonical, wrong

_LEAST_THINKING = 1024  # Anthropic's own: a smaller budget is an error


@dataclass(frozen=True, slots=True)
class Draft:
    """``rest`` is the request but for ``decided``: the limit on the reply, and thinking that has to fit below it."""

    model: str
    asked: int | None
    stream: bool
    usage_hidden: bool
    limit_field: str
    decided: dict[str, Any]
    rest: bytes

    @classmethod
    def of(cls, canonical: Canonical) -> Draft:
        """From a checked request. Raises Refused for numbers that JSON does not have."""
        late = {canonical.limit_field, "thinking"}
        decided = {name: value for name, value in canonical.body.items() if name in late}
        rest = {name: value for name, value in canonical.body.items() if name not in late}
        return cls(
            model=canonical.body["model"],
            asked=canonical.asked,
            stream=canonical.stream,
            usage_hidden=canonical.usage_hidden,
            limit_field=canonical.limit_field,
            decided=decided,
            rest=_encode(rest),
        )

    @property
    def estimate(self) -> int:
        """Its tokens, from its bytes."""
        return len(self.rest) // BYTES_A_TOKEN

    def payload(self, most: int | None) -> bytes:
        """The request as it leaves, its reply no longer than ``most`` tokens (None: as it asked)."""
        decided = dict(self.decided)
        if most is not None and self.limit_field:
            limit = min(most, self.asked or most)
            decided[self.limit_field] = limit
            thinking = decided.get("thinking")
            if isinstance(thinking, dict) and isinstance(thinking.get("budget_tokens"), int):
                if limit <= _LEAST_THINKING:
                    del decided["thinking"]
                else:
                    decided["thinking"] = {**thinking, "budget_tokens": min(thinking["budget_tokens"], limit - 1)}
        if not decided:
            return self.rest
        return self.rest[:-1] + b"," + _encode(decided)[1:]


def _encode(body: dict[str, Any]) -> bytes:
    """The one spelling of a request."""
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        wrong("a number in it is infinite")
