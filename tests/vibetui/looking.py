"""Looking at the viewer as a person does: the text on the screen, keys, waiting for what should appear."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from textual.pilot import Pilot
from textual.worker import WorkerCancelled

from runner.record.rundir import RunDir
from vibetui.app import VibeApp

PATIENCE_S = 30.0  # only ever spent by a test that fails


def shown(app: VibeApp) -> str:
    """The text of the screen."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


async def until(pilot: Pilot[int], text: str, *, gone: bool = False, patience_s: float = PATIENCE_S) -> str:
    """Wait until the screen shows ``text`` (or no longer does) and return what it shows."""
    app = pilot.app
    assert isinstance(app, VibeApp)
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        seen = shown(app)
        if (text in seen) is not gone:
            return seen
        await pilot.pause(0.02)
    raise AssertionError(f"{text!r} is {'still' if gone else 'not'} on the screen:\n{shown(app)}")


async def settled(pilot: Pilot[int]) -> str:
    """Let everything that was asked for arrive, and return the screen."""
    while pilot.app.workers:
        with contextlib.suppress(WorkerCancelled):
            await pilot.app.workers.wait_for_complete()
        await pilot.pause()
    await pilot.pause()
    app = pilot.app
    assert isinstance(app, VibeApp)
    return shown(app)


@asynccontextmanager
async def viewing(
    run: RunDir | None,
    tmp_path: Path,
    size: tuple[int, int] = (120, 36),
    *,
    runs: Path | None = None,
    ascii_only: bool = False,
) -> AsyncIterator[Pilot[int]]:
    """The viewer on a run folder, once it has read the journal."""
    root = runs or (run.path.parent.parent if run else tmp_path)
    app = VibeApp(root, run, ascii_only=ascii_only, state_dir=tmp_path / "state")
    async with app.run_test(size=size, notifications=True) as pilot:
        end = time.monotonic() + PATIENCE_S
        while run is not None and (app.view is None or not app.view.ready) and time.monotonic() < end:
            await pilot.pause(0.02)
        await settled(pilot)
        yield pilot
