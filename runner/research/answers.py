"""What the desk says, in words and as objects: scores, changes, candidates, time left. No decisions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from grader.protocol import Delta, Score
from runner.record.events import BudgetLimits, BudgetTick, ModelCreated
from runner.record.format import money, tokens
from runner.research.candidate import Candidate
from runner.research.jobs import Answer
from runner.research.workspace import duration, letters


def percent(score: Score) -> str:
    """``41.7 % (35.0–48.6; 120 problems × 1)``."""
    each = f"{score.n} problems × {score.samples}"
    return f"{100 * score.score:.1f} % ({100 * score.low:.1f}–{100 * score.high:.1f}; {each})"


def named(candidate: Candidate) -> str:
    """A candidate and its score in one line."""
    return f"{candidate.id} {percent(candidate.score)}" if candidate.score else f"{candidate.id} without a score"


def noise(delta: Delta) -> bool:
    """Could the difference be chance: does its interval hold 0?"""
    return delta.low <= 0 <= delta.high


def change(other: str, delta: Delta) -> str:
    """``against c03: +5.0 (+1.2…+8.9)``, or that it is within noise."""
    figures = f"{100 * delta.value:+.1f} ({100 * delta.low:+.1f}…{100 * delta.high:+.1f})"
    return f"against {other}: {figures}" + (f", within noise of {other}" if noise(delta) else "")


def described(candidate: Candidate) -> dict[str, Any]:
    """A candidate as --json shows it."""
    return {
        "candidate": candidate.id,
        "parent": candidate.parent,
        "model": candidate.model,
        "components": list(candidate.components),
        "score": candidate.score.model_dump() if candidate.score else None,
        "late": candidate.late,
        "hypothesis": candidate.hypothesis,
    }


def history_line(candidate: Candidate) -> str:
    """One line of `vibe history`."""
    score = percent(candidate.score) if candidate.score else ("failed" if candidate.failed else "not validated")
    design = letters(candidate.components) or "·"
    return f"{candidate.id} {candidate.model} from {candidate.parent or '-'} {design:5} {score} {candidate.hypothesis}"


def trained(made: ModelCreated) -> Answer:
    """A finished training in words and numbers."""
    moved = "NO CHANGE against its parents" if made.no_change else f"relative change {made.delta_norm:.3g}"
    text = f"{made.model} ({made.format}, {made.bytes / 1e6:.1f} MB, {moved}). Next: vibe validate --model {made.model}"
    return {"text": text, "model": made.model, "format": made.format, "no_change": made.no_change}


def budget_lines(tick: BudgetTick, limits: BudgetLimits) -> list[str]:
    """What was used of the budget beside time, where something is counted: one line."""
    parts = []
    if tick.llm is not None or limits.tokens is not None:
        parts.append(f"tokens {tokens(tick.tokens)}" + (f" of {tokens(limits.tokens)}" if limits.tokens else ""))
    if tick.money is not None or limits.money is not None:
        parts.append(f"money {money(tick.money)}" + (f" of {money(limits.money)}" if limits.money else ""))
    return [f"used: {', '.join(parts)}"] if parts else []


def used(tick: BudgetTick, limits: BudgetLimits) -> dict[str, Any]:
    """The same for --json; money is null where a price is unknown."""
    return {"tokens": tick.tokens, "tokens_limit": limits.tokens, "money": tick.money, "money_limit": limits.money}


def with_time(answer: Mapping[str, Any], left_s: float, deadline: float) -> Answer:
    """Every answer states the time left."""
    said = str(answer.get("text", ""))
    error = {} if answer.get("ok") else {"error": said.partition("\n")[0]}
    time_left = {"left_s": round(left_s, 1), "deadline": round(deadline, 1)}
    return {"type": "answer", **error, **answer, "text": f"{said}\n[{duration(left_s)} left]", **time_left}


def encode(message: Mapping[str, Any]) -> bytes:
    """A message as its line."""
    return json.dumps(message, ensure_ascii=True, allow_nan=False).encode() + b"\n"
