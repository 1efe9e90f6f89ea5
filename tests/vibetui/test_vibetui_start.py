"""A new run from the form: refused in the words of `runner`, or started as a process of its own that outlives us."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from looking import settled, until, viewing
from textual.pilot import Pilot

from runner.record.rundir import RunDir, holder_alive, list_runs
from runner.research.lease import LeaseError, machine_lock


@asynccontextmanager
async def machine_in_use() -> AsyncIterator[None]:
    """This machine's locks are held, here or by a run of somebody else: a run that starts waits, and costs nothing."""
    with contextlib.ExitStack() as held:
        for device in ("cpu", "gpu0"):
            with contextlib.suppress(LeaseError):
                lock = await machine_lock(device, wait=False, on_wait=lambda who: None, owner="a test")
                held.callback(lock.release)
        yield


async def form(pilot: Pilot[int], task: str) -> None:
    """Open the form and answer the first question."""
    await pilot.press("n")
    await until(pilot, "the same as")
    await pilot.press(*task)
    await until(pilot, f"runner --task {task}")


async def test_what_runner_refuses_is_said_in_its_words_and_can_be_mended(tmp_path: Path) -> None:
    async with viewing(None, tmp_path, (100, 30), runs=tmp_path / "runs") as pilot:
        await form(pilot, "chess")
        await pilot.press("enter", *"me")
        await until(pilot, "--task chess --agent me")  # enter goes on, it does not start
        await pilot.press("ctrl+r")
        await until(pilot, "starting …")
        assert "chess" in (await until(pilot, "starting …", gone=True)).partition("the same as")[2]
        assert list_runs(tmp_path / "runs") == []
        await pilot.press("escape")
        await until(pilot, "no runs here")


async def test_a_run_that_the_form_started_outlives_the_viewer(tmp_path: Path) -> None:
    """Started, left, found again, stopped, resumed, stopped: the same run, by keys alone."""
    runs = tmp_path / "runs"
    async with machine_in_use():
        async with viewing(None, tmp_path, (100, 30), runs=runs) as pilot:
            await form(pilot, "aime")
            await pilot.press("ctrl+r")
            await until(pilot, "candidates of")
            await until(pilot, "another run holds it")
            await pilot.press("q")
        (run,) = list_runs(runs)
        assert holder_alive(run.lock_file)
        async with viewing(run, tmp_path, (100, 30), runs=runs) as pilot:
            for pressed in ("s", "S", "s"):
                await until(pilot, "FINISHED stopped" if pressed == "S" else "LIVE")
                await pilot.press(pressed)
                await until(pilot, "this run?")
                await pilot.press("y")
            await until(pilot, "FINISHED stopped")
        assert not holder_alive(run.lock_file)


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_a_whole_run_is_started_and_seen_to_its_end(tmp_path: Path) -> None:
    async with viewing(None, tmp_path, (100, 30), runs=tmp_path / "runs") as pilot:
        await form(pilot, "aime")
        await pilot.press("enter", "enter", "enter", "enter", *"3m")
        await until(pilot, "--budget 3m")
        await pilot.press("ctrl+r")
        await until(pilot, "LIVE")
        (run,) = list_runs(tmp_path / "runs")
        seen = await until(pilot, "FINISHED", patience_s=1100)
        assert "hidden test (once)" in seen and "Δ" in await settled(pilot)
        assert isinstance(run, RunDir) and (run.report / "report.json").exists()
