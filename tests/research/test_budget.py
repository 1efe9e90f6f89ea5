"""The budget: one clock, exact labels, gaps that are not charged."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.record.events import BudgetLimits
from runner.research.budget import LABELS, Budget


class HandClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.asleep = 0.0

    def monotonic(self) -> float:
        return self.now

    def boottime(self) -> float:
        return self.now + self.asleep

    def unix(self) -> float:
        return 5e8 + self.now + self.asleep


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["move", "switch", "pause", "resume", "read"]), st.floats(0, 50), st.sampled_from(LABELS)
    ),
    max_size=40,
)


@given(STEPS)
@settings(database=None, deadline=None)
def test_labels_sum_to_the_seconds_that_ran(steps: list[tuple[str, float, str]]) -> None:
    clock = HandClock()
    budget = Budget(BudgetLimits(wall_s=100.0), clock)
    budget.start()
    ran, paused = dict.fromkeys(LABELS, 0.0), 0.0
    for what, seconds, label in steps:
        if what == "move":
            clock.now += seconds
            if budget.running:
                ran[budget.label] += seconds
            else:
                paused += seconds
        elif what == "switch":
            budget.switch(label)  # type: ignore[arg-type]
        elif what == "pause":
            budget.pause()
        elif what == "resume":
            budget.resume()
        else:
            budget.el()
    split = budget.split()
    for name in LABELS:
        assert getattr(split, name) == pytest.approx(ran[name], abs=1e-6)
    assert budget.el() == pytest.approx(sum(ran.values()), abs=1e-6)
    assert budget.left() == pytest.approx(max(0.0, 100 - sum(ran.values())), abs=1e-6)
    budget.resume()
    assert budget.gap_s == pytest.approx(paused, abs=1e-6)


def test_nothing_runs_before_the_start() -> None:
    clock = HandClock()
    budget = Budget(BudgetLimits(wall_s=10.0), clock)
    clock.now += 100
    assert budget.el() == 0 and budget.left() == 10 and not budget.exhausted()
    budget.start()
    clock.now += 10
    assert budget.exhausted() == "wall time" and budget.left() == 0
    assert budget.deadline == clock.unix()


def test_a_suspend_of_the_host_is_seen_recorded_and_not_charged() -> None:
    clock = HandClock()
    budget = Budget(BudgetLimits(wall_s=100.0), clock)
    budget.start()
    clock.now, clock.asleep = clock.now + 5, 3600.0
    assert budget.slept() == 3600.0 and budget.slept() == 0.0
    assert budget.el() == 5 and budget.tick().gap_s == 3600.0


def test_every_axis_can_end_the_phase() -> None:
    budget = Budget(BudgetLimits(wall_s=100.0, tokens=10, money=1.0, accelerator_s=60.0), HandClock())
    budget.start()
    assert budget.exhausted() == ""
    budget.charge(tokens=10)
    assert budget.exhausted() == "tokens"
    budget.spent.tokens = 0
    budget.charge(money=1.5)
    assert budget.exhausted() == "money"
    budget.spent.money = None
    budget.charge(accelerator_s=60.0)
    assert budget.exhausted() == "accelerator time"


def test_a_resumed_budget_goes_on_from_the_record() -> None:
    clock = HandClock()
    before = Budget(BudgetLimits(wall_s=100.0), clock)
    before.start()
    before.switch("train")
    clock.now += 30
    before.charge(tokens=7)
    tick = before.tick()
    after = Budget(BudgetLimits(wall_s=100.0), HandClock())
    after.restore(tick, el=33.0, gap_s=500.0)
    after.start()
    assert after.el() == 33.0 and after.split().train == 30.0 and after.split().think == 3.0
    assert after.tick().tokens == 7 and after.tick().gap_s == 500.0
