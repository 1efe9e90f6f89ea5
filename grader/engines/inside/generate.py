"""Static batches of one model: pinned sampling per row, stop strings, rows that leave when they are done.

Given the same rows in the same order, the same weights, threads and dtype, ``Generator.run`` gives the same texts in
every process. The draw of a row depends on its seed and its own logits, never on its place in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch  # type: ignore[import-not-found]
from transformers import DynamicCache  # type: ignore[import-not-found]

from .cache import plain, slab_cache

WORTH_SHARING = 8
"""Tokens; fewer cost less than a pass of their own."""


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt as token ids and how to go on from it. ``temperature`` 0 is greedy; ``top_k`` 0, ``top_p`` 1: off."""

    tokens: tuple[int, ...]
    max_tokens: int
    stop: tuple[str, ...] = ()
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    presence_penalty: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Written:
    """The reply to a row. A hit stop string is the end of ``text``; ``tokens`` counts the end-of-sequence token too."""

    text: str
    finish_reason: str
    tokens: int


@dataclass(slots=True)
class _Live:
    """A row while it is in the batch."""

    index: int
    row: Row
    reach: int  # tokens whose text can hold the longest stop string
    draw: Any = None  # torch.Generator of a sampled row
    new: list[int] = field(default_factory=list)
    seen: Any = None  # [vocabulary] bool, where a presence penalty applies
    reason: str = ""


class Generator:
    """The decode loop over a causal language model and its tokenizer; all of it runs in the calling thread."""

    def __init__(self, model: Any, tokenizer: Any, ends: frozenset[int], pad: int) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.ends = ends
        self.pad = pad

    def run(self, rows: Sequence[Row]) -> list[Written]:
        """Generate for ``rows`` as one batch; replies in the order of ``rows``."""
        live = [self._begin(i, row) for i, row in enumerate(rows)]
        done: list[Written] = [Written("", "length", 0)] * len(rows)
        with torch.inference_mode():
            self._decode(live, done)
        return done

    def finite(self, tokens: Sequence[int]) -> bool:
        """Whether the logits after ``tokens`` are numbers."""
        with torch.inference_mode():
            logits = self.model(
                input_ids=torch.tensor([list(tokens)], device=self.model.device), logits_to_keep=1
            ).logits
        return bool(torch.isfinite(logits).all())

    def _begin(self, index: int, row: Row) -> _Live:
        live = _Live(index, row, max((len(s.encode()) for s in row.stop), default=0) + 1)
        if row.temperature > 0:
            live.draw = torch.Generator(device=self.model.device)
            live.draw.manual_seed(row.seed & 0x7FFFFFFFFFFFFFFF)
        return live

    def _decode(self, live: list[_Live], done: list[Written]) -> None:
        device = self.model.device
        prompts = [x.row.tokens for x in live]
        room = max(map(len, prompts)) + max(x.row.max_tokens for x in live)
        cache = slab_cache(DynamicCache(config=self.model.config), room)
        common = shared(prompts) if plain(cache) else 0
        ids, mask = self._left_padded([prompt[common:] for prompt in prompts])
        mask = torch.cat([mask.new_ones((len(live), common)), mask], dim=1)
        positions = (mask.cumsum(-1) - 1).clamp_min(0)[:, common:]
        if common:
            first = torch.tensor([prompts[0][:common]], device=device)
            self.model(input_ids=first, past_key_values=cache, logits_to_keep=1, use_cache=True)
            cache.batch_repeat_interleave(len(live))
        while True:
            out = self.model(
                input_ids=ids.to(device),
                attention_mask=mask.to(device),
                position_ids=positions.to(device),
                past_key_values=cache,
                logits_to_keep=1,
                use_cache=True,
            )
            picked = self._pick(out.logits[:, -1], live)
            keep = [i for i, x in enumerate(live) if not self._finished(x, picked[i])]
            if len(keep) < len(live):
                for x in live:
                    if x.reason:
                        done[x.index] = self._written(x)
                if not keep:
                    return
                chosen = torch.tensor(keep)
                cache.batch_select_indices(chosen.to(device))
                mask, positions, live = mask[chosen], positions[chosen], [live[i] for i in keep]
            ids = torch.tensor([[x.new[-1]] for x in live])
            mask = torch.cat([mask, mask.new_ones((len(live), 1))], dim=1)
            positions = positions[:, -1:] + 1

    def _left_padded(self, prompts: Sequence[Sequence[int]]) -> tuple[Any, Any]:
        """Token ids and mask, both [rows, longest prompt], int64."""
        width = max(map(len, prompts))
        ids = torch.tensor([[self.pad] * (width - len(p)) + list(p) for p in prompts])
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        return ids, mask

    def _pick(self, logits: Any, live: Sequence[_Live]) -> list[int]:
        """The next token of each row from logits [rows, vocabulary]."""
        picked: list[int] = logits.argmax(-1).tolist()
        for i, x in enumerate(live):
            if x.row.temperature > 0 or x.row.presence_penalty:
                picked[i] = pick_one(logits[i], x.row, x.draw, x.new)
        return picked

    def _finished(self, x: _Live, token: int) -> bool:
        x.new.append(token)
        if token in self.ends or (x.row.stop and self._stopped(x)):
            x.reason = "stop"
        elif len(x.new) >= x.row.max_tokens:
            x.reason = "length"
        return bool(x.reason)

    def _stopped(self, x: _Live) -> bool:
        tail = self.tokenizer.decode(x.new[-x.reach :], skip_special_tokens=True)
        return any(s in tail for s in x.row.stop)

    def _written(self, x: _Live) -> Written:
        text: str = self.tokenizer.decode(x.new, skip_special_tokens=True)
        hits = [text.index(s) + len(s) for s in x.row.stop if s in text]
        return Written(text[: min(hits)] if hits else text, x.reason, len(x.new))


def shared(prompts: Sequence[Sequence[int]]) -> int:
    """How many tokens all prompts begin with (a system prompt, examples, tools): those are computed once for all.

    At least one token of each prompt is left, whose logits are the row's own; 0 where it would not pay.
    """
    low, high = min(prompts), max(prompts)
    most = min(map(len, prompts)) - 1
    same = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), most)
    return min(same, most) if len(prompts) > 1 and same >= WORTH_SHARING else 0


def pick_one(logits: Any, row: Row, draw: Any, new: Sequence[int]) -> int:
    """One token of one row: presence penalty, temperature, top-k, top-p, then Gumbel noise and argmax.

    Softmax sampling and argmax over logits + Gumbel noise are the same draw; with a generator of the row's own, small
    differences in the logits rarely change it.
    """
    scores = logits.float()
    if row.presence_penalty and new:
        scores = scores.clone()
        scores[torch.tensor(sorted(set(new)), device=scores.device)] -= row.presence_penalty
    if row.temperature <= 0:
        return int(scores.argmax())
    scores = scores / row.temperature
    if 0 < row.top_k < scores.shape[0]:
        scores = scores.masked_fill(scores < scores.topk(row.top_k).values[-1], float("-inf"))
    if row.top_p < 1:
        ordered, order = scores.sort(descending=True, stable=True)
        mass = ordered.softmax(-1)
        cut = mass.cumsum(-1) - mass >= row.top_p  # what comes before already holds top_p: never the first
        scores = scores.masked_fill(torch.zeros_like(cut).scatter(0, order, cut), float("-inf"))
    exponential = torch.empty_like(scores).exponential_(generator=draw)
    return int((scores - exponential.log()).argmax())
