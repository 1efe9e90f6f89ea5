"""What a budget allows and what was used of it: values of the journal's events."""

from __future__ import annotations

from typing import Literal

from tasks.spec import Frozen


class BudgetLimits(Frozen):
    """The axes of a budget; ``None`` is no limit. Seconds, tokens, money in the currency of the price table."""

    wall_s: float
    tokens: int | None = None
    money: float | None = None
    accelerator_s: float | None = None


class Split(Frozen):
    """Where the budget seconds went. Exactly one label holds at any time; ``wait`` is queueing in a verb."""

    grade: float = 0.0
    train: float = 0.0
    sample: float = 0.0
    wait: float = 0.0
    think: float = 0.0


class LlmUse(Frozen):
    """What was asked of a model through the gateway, by its account: tokens as the upstream counted them.

    ``estimated``: calls whose figures are ours, because the upstream gave none.
    """

    calls: int = 0
    refused: int = 0
    estimated: int = 0
    input: int = 0
    cached: int = 0
    cache_write: int = 0
    output: int = 0


class BudgetTick(Frozen):
    """``tokens`` and ``llm`` are the researcher's, ``teacher`` what its teacher used; ``money`` is all money."""

    kind: Literal["budget_tick"] = "budget_tick"
    wall_s: float
    split: Split
    tokens: int = 0
    money: float | None = None
    accelerator_s: float = 0.0
    gap_s: float = 0.0
    llm: LlmUse | None = None
    teacher: LlmUse | None = None
