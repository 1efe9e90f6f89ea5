"""A real engine in a real sandbox over the tiny model of the repository."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from engine_kit import CONFIG, MAKE_MODELS, TINY, model_env, run_inside

from grader.engines.transformers import TransformersEngine
from grader.protocol import EngineConfig, Noticed
from isolation.sandbox import use_pidfd_children

use_pidfd_children()


@pytest.fixture(scope="session")
def models() -> Iterator[Path]:
    """A models folder: m01 and m02 adapters, m03 full weights (m01 merged by PEFT), and a zoo of broken ones."""
    with tempfile.TemporaryDirectory(prefix="vtb-models-") as folder:
        run_inside(MAKE_MODELS, str(TINY), folder)
        yield Path(folder)


def new_engine(models: Path, runtime: Path, config: EngineConfig, **more: Any) -> TransformersEngine:
    """An engine that is not started; its notices are collected in ``notices``."""
    if os.getuid() == 0:
        pytest.skip("sandboxes are never started by root: run through `python -P -m isolation.privilege`")
    notices: list[Noticed] = []
    log = runtime.with_suffix(".log")
    made = TransformersEngine(config, model_env(), TINY, models, runtime, log, on_notice=notices.append, **more)
    made.notices = notices  # type: ignore[attr-defined]
    return made


@pytest_asyncio.fixture(loop_scope="module")
async def engine(models: Path) -> AsyncIterator[Callable[..., Any]]:
    """Makes engines; each is stopped at the end and must leave nothing in its runtime folder."""
    made: list[TransformersEngine] = []
    with tempfile.TemporaryDirectory(prefix="vtb-") as folder:
        runtime = Path(folder, "r")
        await asyncio.to_thread(runtime.mkdir)

        def make(config: EngineConfig = CONFIG, **more: Any) -> TransformersEngine:
            made.append(new_engine(models, runtime, config, **more))
            return made[-1]

        yield make
        for one in made:
            await one.stop()
        await asyncio.to_thread(runtime.rmdir)  # fails where something was left


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(models: Path) -> AsyncIterator[TransformersEngine]:
    """One started engine for all tests of a file that only ask it.

    They all run in one loop: on Python 3.11, ending a second loop makes the first one's children unheard of.
    """
    with tempfile.TemporaryDirectory(prefix="vtb-") as folder:
        one = new_engine(models, Path(folder), CONFIG)
        await one.start()
        yield one
        await one.stop()
