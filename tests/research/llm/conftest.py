"""Gateways before stand-ins, closed at the end; and no stand-in may have seen anything that is not canonical."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from gateway_kit import CANARY, MODEL, Kit
from live_kit import Live
from standin import StandIn

from runner.research.llm.protocol import Limits


@pytest.fixture
async def standin() -> AsyncIterator[StandIn]:
    made = await StandIn().start()
    yield made
    await made.close()
    assert made.faults == []


@pytest.fixture
async def gateway(
    short: Path, standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[..., Awaitable[Kit]]]:
    """Starts a gateway of a style, with the canary as its key."""
    monkeypatch.setenv("TEST_LLM_KEY", CANARY)
    made: list[Kit] = []

    async def make(style: str, **more: Any) -> Kit:
        made.append(await Kit.start(short, standin, style, **more))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for kit in made:
        await kit.gateway.close()


@pytest.fixture
async def live(
    phases: Callable[..., Any], standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[..., Awaitable[Live]]]:
    """Starts a research phase whose agent has a model of a style."""
    monkeypatch.setenv("TEST_LLM_KEY", CANARY)
    made: list[Live] = []

    async def make(style: str, *, limits: Limits | None = None, model: str = MODEL, **changes: Any) -> Live:
        phase = await phases(**changes)
        made.append(await Live.start(phase, standin, style, limits=limits, model=model))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        await one.gateway.close()
