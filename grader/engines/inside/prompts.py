"""From a request body to a row: checks, the chat template under a time limit, tokens.

The template may be the candidate's own and the messages come from a harness: both are hostile. Called from the
computing (main) thread alone, which is the one that signals reach.
"""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .generate import Row
from .rounds import Refusal

MAX_STOPS = 8
MAX_STOP = 256
MAX_TEMPLATE = 32 << 10
MAX_TEXT = 8 << 20
RENDER_SECONDS = 5.0
_ENDS = ("<|im_end|>", "<|endoftext|>")


@dataclass(frozen=True, slots=True)
class Ready:
    """A request as the generator takes it. ``length`` is that of the prompt, in tokens."""

    row: Row
    length: int


class Prompts:
    """The tokenizer of the base with the template of the model that is served."""

    def __init__(self, tokenizer: Any, room: int) -> None:
        self.tokenizer = tokenizer
        self._room = room
        self._template: str | None = None

    def adopt(self, folder: Path) -> None:
        """Take the chat template in ``folder``, if it brings one; the base's otherwise."""
        path = folder / "chat_template.jinja"
        self._template = None
        if path.is_file():
            with path.open("rb") as stream:
                text = stream.read(MAX_TEMPLATE + 1)
            if len(text) > MAX_TEMPLATE:
                raise Refusal(422, f"the chat template is longer than {MAX_TEMPLATE} bytes")
            self._template = text.decode("utf-8", "replace")

    def ready(self, body: dict[str, Any]) -> Ready:
        """The row of a request. Raises Refusal 400 with the reason."""
        text = self._text(body)
        if len(text) > MAX_TEXT:
            raise Refusal(400, f"the prompt is longer than {MAX_TEXT} characters")
        tokens = tuple(self.tokenizer(text, add_special_tokens=False).input_ids)
        most = _number(body, "max_tokens", 16, 1, 1 << 20, int)
        if not tokens:
            raise Refusal(400, "the prompt is empty")
        if len(tokens) + most > self._room:
            raise Refusal(400, f"{len(tokens)} prompt tokens and {most} to write exceed the model's {self._room}")
        row = Row(
            tokens=tokens,
            max_tokens=most,
            stop=_stops(body.get("stop")),
            temperature=_number(body, "temperature", 0.0, 0, 100, float),
            top_p=_number(body, "top_p", 1.0, 0, 1, float),
            top_k=_number(body, "top_k", 0, 0, 1 << 30, int),
            presence_penalty=_number(body, "presence_penalty", 0.0, -100, 100, float),
            seed=_number(body, "seed", 0, -(1 << 64), 1 << 64, int),
        )
        return Ready(row, len(tokens))

    def _text(self, body: dict[str, Any]) -> str:
        prompt, messages = body.get("prompt"), body.get("messages")
        if (prompt is None) == (messages is None):
            raise Refusal(400, "give either prompt or messages")
        if prompt is not None:
            if not isinstance(prompt, str):
                raise Refusal(400, "prompt must be text")
            return prompt
        if not isinstance(messages, list) or not messages or not all(_is_message(m) for m in messages):
            raise Refusal(400, "messages must be a list of objects with the texts role and content")
        partial = messages.pop()["content"] if messages[-1]["role"] == "assistant" else ""
        return self._render(messages) + partial

    def _render(self, messages: list[dict[str, str]]) -> str:
        try:
            with _alarm(RENDER_SECONDS):
                text = self.tokenizer.apply_chat_template(
                    messages, chat_template=self._template, tokenize=False, add_generation_prompt=True
                )
        except Exception as error:
            why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise Refusal(400, f"the chat template fails on these messages: {why}") from error
        return str(text)


def ends(model: Any, tokenizer: Any, folder: Path) -> frozenset[int]:
    """The ids that end a reply: those of the base, its chat marks, and what the model's generation_config adds."""
    found = {tokenizer.eos_token_id, *_ids(model.generation_config.eos_token_id)}
    vocabulary = tokenizer.get_vocab()
    found |= {vocabulary[mark] for mark in _ENDS if mark in vocabulary}
    with contextlib.suppress(OSError, ValueError, AttributeError):
        found |= set(_ids(json.loads((folder / "generation_config.json").read_bytes()).get("eos_token_id")))
    return frozenset(x for x in found if type(x) is int)


def _ids(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(key), str) for key in ("role", "content"))


def _number(body: dict[str, Any], key: str, default: Any, low: float, high: float, kind: type) -> Any:
    value = body.get(key, default)
    good = type(value) is int or (kind is float and type(value) is float)
    if not good or not low <= value <= high:
        raise Refusal(400, f"{key} must be a number from {low} to {high}")
    return kind(value)


def _stops(value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value or []
    if not isinstance(stops, list) or len(stops) > MAX_STOPS:
        raise Refusal(400, f"stop must be at most {MAX_STOPS} texts")
    if not all(isinstance(s, str) and 0 < len(s) <= MAX_STOP for s in stops):
        raise Refusal(400, f"each stop must be a text of 1 to {MAX_STOP} characters")
    return tuple(stops)


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in the block after ``seconds``."""

    def ring(*_: Any) -> None:
        raise TimeoutError(f"longer than {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
