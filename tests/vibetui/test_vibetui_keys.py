"""The one registry of keys: no clash, a method for each, every key pressed on every screen, the README's table."""

from __future__ import annotations

from pathlib import Path

import pytest
from looking import settled, shown, until, viewing
from textual.pilot import Pilot

from runner.record.journal import JournalError
from runner.record.rundir import RunDir
from vibetui import keys
from vibetui.app import VibeApp
from vibetui.cli import _keymap
from vibetui.screens.ask import AskScreen
from vibetui.screens.base import Base
from vibetui.screens.candidate import CandidateScreen
from vibetui.screens.compare import CompareScreen
from vibetui.screens.help import HelpScreen
from vibetui.screens.log import LogScreen
from vibetui.screens.new import NewScreen
from vibetui.screens.run import RunScreen
from vibetui.screens.runs import RunsScreen
from vibetui.screens.traces import TracesScreen

SCREENS: dict[str, type[Base] | type[AskScreen]] = {
    "runs": RunsScreen,
    "run": RunScreen,
    "candidate": CandidateScreen,
    "traces": TracesScreen,
    "log": LogScreen,
    "compare": CompareScreen,
    "new": NewScreen,
    "help": HelpScreen,
    "ask": AskScreen,
}
WAY: dict[str, tuple[str, ...]] = {
    "runs": ("r",),
    "run": (),
    "candidate": ("d",),
    "traces": ("t",),
    "log": ("l",),
    "compare": ("c",),
    "help": ("question_mark",),
}


def test_no_key_means_two_things_on_one_screen() -> None:
    assert keys.clashes() == []
    assert sorted(SCREENS) == sorted(keys.SCREENS)


def test_every_key_has_its_method_on_every_screen_that_has_it() -> None:
    missing = [
        (kind, key.id) for kind in SCREENS for key in keys.keys_of(kind) if not hasattr(SCREENS[kind], f"do_{key.id}")
    ]
    assert missing == []


def test_the_keys_that_terminals_keep_for_themselves_are_left_to_them() -> None:
    used = {name for key in keys.REGISTRY for name in key.keys}
    assert not used & {"ctrl+a", "ctrl+b", "ctrl+s", "ctrl+q", "ctrl+z", "ctrl+h", "ctrl+i", "ctrl+m"}
    assert not any(name.startswith("alt+") for name in used)


@pytest.mark.parametrize("kind", WAY)
async def test_every_key_can_be_pressed_on_every_screen(kind: str, cut: RunDir, tmp_path: Path) -> None:
    """Each key of the registry; the program stays, and comes back to the screen."""
    async with viewing(cut, tmp_path) as pilot:
        await _go_to(pilot, kind, cut)
        for key in keys.keys_of(kind):
            if key.id != "quit":
                await pilot.press(key.keys[0])
                await _go_to(pilot, kind, cut)
                assert pilot.app.is_running and pilot.app._exception is None, key


async def _go_to(pilot: Pilot[int], kind: str, run: RunDir) -> None:
    """Back to a screen from wherever a key has led."""
    app = pilot.app
    assert isinstance(app, VibeApp)
    while len(app.screen_stack) > 1 and getattr(app.screen, "kind", "") != kind:
        app.pop_screen()
        await pilot.pause()
    if getattr(app.screen, "kind", "") != kind:
        app.open_run(run)
        while app.view is None or not app.view.ready:  # a key that needs a candidate has none before
            await pilot.pause()
        await settled(pilot)
        await pilot.press(*WAY[kind])
        await settled(pilot)
    assert getattr(app.screen, "kind", "") == kind
    prompt = app.screen.query_one("#prompt")
    if prompt.display:
        await pilot.press("escape")


async def test_q_leaves_and_nothing_is_asked_of_the_run(copied: RunDir, tmp_path: Path) -> None:
    async with viewing(copied, tmp_path) as pilot:
        await pilot.press("q")
    assert pilot.app.return_code == 0
    assert list(copied.control.iterdir()) == []


@pytest.mark.parametrize("cells", [60, 80, 100, 120, 200])
async def test_the_footer_always_has_room_for_help_and_for_leaving(
    cells: int, recorded: RunDir, tmp_path: Path
) -> None:
    async with viewing(recorded, tmp_path, (cells, 24)) as pilot:
        foot = shown(pilot.app).splitlines()[-1]  # type: ignore[arg-type]
        assert "? Help" in foot and "q Detach" in foot and "r Runs" in foot


async def test_the_palette_does_what_a_key_does(recorded: RunDir, tmp_path: Path) -> None:
    async with viewing(recorded, tmp_path) as pilot:
        await pilot.press("ctrl+p")
        await until(pilot, "Search for commands")
        await pilot.press(*"Events")
        await until(pilot, "the events alone")
        await pilot.press("enter")
        assert "candidates of" not in await until(pilot, "candidates of", gone=True)


async def test_y_copies_the_row_and_says_where(recorded: RunDir, tmp_path: Path) -> None:
    async with viewing(recorded, tmp_path) as pilot:
        await pilot.press("j", "j", "y")
        await until(pilot, "copied")
        assert "c06" in (tmp_path / "state" / "copied.txt").read_text()
        assert "c06" in pilot.app.clipboard
        await pilot.press("Y")
        assert (await settled(pilot)) and pilot.app.clipboard == str(recorded.path)


def test_a_persons_own_keys_are_taken_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text('stop = "ctrl+x"')
    assert _keymap(path) == {"stop": "ctrl+x"}
    path.write_text('stop = "q"')
    with pytest.raises(JournalError, match="two meanings"):
        _keymap(path)
    path.write_text('sotp = "x"')
    with pytest.raises(JournalError, match="no such key"):
        _keymap(path)


async def test_a_persons_own_key_works_and_stands_in_help(cut: RunDir, tmp_path: Path) -> None:
    app = VibeApp(cut.path.parent.parent, cut, keymap={"log": "ctrl+l"}, state_dir=tmp_path)
    async with app.run_test(size=(120, 36)) as pilot:
        await until(pilot, "candidates of")
        assert "ctrl+l Log" in shown(app)
        await pilot.press("ctrl+l")
        await until(pilot, "the journal in words")


def test_the_readme_has_the_table_of_the_registry() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert keys.table() in readme
