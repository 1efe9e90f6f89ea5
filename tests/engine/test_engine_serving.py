"""What the engine serves: texts that repeat, stops, continuations, seeds, and refusals that harm nobody else."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from engine_kit import ADAPTER, BASE, until_computing

from grader.engines.base import Completed, Completion, EngineError, RequestRefused
from grader.engines.transformers import TransformersEngine

QUESTIONS = tuple(f"Ana buys {n} boxes of {n + 3} stamps. How many stamps?" * (1 + n % 3) for n in range(3, 15))
pytestmark = pytest.mark.asyncio(loop_scope="module")
Make = Callable[..., TransformersEngine]


def chat(text: str, **more: Any) -> Completion:
    return Completion(**{"max_tokens": 24, "messages": (("user", text),), **more})


async def wave(engine: TransformersEngine, calls: Sequence[Completion], turns: int = 1) -> list[list[Completed]]:
    """Sessions s0, s1 … each ask their call ``turns`` times, one after the other; then all are closed."""
    keys = [f"e1:s{i}:0" for i in range(len(calls))]
    await engine.sessions(keys, ())

    async def session(key: str, call: Completion) -> list[Completed]:
        replies = [await engine.complete(key, call) for _ in range(turns)]
        await engine.sessions((), (key,))
        return replies

    async with asyncio.timeout(200):
        return await asyncio.gather(*(session(k, c) for k, c in zip(keys, calls, strict=True)))


def texts(replies: list[list[Completed]]) -> list[str]:
    return [reply.text for session in replies for reply in session]


async def test_two_engine_processes_write_the_same_texts(engine: Make) -> None:
    calls = [chat(q, temperature=0.8 if i % 2 else 0.0, top_p=0.95, seed=i) for i, q in enumerate(QUESTIONS)]
    seen = []
    for order in (1, -1):  # the order of arrival decides nothing
        server = engine()
        assert (await server.start()).startswith("transformers/5.")
        await server.load(ADAPTER)
        keys = [f"s{i}" for i in range(len(calls))]
        await server.sessions(keys, ())
        asked = list(zip(keys, calls, strict=True))[::order]
        seen.append([r.text for r in await asyncio.gather(*(server.complete(k, c) for k, c in asked))][::order])
        await server.stop()
    assert seen[0] == seen[1]
    assert len(set(seen[0])) > 3


async def test_kill_in_mid_round_loses_nothing(engine: Make) -> None:
    server = engine()
    await server.start()
    await server.load(ADAPTER)
    calls = [chat(q, max_tokens=200, temperature=0.9, seed=i) for i, q in enumerate(QUESTIONS)]
    whole = texts(await wave(server, calls, turns=2))
    task = asyncio.create_task(wave(server, calls, turns=2))
    first = server.pid
    await until_computing(first)
    os.kill(first, signal.SIGKILL)
    assert texts(await task) == whole
    assert server.pid != first
    assert [n.what for n in server.notices] == ["the engine died and is started again"]  # type: ignore[attr-defined]


async def test_three_deaths_are_an_engine_error_for_all(engine: Make) -> None:
    server = engine()
    await server.start()
    await server.load(ADAPTER)
    calls = [chat(QUESTIONS[0], max_tokens=400, temperature=1.5, seed=i) for i in range(12)]
    task = asyncio.create_task(wave(server, calls))
    for _ in range(3):
        await server.sessions((), ())  # returns when a restart is over
        pid = server.pid
        await until_computing(pid)
        os.kill(pid, signal.SIGKILL)
        while server.pid == pid:
            await asyncio.to_thread(os.sched_yield)
    with pytest.raises(EngineError, match="three times"):
        await task
    await server.sessions((), [f"e1:s{i}:0" for i in range(len(calls))])
    await server.load(BASE)
    assert texts(await wave(server, [chat("again")]))


async def test_stop_strings_end_the_text(served: TransformersEngine) -> None:
    await served.load(ADAPTER)
    [[whole]] = await wave(served, [chat(QUESTIONS[0], max_tokens=60)])
    stop = whole.text[10:13]
    [[cut]] = await wave(served, [chat(QUESTIONS[0], max_tokens=60, stop=("nowhere", stop))])
    assert cut.text == whole.text[: whole.text.index(stop) + len(stop)]
    assert cut.finish_reason == "stop" and cut.tokens_out < whole.tokens_out
    [[short]] = await wave(served, [chat(QUESTIONS[0], max_tokens=5)])
    assert (short.finish_reason, short.tokens_out) == ("length", 5)


async def test_a_reply_goes_on_from_the_assistant_text(served: TransformersEngine) -> None:
    await served.load(ADAPTER)
    [[whole]] = await wave(served, [chat(QUESTIONS[0], max_tokens=40)])
    half = whole.text[: len(whole.text) // 2]
    rendered = f"<|im_start|>user\n{QUESTIONS[0]}<|im_end|>\n<|im_start|>assistant\n{half}"
    messages = (("user", QUESTIONS[0]), ("assistant", half))
    [[chatted]] = await wave(served, [Completion(max_tokens=12, messages=messages)])
    [[plain]] = await wave(served, [Completion(max_tokens=12, prompt=rendered)])
    assert (chatted.text, chatted.tokens_in) == (plain.text, plain.tokens_in)


async def test_the_draw_is_the_rows_own(served: TransformersEngine) -> None:
    await served.load(ADAPTER)

    def hot(seed: int) -> Completion:
        return chat(QUESTIONS[1], temperature=1.2, top_k=50, top_p=0.95, seed=seed)

    many = texts(await wave(served, [hot(0), hot(1), hot(0), chat(QUESTIONS[2], temperature=1.0, seed=9), hot(2)]))
    assert many[0] == many[2] and len({many[0], many[1], many[4]}) == 3
    assert texts(await wave(served, [hot(2), hot(0)])) == [many[4], many[0]]


async def test_a_refused_request_leaves_the_round_alone(served: TransformersEngine) -> None:
    await served.load(ADAPTER)
    await served.sessions(["good", "bad"], ())
    good = asyncio.create_task(served.complete("good", chat("hello")))
    with pytest.raises(RequestRefused, match="exceed the model's"):
        await served.complete("bad", chat("word " * 4000))
    with pytest.raises(RequestRefused, match="not open"):
        await served.complete("unknown", chat("hello"))
    await served.sessions((), ("bad",))
    async with asyncio.timeout(60):
        assert (await good).text


async def test_free_batching_waits_for_nobody(engine: Make) -> None:
    server = engine(rounds=False)
    await server.start()
    await server.load(BASE)
    await server.sessions(["a", "b"], ())
    async with asyncio.timeout(60):
        assert (await server.complete("a", chat("hello"))).text
