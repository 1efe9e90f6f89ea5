"""How it looks: the same text as before at four sizes, contrast, every theme, ASCII. VIBETUI_SNAPSHOTS=write renews."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from looking import settled, shown, until, viewing
from rich.cells import cell_len
from textual.pilot import Pilot
from textual.theme import BUILTIN_THEMES

from runner.record.rundir import RunDir
from vibetui import theme
from vibetui.theme import BACKGROUND, COLORS, CURSOR, contrast, to_ascii

SNAPSHOTS = Path(__file__).parent / "snapshots"
SIZES = ((60, 20), (80, 24), (100, 30), (120, 36))
SCREENS: dict[str, tuple[str, ...]] = {
    "run": (),
    "candidate": ("j", "j", "d", "2"),
    "train": ("j", "j", "d", "5"),
    "traces": ("j", "j", "t", "j", "enter", "right"),
    "log": ("l",),
    "compare": ("j", "j", "c"),
    "help": ("question_mark",),
    "new": ("n",),
    "runs": ("r",),
}


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_every_screen_looks_as_it_did(
    size: tuple[int, int], copied: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with viewing(copied, tmp_path, size, runs=Path("runs")) as pilot:
        for name, pressed in SCREENS.items():
            await _open(pilot, pressed)
            if name == "runs":
                await until(pilot, "finished")
            _compare(await settled(pilot), f"{name}-{size[0]}x{size[1]}.txt", size)


async def _open(pilot: Pilot[int], pressed: tuple[str, ...]) -> None:
    """From the run's screen, its first row chosen, to another."""
    app = pilot.app
    while len(app.screen_stack) > 1:
        app.pop_screen()
        await settled(pilot)
    await pilot.press("g")
    for key in pressed:
        await pilot.press(key)
        await settled(pilot)


def _compare(seen: str, name: str, size: tuple[int, int]) -> None:
    lines = seen.splitlines()
    assert len(lines) == size[1] and all(cell_len(line) <= size[0] for line in lines)
    path = SNAPSHOTS / name
    if os.environ.get("VIBETUI_SNAPSHOTS") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(seen + "\n")
    assert seen + "\n" == path.read_text(), name


def test_every_colour_of_text_can_be_read() -> None:
    weak = [
        (name, behind)
        for name, color in COLORS.items()
        for behind in (BACKGROUND, CURSOR)
        if contrast(color, behind) < 4.5
    ]
    assert weak == []
    assert contrast("#000000", "#ffffff") == 21


async def test_every_theme_of_textual_shows_the_run(recorded: RunDir, tmp_path: Path) -> None:
    async with viewing(recorded, tmp_path, (60, 16)) as pilot:
        seen = set()
        for _ in range(len(BUILTIN_THEMES) + 1):
            seen.add(pilot.app.theme)
            assert "FINISHED" in shown(pilot.app)  # type: ignore[arg-type]
            await pilot.press("T")
        assert theme.NAME in seen and len(seen) == len(pilot.app.available_themes)


async def test_ascii_is_ascii_on_every_screen(recorded: RunDir, tmp_path: Path) -> None:
    async with viewing(recorded, tmp_path, (80, 24), ascii_only=True) as pilot:
        for pressed in SCREENS.values():
            await _open(pilot, pressed)
            seen = await settled(pilot)
            assert seen.isascii(), re.findall(r"[^\x00-\x7f]", seen)
            assert all(cell_len(line) <= 80 for line in seen.splitlines())


def test_a_sign_in_ascii_is_as_wide_as_before() -> None:
    for sign in "−–—·…±×Δ→←“”‘’≤≥∞⏎↑↓●★✗┄┊━─│┤▸■◌◇○":
        assert len(to_ascii(sign)) == cell_len(sign) == 1
    assert to_ascii("日本") == "??"
