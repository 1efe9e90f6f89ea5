"""What passes the LLM gateway, in what shape, and what it costs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from gateway_kit import CANARY, MODEL, Kit, good, request, split
from standin import StandIn, Turn, stream

from runner.config import ConfigError
from runner.research.llm.account import totals
from runner.research.llm.protocol import Limits, Price

STYLES = {"messages": "anthropic", "responses": "openai", "chat": "openai"}


@pytest.mark.parametrize("api", STYLES)
@pytest.mark.parametrize("streaming", [True, False])
async def test_a_reply_passes_and_the_account_is_the_upstreams(
    gateway: Any, standin: StandIn, api: str, streaming: bool
) -> None:
    kit: Kit = await gateway(STYLES[api])
    status, body = await kit.ask(api, stream=streaming)
    assert status == 200
    if streaming:
        events = stream(api, standin.turns[0], MODEL)
        hidden = [event for event in events if api == "chat" and b'"choices": []' in event]
        assert body == b"".join(event for event in events if event not in hidden)
    else:
        assert b"hello" in body
    told = await kit.until_calls(1)
    assert told.tokens.model_dump() == standin.used() and told.estimated == 0
    assert told.money == pytest.approx((60 * 3 + 40 * 0.3 + 7 * 15) / 1e6)


async def test_the_key_is_put_in_here_and_nothing_of_the_clients_headers_passes(gateway: Any, standin: StandIn) -> None:
    kit: Kit = await gateway("anthropic")
    path, body = good("messages")
    hostile = {
        "Authorization": "Bearer mine", "x-api-key": "mine", "Cookie": "a=b", "OpenAI-Organization": "other",
        "anthropic-beta": "claude-code-20250219,web-fetch-2025-09-10,files-api-2025-04-14",
        "X-Forwarded-For": "1.2.3.4", "anthropic-version": "1999-01-01",
    }  # fmt: skip
    body["metadata"] = {"user_id": "someone"}
    assert (await kit.post(path, body, hostile))[0] == 200
    seen = standin.sent[0]
    assert seen.headers["x-api-key"] == CANARY and seen.headers["anthropic-version"] == "2023-06-01"
    assert seen.headers["anthropic-beta"] == "claude-code-20250219"
    assert "authorization" not in seen.headers and "metadata" not in seen.body


async def test_events_pass_one_by_one(gateway: Any, standin: StandIn) -> None:
    """The upstream sends its second event only when the client has read the first."""
    kit: Kit = await gateway("anthropic")
    read = asyncio.Event()

    async def act(_request: Any, out: Any, events: list[bytes]) -> None:
        await out.write(events[0])
        await read.wait()
        for event in events[1:]:
            await out.write(event)

    standin.act = act
    path, body = good("messages")
    reader, writer = await asyncio.open_unix_connection(kit.folder / "llm.sock")
    writer.write(request("POST", path, json.dumps(body).encode()))
    assert b"message_start" in await reader.readuntil(b"message_start")
    read.set()
    assert b"message_stop" in await reader.read()
    writer.close()


async def test_a_client_that_drops_the_stream_pays_the_upstreams_figure(gateway: Any, standin: StandIn) -> None:
    kit: Kit = await gateway("anthropic", limits=Limits(streams=1))
    gone = asyncio.Event()

    async def act(_request: Any, out: Any, events: list[bytes]) -> None:
        await out.write(events[0])
        await gone.wait()
        for event in events[1:]:
            await out.write(event)

    standin.act = act
    path, body = good("messages")
    for number in range(1, 4):
        gone.clear()
        reader, writer = await asyncio.open_unix_connection(kit.folder / "llm.sock")
        writer.write(request("POST", path, json.dumps(body).encode()))
        await reader.readuntil(b"message_start")
        writer.transport.abort()
        gone.set()
        told = await kit.until_calls(number)
    assert told.tokens.model_dump() == standin.used() and told.estimated == 0


@pytest.mark.parametrize("api", STYLES)
async def test_a_stream_that_the_upstream_cuts_is_charged_an_estimate(gateway: Any, standin: StandIn, api: str) -> None:
    kit: Kit = await gateway(STYLES[api])
    standin.plan = lambda _sent: Turn(text="word " * 300)

    async def act(request: Any, out: Any, events: list[bytes]) -> None:
        for event in events[:3]:
            await out.write(event)
        request.transport.close()

    async def first(request: Any, out: Any, events: list[bytes]) -> None:
        await out.write(events[0])
        request.transport.close()

    standin.act = first if api == "chat" else act
    await kit.ask(api)
    told = await kit.until_calls(1)
    assert told.estimated == 1 and 300 <= told.tokens.output <= 600
    assert told.tokens.input > 0


async def test_trouble_is_retried_inside_and_the_stream_is_kept_alive(gateway: Any, standin: StandIn) -> None:
    kit: Kit = await gateway("anthropic", first_byte_s=1.0)
    standin.refusals = [(529, {"message": "overloaded"}), (429, {"message": "slow down"}), standin.never]
    status, body = await kit.ask("messages")
    assert status == 200 and body.startswith(b": waiting for the model\n\n") and b"message_stop" in body
    told = await kit.until_calls(1)
    assert told.calls == 1 and told.estimated == 1 and len(standin.sent) == 4
    used = told.tokens.model_dump()
    unsaid = used.pop("input") - standin.used()["input"]  # of the try that the upstream had, and said nothing to
    assert {**standin.used(), **used} == standin.used() and 10 < unsaid < 100


async def test_a_whole_reply_that_does_not_come_is_charged_and_not_asked_for_again(
    gateway: Any, standin: StandIn
) -> None:
    """It comes at its end: each try would be another reply that the upstream bills and nobody reads."""
    kit: Kit = await gateway("anthropic", first_byte_s=0.5, tries=3)
    standin.refusals = [standin.never] * 3
    status, body = await kit.ask("messages", stream=False, max_tokens=900)
    assert status == 503 and b"said nothing" in body
    told = await kit.until_calls(1)
    assert len(standin.sent) == 1 and told.estimated == 1
    assert told.tokens.output == 900 and 10 < told.tokens.input < 100 and told.money is not None and told.money > 0.01


async def test_a_stream_that_never_begins_is_charged_what_was_sent_each_time(gateway: Any, standin: StandIn) -> None:
    kit: Kit = await gateway("openai", first_byte_s=0.5, tries=2)
    standin.refusals = [standin.never] * 2
    status, body = await kit.ask("responses")
    assert status == 200 and b"event: error" in body
    told = await kit.until_calls(1)
    assert len(standin.sent) == 2 and told.estimated == 1 and told.tokens.output == 0
    assert 20 < told.tokens.input < 200 and told.tokens.input % 2 == 0


async def test_an_upstream_that_is_not_there_costs_nothing(gateway: Any, standin: StandIn) -> None:
    kit: Kit = await gateway("openai", tries=2)
    await standin.close()
    status, _ = await kit.ask("responses", stream=False)
    told = await kit.until_calls(1)
    assert status == 503 and told.estimated == 0 and told.tokens.model_dump() == standin.used()


async def test_an_upstream_that_stays_down_is_told(gateway: Any, standin: StandIn) -> None:
    kit: Kit = await gateway("openai", tries=2)
    standin.refusals = [(500, {"message": "down"})] * 4
    status, body = await kit.ask("responses", stream=False)
    assert status == 503 and b"down" in body
    status, body = await kit.ask("responses")
    assert status == 200 and b"event: error" in body
    assert "trouble with the LLM upstream" in kit.what
    assert (await kit.until_calls(2)).tokens.output == 0


async def test_the_upstreams_own_words_reach_the_agent_without_the_key(gateway: Any, standin: StandIn) -> None:
    kit: Kit = await gateway("anthropic")
    standin.refusals = [(400, {"message": f"prompt is too long for {CANARY}"}), (401, {"message": f"bad {CANARY}"})]
    status, body = await kit.ask("messages")
    assert status == 400 and b"prompt is too long for [key]" in body
    status, body = await kit.ask("messages")
    assert status == 400 and CANARY.encode() not in body
    assert "the LLM upstream refuses the key" in kit.what


async def test_a_limit_clamps_the_reply_and_then_nothing_is_forwarded(gateway: Any, standin: StandIn) -> None:
    kit: Kit = await gateway("anthropic", limits=Limits(tokens=100))
    standin.plan = lambda sent: Turn(output=sent.body["max_tokens"] - 20 if len(standin.turns) < 1 else 25)
    thinking = {"type": "enabled", "budget_tokens": 5000}
    assert (await kit.ask("messages", thinking=thinking))[0] == 200
    assert standin.sent[0].body["max_tokens"] == 100 and "thinking" not in standin.sent[0].body
    assert (await kit.ask("messages"))[0] == 200
    assert standin.sent[1].body["max_tokens"] == 20
    path, body = good("messages")
    raw = await kit.raw(request("POST", path, json.dumps(body).encode()))
    assert split(raw)[0] == 429 and b"x-should-retry: false" in raw.lower() and b"token budget" in raw
    assert len(standin.sent) == 2
    told = kit.heard[-1]
    assert told.tokens.output == 105 and told.refused == 1  # the overshoot: what the upstream gave beyond its limit


async def test_many_at_once_overshoot_no_more_than_one(gateway: Any, standin: StandIn) -> None:
    kit: Kit = await gateway("openai", limits=Limits(tokens=1000))
    standin.plan = lambda sent: Turn(output=min(90, sent.body["max_tokens"]))
    replies = await asyncio.gather(*(kit.ask("chat", max_tokens=90) for _ in range(30)))
    assert {status for status, _ in replies} == {200, 429}
    assert kit.heard[-1].tokens.output <= 1000 + 16
    assert sum(turn.output for turn in standin.turns) == kit.heard[-1].tokens.output


async def test_money_counts_what_was_spent_elsewhere(gateway: Any, standin: StandIn) -> None:
    kit: Kit = await gateway("openai", limits=Limits(money=1.0))
    assert (await kit.ask("chat"))[0] == 200
    assert standin.sent[0].body["max_tokens"] == 64_000
    kit.gateway.elsewhere(0.999)
    standin.plan = lambda sent: Turn(output=sent.body["max_tokens"])
    while (await kit.ask("chat"))[0] == 200:
        continue
    assert kit.heard[-1].money == pytest.approx(sum((60 * 3 + 40 * 0.3 + t.output * 15) / 1e6 for t in standin.turns))


async def test_a_gateway_that_is_started_again_knows_what_was_spent_elsewhere(gateway: Any, standin: StandIn) -> None:
    kit: Kit = await gateway("openai", limits=Limits(money=1.0))
    kit.gateway.elsewhere(2.0)
    told = len(kit.heard)
    os.kill(kit.gateway.pid, signal.SIGKILL)
    await kit.until(lambda: len(kit.heard) > told)
    status, body = await kit.ask("chat")
    assert status == 429 and b"(2.00 of 1.00)" in body and standin.sent == []


async def test_an_unknown_price_is_unknown(gateway: Any) -> None:
    kit: Kit = await gateway("openai", price=Price(input=1.0))
    await kit.ask("chat")
    assert (await kit.until_calls(1)).money is None


async def test_no_key_refuses_to_start(gateway: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_LLM_KEY")
    with pytest.raises(ConfigError, match="TEST_LLM_KEY: no key"):
        await gateway("openai")


async def test_a_killed_gateway_is_started_again_and_nothing_is_free_or_counted_twice(
    gateway: Any, standin: StandIn
) -> None:
    kit: Kit = await gateway("anthropic")
    await kit.ask("messages")
    forwarded = asyncio.Event()

    async def act(_request: Any, out: Any, events: list[bytes]) -> None:
        await out.write(events[0])
        forwarded.set()
        await standin.never()

    standin.act = act
    asking = asyncio.create_task(kit.ask("messages"))
    await forwarded.wait()
    os.kill(kit.gateway.pid, signal.SIGKILL)
    await asking
    told = await kit.until_calls(2)
    assert told.estimated == 1 and told.tokens.output == 7 and told.tokens.input > 60
    standin.act = StandIn().act
    assert (await kit.ask("messages"))[0] == 200
    await kit.gateway.close()
    assert totals(kit.folder / "llm.jsonl")["researcher"] == kit.heard[-1].model_copy(update={"refused": 0})
    assert kit.heard[-1].calls == 3 and "the LLM gateway died" in kit.what


async def test_the_key_is_in_no_file_no_message_and_closed_to_other_processes(gateway: Any, standin: StandIn) -> None:
    kit: Kit = await gateway("anthropic")
    standin.refusals = [(500, {"message": CANARY}), (401, {"message": CANARY})]
    await kit.ask("messages")
    await kit.ask("messages")
    await kit.raw(b"POST /v1/messages HTTP/1.1\r\nx-api-key: " + CANARY.encode() + b"\r\n\0\r\n\r\n")
    with pytest.raises(PermissionError):
        Path(f"/proc/{kit.gateway.pid}/environ").read_bytes()
    assert CANARY not in Path(f"/proc/{kit.gateway.pid}/cmdline").read_text()
    await kit.gateway.close()
    for path in kit.folder.iterdir():
        if path.is_file():
            assert CANARY.encode() not in path.read_bytes(), path
    assert all(CANARY not in notice.model_dump_json() for notice in kit.notices)


async def test_the_end_of_the_phase_charges_what_the_upstream_is_at_work_on(gateway: Any, standin: StandIn) -> None:
    kit: Kit = await gateway("openai")
    arrived = asyncio.Event()

    async def silent() -> None:
        arrived.set()
        await standin.never()

    standin.refusals = [silent]
    asking = asyncio.create_task(kit.ask("chat", stream=False))
    await arrived.wait()
    await kit.gateway.close()
    await asking
    assert kit.heard[-1].calls == 1 and kit.heard[-1].estimated == 1 and kit.heard[-1].tokens.input > 0
    assert b'"status":"cut"' in (kit.folder / "llm.jsonl").read_bytes()  # by itself, not by who came after its death


async def test_a_gateway_that_dies_again_and_again_is_let_go(gateway: Any) -> None:
    kit: Kit = await gateway("openai")
    for _ in range(5):
        told = len(kit.heard)
        os.kill(kit.gateway.pid, signal.SIGKILL)
        await kit.until(lambda told=told: len(kit.heard) > told)
    os.kill(kit.gateway.pid, signal.SIGKILL)
    await kit.until(lambda: "the LLM gateway is gone for good" in kit.what)
    assert kit.what == ["the LLM gateway died"] * 5 + ["the LLM gateway is gone for good"]
