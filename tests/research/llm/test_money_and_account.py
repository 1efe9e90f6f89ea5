"""Money and tokens in the budget, and what a file of calls sums to, whatever a crash left of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grader.request import Refused
from runner.record.events import BudgetLimits, LlmUse
from runner.research.budget import Budget
from runner.research.llm.account import Account, Book, Call, cost, totals
from runner.research.llm.meter import BYTES_A_TOKEN, Events, Meter, each
from runner.research.llm.protocol import Door, Limits, Price, Role, Tokens, Upstream

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


def two_roles(folder: Path, money: float) -> tuple[Account, Account]:
    """A researcher's and a teacher's account under one limit on money."""
    book, upstream = Book(folder / "llm.jsonl"), Upstream(style="openai", base_url="http://127.0.0.1:1")
    roles: tuple[Role, Role] = ("researcher", "teacher")
    doors = [
        Door(role=role, socket="", models=("m",), upstream=upstream, price=PRICE, limits=Limits(money=money))
        for role in roles
    ]
    researcher, teacher = (Account(door, book, None, lambda _told: None) for door in doors)
    researcher.peers, teacher.peers = (teacher,), (researcher,)
    return researcher, teacher


async def waits(call: asyncio.Task[Call]) -> bool:
    """Whether ``call`` is held back: everything else that could happen has."""
    for _ in range(20):
        await asyncio.sleep(0)
    return not call.done()


@pytest.mark.parametrize("teacher_first", [False, True])
async def test_what_another_role_may_still_spend_is_not_spent(tmp_path: Path, teacher_first: bool) -> None:
    """Two calls that each want all the money: the second is neither refused nor cut to nothing, it waits."""
    first, second = two_roles(tmp_path, money=0.1)[:: -1 if teacher_first else 1]
    held = await first.begin("chat", "m", 100, None)
    assert held.max_output == 9980, "all that 0.1 buys beside 100 tokens of input"
    waiting = asyncio.create_task(second.begin("chat", "m", 100, 5000))
    assert await waits(waiting)
    first.end(held, "ok", Tokens(input=100, output=500), estimated=False)
    await first.freed()
    call = await asyncio.wait_for(waiting, 30)
    assert call.max_output == 5000
    second.end(call, "ok", Tokens(output=9500), estimated=False)
    await second.freed()
    with pytest.raises(Refused, match=r"used up \(0\.10 of 0\.10\)"):
        await first.begin("chat", "m", 100, None)


async def test_calls_of_two_roles_go_beside_each_other_where_both_have_enough(tmp_path: Path) -> None:
    researcher, teacher = two_roles(tmp_path, money=0.1)
    calls = [await teacher.begin("chat", "m", 0, 4096)]
    calls += [await researcher.begin("chat", "m", 0, 64_000)]
    assert [call.max_output for call in calls] == [4096, 5904], "cut, but to no less than is of use"
    waiting = asyncio.create_task(teacher.begin("chat", "m", 0, 16))
    assert await waits(waiting), "nothing at all is left beside the two"
    researcher.end(calls[1], "cut", Tokens(), estimated=True)
    await researcher.freed()
    assert (await asyncio.wait_for(waiting, 30)).max_output == 16


async def test_the_last_of_the_money_is_for_one_call_of_all_roles(tmp_path: Path) -> None:
    """What is left buys less than any API takes as a limit: one call overshoots, the other waits and is refused."""
    researcher, teacher = two_roles(tmp_path, money=0.0001)
    last = await teacher.begin("chat", "m", 100, None)
    assert last.max_output == 16
    waiting = asyncio.create_task(researcher.begin("chat", "m", 100, None))
    assert await waits(waiting)
    teacher.end(last, "ok", Tokens(input=100, output=16), estimated=False)
    await teacher.freed()
    with pytest.raises(Refused, match="money budget"):
        await asyncio.wait_for(waiting, 30)


def cut_up(whole: bytes, cuts: list[int]) -> list[bytes]:
    """``whole`` in pieces of these sizes, then the rest."""
    pieces, at = [], 0
    for cut in [*cuts, len(whole)]:
        pieces.append(whole[at : at + cut])
        at += cut
    return pieces


@given(
    st.lists(st.binary(max_size=40), max_size=20),
    st.lists(st.integers(1, 30), max_size=20),
    st.sampled_from([b"\n\n", b"\r\n\r\n"]),
)
@settings(database=None, deadline=None)
def test_events_come_out_as_they_went_in_however_they_are_cut(
    texts: list[bytes], cuts: list[int], blank: bytes
) -> None:
    clean = [text.replace(b"\n", b"").replace(b"\r", b"") for text in texts]
    events = [b"data: " + text + blank for text in clean]
    reader, found = Events(), []
    for piece in cut_up(b"".join(events) + b"data: rest", cuts):
        found += each(reader.feed(piece))
    assert found == events


def delta(api: str, text: str, spaced: bool, ascii_only: bool) -> bytes:
    """A piece of text as an event of an API, spelled one way or another."""
    said = {
        "messages": {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        "responses": {"type": "response.output_text.delta", "item_id": "msg", "delta": text},
        "chat": {"choices": [{"index": 0, "delta": {"content": text}}], "usage": None},
        "other": {"choices": [{"index": 0, "delta": {"content": "", "thoughts": text}}]},
    }[api]
    spelled = json.dumps(said, separators=(", ", ": ") if spaced else (",", ":"), ensure_ascii=ascii_only)
    return f"data: {spelled}\n\n".encode()


@given(st.lists(st.text(max_size=30), max_size=20), st.lists(st.integers(1, 200), max_size=20), st.booleans())
@settings(database=None, deadline=None, max_examples=30)
@pytest.mark.parametrize("api", ["messages", "responses", "chat", "other"])
def test_text_that_is_not_parsed_is_counted(api: str, texts: list[str], cuts: list[int], spaced: bool) -> None:
    """No less than it is, however it is spelled and cut; nothing of the stream is changed or held back."""
    clean = [text.encode("utf-8", "replace").decode() for text in texts]
    events = [delta(api, text, spaced, bool(number % 2)) for number, text in enumerate(clean)]
    meter, reader, passed = Meter("chat" if api == "other" else api, 10), Events(), b""  # type: ignore[arg-type]
    for piece in cut_up(b"".join(events), cuts):
        passed += meter.follow(reader.feed(piece))
    size, longest = sum(len(text.encode()) for text in clean), sum(len(json.dumps(text)) - 2 for text in clean)
    assert passed == b"".join(events) and not meter.done and not meter.exact
    assert -(-size // BYTES_A_TOKEN) <= meter.output() <= -(-max(size, longest) // BYTES_A_TOKEN)


def test_the_last_word_of_a_reply_counts_when_the_reply_is_whole_and_never_less_than_before() -> None:
    meter = Meter("chat", 10)
    meter.follow(b'data: {"choices": [], "usage": {"prompt_tokens": 50, "completion_tokens": 900}}\n\n')
    assert meter.output() == 900 and not meter.exact
    meter.follow(delta("chat", "x" * 6000, True, True))
    assert meter.output() == 2000
    meter.follow(b'data: {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}\n\ndata: [DONE]\n\n')
    assert meter.exact and meter.tokens() == Tokens(input=50, output=900)


def test_a_whole_reply_that_does_not_say_what_it_used_is_not_free() -> None:
    for api in ("messages", "responses", "chat"):
        meter = Meter(api, 10)  # type: ignore[arg-type]
        meter.whole(json.dumps({"choices": [{"message": {"content": "x" * 3000}}]}).encode())
        assert meter.tokens().input == 10 and meter.tokens().output > 1000 and not meter.exact


@given(st.lists(st.binary(max_size=200) | st.text(max_size=100).map(str.encode), max_size=10))
@settings(database=None, deadline=None)
def test_no_reply_hurts_a_meter(events: list[bytes]) -> None:
    for api in ("messages", "responses", "chat", "count_tokens"):
        meter = Meter(api, 10)  # type: ignore[arg-type]
        for event in events:
            meter.follow(b"data: " + event + b"\n\n")
            meter.follow(b'data: {"delta": ' + event + b', "usage": ' + event + b"}\n\n", hide_usage=True)
        meter.whole(b"".join(events))
        assert min(meter.tokens().model_dump().values()) >= 0
