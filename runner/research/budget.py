"""The budget of the research phase: one monotonic clock, exact labels for its seconds, and the other axes as numbers.

Nothing an agent does can move this clock: it is read in the runner. Time during which the runner was down, or in which
the phase was paused, is a gap and is not charged; a suspend of the host is seen (boottime − monotonic) and recorded.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal, Protocol

from runner.record.events import BudgetLimits, BudgetTick, LlmUse, Split
from runner.research.llm.protocol import Role

Label = Literal["grade", "train", "sample", "wait", "think"]
LABELS: tuple[Label, ...] = ("grade", "train", "sample", "wait", "think")


class Clock(Protocol):
    """The three clocks a budget reads, in seconds."""

    def monotonic(self) -> float: ...
    def boottime(self) -> float: ...
    def unix(self) -> float: ...


class SystemClock:
    """The kernel's clocks."""

    def monotonic(self) -> float:
        return time.clock_gettime(time.CLOCK_MONOTONIC)

    def boottime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def unix(self) -> float:
        return time.time()


@dataclass(slots=True)
class Spent:
    """The axes other than wall time: LLM tokens, money for them (None = no priced use yet), accelerator seconds.

    ``unpriced``: something was used whose price nobody knows, so that no sum of money is true. ``roles``: the money of
    each role of the LLM gateway, None for an unknown price; ``money`` is their sum.
    """

    tokens: int = 0
    money: float | None = None
    accelerator_s: float = 0.0
    unpriced: bool = False
    llm: LlmUse | None = None
    teacher: LlmUse | None = None
    roles: dict[Role, float | None] = field(default_factory=dict)


class Budget:
    """The research clock. Seconds run only between ``start``/``resume`` and ``pause``; each has exactly one label."""

    def __init__(
        self, limits: BudgetLimits, clock: Clock | None = None, *, accelerator_hour_price: float | None = None
    ) -> None:
        """``accelerator_hour_price``: money for an hour of the accelerator; None does not count it."""
        self.limits = limits
        self._hour_price = accelerator_hour_price
        self.spent = Spent()
        self.gap_s = 0.0
        self._clock = clock or SystemClock()
        self._seconds: dict[Label, float] = dict.fromkeys(LABELS, 0.0)
        self._label: Label = "think"
        self._since: float | None = None  # monotonic time up to which seconds are booked; None: not running
        self._paused_at: float | None = None
        self._asleep = self._sleep_offset()

    @property
    def running(self) -> bool:
        return self._since is not None

    @property
    def label(self) -> Label:
        return self._label

    def start(self) -> None:
        """Begin to charge. Starting twice changes nothing."""
        if self._since is None:
            now = self._clock.monotonic()
            if self._paused_at is not None:
                self.gap_s += now - self._paused_at
                self._paused_at = None
            self._since = now

    def pause(self) -> None:
        """Stop charging until :meth:`resume`; the time between is a gap."""
        self._book()
        if self._since is not None:
            self._paused_at, self._since = self._since, None

    def resume(self) -> None:
        """Go on charging after :meth:`pause`."""
        self.start()

    def switch(self, label: Label) -> None:
        """From now on seconds carry ``label``."""
        self._book()
        self._label = label

    def el(self) -> float:
        """Budget seconds used."""
        self._book()
        return sum(self._seconds.values())

    def left(self) -> float:
        """Budget seconds left, never negative."""
        return max(0.0, self.limits.wall_s - self.el())

    @property
    def deadline(self) -> float:
        """Unix time at which the budget ends if it keeps running."""
        return self._clock.unix() + self.left()

    def split(self) -> Split:
        """Where the seconds went; the labels sum to :meth:`el`."""
        self._book()
        return Split(**{str(label): seconds for label, seconds in self._seconds.items()})

    def charge(self, *, tokens: int = 0, money: float | None = None, accelerator_s: float = 0.0) -> None:
        """Add to the other axes. Money is unknown until the first priced charge."""
        self.spent.tokens += tokens
        self.spent.accelerator_s += accelerator_s
        if money is not None:
            self.spent.money = (self.spent.money or 0.0) + money

    def account(self, use: LlmUse, money: float | None, role: Role = "researcher") -> None:
        """Take over what the LLM gateway's file sums to for a role: absolute figures, so that nothing counts twice.

        Tokens are the researcher's alone; money is that of all roles.
        """
        spent = self.spent
        if role == "researcher":
            spent.llm, spent.tokens = use, use.output
        else:
            spent.teacher = use
        if use.calls:
            spent.roles[role] = money
        known = [one for one in spent.roles.values() if one is not None]
        spent.money = sum(known) if known else None
        spent.unpriced = len(known) < len(spent.roles)

    def accelerator_money(self) -> float:
        """What the accelerator has cost so far; 0 where its hours are not counted."""
        return self.spent.accelerator_s / 3600 * (self._hour_price or 0.0)

    def money(self) -> float | None:
        """All money spent; None where no use was priced yet, or some use has no known price."""
        if self.spent.unpriced or (self.spent.money is None and not self._hour_price):
            return None
        return (self.spent.money or 0.0) + self.accelerator_money()

    def exhausted(self) -> str:
        """The name of the first axis that is used up, or an empty string."""
        limits, spent = self.limits, self.spent
        if self.left() <= 0:
            return "wall time"
        if limits.tokens is not None and spent.tokens >= limits.tokens:
            return "tokens"
        if limits.money is not None and (self.money() or 0.0) >= limits.money:
            return "money"
        if limits.accelerator_s is not None and spent.accelerator_s >= limits.accelerator_s:
            return "accelerator time"
        return ""

    def slept(self) -> float:
        """Seconds the host was suspended since the last call; not charged (the monotonic clock stood still)."""
        offset = self._sleep_offset()
        slept, self._asleep = max(0.0, offset - self._asleep), offset
        if slept < 0.5:  # the two clocks are read one after the other: less than this is no suspend
            return 0.0
        self.gap_s += slept
        return slept

    def tick(self) -> BudgetTick:
        """The budget as the journal keeps it."""
        return BudgetTick(
            wall_s=self.el(),
            split=self.split(),
            tokens=self.spent.tokens,
            money=self.money(),
            accelerator_s=self.spent.accelerator_s,
            gap_s=self.gap_s,
            llm=self.spent.llm,
            teacher=self.spent.teacher,
        )

    def restore(self, tick: BudgetTick, *, el: float | None = None, gap_s: float = 0.0) -> None:
        """Take over what a journal recorded: its last tick, the ``el`` of its last line, and the runner's down time.

        Seconds between the last tick and the last line are charged as thinking: their label is not known.
        """
        self._seconds = {label: getattr(tick.split, label) for label in LABELS}
        unlabelled = max(0.0, (tick.wall_s if el is None else max(el, tick.wall_s)) - sum(self._seconds.values()))
        self._seconds["think"] += unlabelled
        self.spent = Spent(tick.tokens, None, tick.accelerator_s, llm=tick.llm, teacher=tick.teacher)
        if tick.money is not None:
            self.spent.money = max(0.0, tick.money - self.accelerator_money())
        self.gap_s = tick.gap_s + gap_s

    def _book(self) -> None:
        if self._since is not None:
            now = self._clock.monotonic()
            self._seconds[self._label] += now - self._since
            self._since = now

    def _sleep_offset(self) -> float:
        return self._clock.boottime() - self._clock.monotonic()
