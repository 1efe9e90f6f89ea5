"""Money and tokens in the budget, and what a file of calls sums to, whatever a crash left of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.record.events import BudgetLimits, LlmUse
from runner.research.budget import Budget
from runner.research.llm.account import Book, cost, totals
from runner.research.llm.meter import Events, Meter
from runner.research.llm.protocol import Price, Tokens

PRICE = Price(input=2.0, cached=0.5, cache_write=2.5, output=10.0)


def test_money_is_the_models_and_the_accelerators_together() -> None:
    budget = Budget(BudgetLimits(wall_s=100.0, money=3.0), accelerator_hour_price=2.0)
    assert budget.money() == 0.0
    budget.charge(accelerator_s=3600.0)
    budget.account(LlmUse(calls=2, output=500), 0.75)
    budget.account(LlmUse(calls=2, output=500), 0.75)  # the same figures again: absolute, so counted once
    assert budget.money() == 2.75 and budget.tick().tokens == 500 and budget.exhausted() == ""
    budget.account(LlmUse(calls=3, output=600), 1.0)
    assert budget.exhausted() == "money"
    again = Budget(BudgetLimits(wall_s=100.0), accelerator_hour_price=2.0)
    again.restore(budget.tick())
    assert again.money() == 3.0 and again.tick().llm == budget.tick().llm


def test_an_unknown_price_makes_every_sum_unknown() -> None:
    budget = Budget(BudgetLimits(wall_s=100.0), accelerator_hour_price=2.0)
    budget.account(LlmUse(calls=1, output=5), None)
    assert budget.money() is None and budget.tick().money is None
    assert Budget(BudgetLimits(wall_s=1.0)).money() is None
    assert cost(Tokens(input=5), Price(output=1.0)) is None
    assert cost(Tokens(), Price()) == 0.0 and cost(Tokens(output=10), Price(output=1e6)) == 10.0


def test_a_torn_file_is_gone_on_with_and_what_was_open_is_charged_once(tmp_path: Path) -> None:
    path = tmp_path / "llm.jsonl"
    book = Book(path)
    first = book.begin("researcher", "chat", "m", 100, None)
    book.end(first, "ok", Tokens(input=90, output=7), estimated=False, money=1.0)
    second = book.begin("researcher", "chat", "m", 100, None)
    book.seen(second, Tokens(input=100, output=40))
    book.close()
    with path.open("ab") as file:
        file.write(b'{"kind":"ended","call":2,"to')
    for _ in range(2):
        again = Book(path)
        again.settle(lambda _: PRICE)
        third = again.begin("researcher", "chat", "m", 1, None)
        again.end(third, "failed", Tokens(), estimated=False, money=0.0)
        again.close()
    told = totals(path)["researcher"]
    assert (told.calls, told.estimated) == (4, 1) and told.tokens == Tokens(input=190, output=47)
    assert told.money == pytest.approx(1.0 + (100 * 2 + 40 * 10) / 1e6)


@given(st.lists(st.binary(max_size=40), max_size=20), st.lists(st.integers(1, 30), max_size=20))
@settings(database=None, deadline=None)
def test_events_come_out_as_they_went_in_however_they_are_cut(texts: list[bytes], cuts: list[int]) -> None:
    clean = [text.replace(b"\n", b"").replace(b"\r", b"") for text in texts]
    whole = b"".join(b"data: " + text + b"\n\n" for text in clean) + b"data: rest"
    reader, found, at = Events(), [], 0
    for cut in [*cuts, len(whole)]:
        found += list(reader.feed(whole[at : at + cut]))
        at += cut
    assert b"".join(found) == whole[: len(b"".join(found))] and len(found) == len(clean)


@given(st.lists(st.binary(max_size=200) | st.text(max_size=100).map(str.encode), max_size=10))
@settings(database=None, deadline=None)
def test_no_reply_hurts_a_meter(events: list[bytes]) -> None:
    for api in ("messages", "responses", "chat", "count_tokens"):
        meter = Meter(api, 10)  # type: ignore[arg-type]
        for event in events:
            meter.event(b"data: " + event + b"\n\n")
            meter.event(b'data: {"delta": ' + event + b', "usage": ' + event + b"}\n\n")
        meter.whole(b"".join(events))
        assert min(meter.tokens().model_dump().values()) >= 0
