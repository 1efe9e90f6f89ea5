"""A new run from the form: refused in the words of `runner`, or started as a process of its own that outlives us."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import pytest
from looking import settled, until, viewing
from textual import events
from textual.pilot import Pilot
from textual.widget import Widget

from runner.record.rundir import holder_alive, list_runs
from runner.research.lease import LeaseError, machine_lock
from vibetui.screens.base import Base


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


@pytest.mark.parametrize(
    ("typed", "then"), [((*"qryes", "enter"), "--task qryes --agent me"), (("enter",), "--task aime --agent me")]
)
async def test_keys_that_are_pressed_at_once_are_for_the_form(
    typed: tuple[str, ...], then: str, tmp_path: Path
) -> None:
    """Nothing is waited for between them: the form is not there yet when they are pressed, and `q` does not leave."""
    async with viewing(None, tmp_path, (100, 30), runs=tmp_path / "runs") as pilot:
        for key in ("n", *typed):
            pilot.app.post_message(events.Key(key, key if len(key) == 1 else None))
        while getattr(pilot.app.focused, "id", "") != "field-agent":
            await pilot.pause()
        await pilot.press(*"me")
        await until(pilot, then)


async def test_what_a_thread_finds_is_not_shown_on_a_screen_that_is_taken_down(tmp_path: Path) -> None:
    """Between a screen's first widget that goes and its last it still counts as mounted."""

    class Last(Widget):
        there: ClassVar[list[bool]] = []

        def on_unmount(self) -> None:
            screen = self.ancestors[0] if isinstance(self.ancestors[0], Base) else None
            assert screen is not None and screen.is_mounted
            self.there.append(screen.is_there)

    async with viewing(None, tmp_path, (100, 30), runs=tmp_path / "runs") as pilot:
        await pilot.app.screen.mount(Last())
    assert Last.there == [False]


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
        await until(pilot, "FINISHED", patience_s=1100)
        await until(pilot, "hidden test (once)")  # the card needs room, and the head is painted before it has it
        assert "gap" in await settled(pilot)
        while holder_alive(run.lock_file):  # the report comes after the last event
            await pilot.pause(0.1)
        assert (run.report / "report.json").exists()
