"""The first frame: painted before the record is imported and a run is read; what was put off for it is made up for."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

from looking import viewing
from terminal import Terminal

from runner.record.rundir import RunDir

BEFORE = """
import sys
import vibetui.cli, vibetui.app
late = ("pydantic", "runner.record.events", "grader", "tasks", "vibetui.follow", "vibetui.screens.candidate")
print(*(name for name in sys.modules if name.startswith(late)))
"""


def test_what_the_first_frame_does_not_show_is_not_imported_for_it() -> None:
    """Half a second is little: one import of an event's model, at the top of one module, would double it."""
    told = subprocess.run([sys.executable, "-P", "-c", BEFORE], capture_output=True, text=True, check=True)
    assert told.stdout.split() == []


def test_a_run_is_said_to_be_read_before_it_is_read(recorded: RunDir, tmp_path: Path) -> None:
    with Terminal([str(recorded.path)], tmp_path) as terminal:
        terminal.until("READING")
        terminal.until(" valid of")
        terminal.press("q")
        assert terminal.ended() == 0


async def test_garbage_is_collected_once_something_is_painted(recorded: RunDir, tmp_path: Path) -> None:
    gc.disable()
    try:
        async with viewing(recorded, tmp_path):
            assert gc.isenabled()
    finally:
        gc.unfreeze()
        gc.enable()
