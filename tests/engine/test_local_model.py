"""The program's own engine as an agent's model, behind the LLM gateway: what a program asks of it and what it costs."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from engine_kit import TINY, model_env

from grader.engines.base import EngineError
from runner.research.llm.client import LlmGateway
from runner.research.llm.local import completion_of, served
from runner.research.llm.protocol import Door, Totals, Upstream
from runner.research.memory import GIB, Share, beside_memory

MODEL = "local:tiny"
SAID = {"model": MODEL, "messages": [{"role": "user", "content": "What is 2 + 2?"}], "max_tokens": 8}


@pytest.mark.long
async def test_an_agent_reaches_it_through_the_gateway() -> None:
    if os.getuid() == 0:
        pytest.skip("sandboxes are never started by root: run through `python -P -m isolation.privilege`")
    told: list[Totals] = []
    with tempfile.TemporaryDirectory(prefix="vtb-") as name:
        folder = Path(name)
        share = beside_memory((str(TINY),), 32 * GIB, 4 * GIB)[str(TINY)]
        async with served(TINY, model_env(), folder, folder / "log", share=share, seed=3, on_notice=print) as socket:
            upstream = Upstream(style="openai", base_url="http://localhost", socket=str(socket))
            door = Door(role="researcher", socket=str(folder / "llm.sock"), models=(MODEL,), upstream=upstream)
            gateway = LlmGateway((door,), folder / "llm.jsonl", folder / "llm.log", print, told.append)
            await gateway.start()
            async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(door.socket)) as http:

                async def ask(**more: Any) -> tuple[int, str]:
                    async with http.post("http://x/v1/chat/completions", json={**SAID, **more}) as reply:
                        return reply.status, await reply.text()

                status, whole = await ask()
                assert status == 200 and '"content"' in whole and '"completion_tokens"' in whole
                status, events = await ask(stream=True)
                assert status == 200 and events.endswith("data: [DONE]\n\n") and '"usage"' not in events
                status, refused = await ask(max_tokens=1 << 20)
                assert status == 400 and "exceed" in refused
                function = {"type": "function", "function": {"name": "f", "parameters": {}}}
                status, refused = await ask(tools=[function])
                assert status == 400 and "no tools" in refused
            await gateway.close()
    assert told[-1].calls == 4 and told[-1].estimated == 0 and 2 <= told[-1].tokens.output <= 16


@pytest.mark.long
async def test_it_holds_no_more_than_its_share() -> None:
    if os.getuid() == 0:
        pytest.skip("sandboxes are never started by root: run through `python -P -m isolation.privilege`")
    with tempfile.TemporaryDirectory(prefix="vtb-") as name:
        folder, little = Path(name), Share(64 << 20, 1)
        with pytest.raises(EngineError, match=r"(?i)(did not start|died while loading).*: .*memory") as error:
            async with served(TINY, model_env(), folder, folder / "log", share=little, seed=3, on_notice=print):
                raise AssertionError("64 MiB hold no interpreter with torch")
        assert "engine_memory" not in str(error.value), "that is the grader's engine"


def test_what_it_cannot_do_is_said_and_every_role_is_one_of_its_own() -> None:
    said = [{"role": "developer", "content": "a"}, {"role": "tool", "content": [{"type": "text", "text": "b"}]}]
    call = completion_of({"messages": said, "stop": "x", "max_completion_tokens": 9}, seed=5)
    assert call.messages == (("system", "a"), ("user", "b"))
    assert (call.stop, call.max_tokens, call.seed) == (("x",), 9, 5) and call.temperature > 0
    with pytest.raises(ValueError, match="text only"):
        completion_of({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, seed=1)
