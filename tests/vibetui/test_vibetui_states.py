"""The states that are designed: starting, P0 half done, no runs, torn, damaged, newer, too small, finished, copied."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from looking import settled, shown, until, viewing
from run_folders import fresh, started
from textual.pilot import Pilot

from runner.record import events as ev
from runner.record.describe import number
from runner.record.journal import load
from runner.record.liveness import boot_id
from runner.record.rundir import RunDir
from vibetui.app import VibeApp
from vibetui.follow import Reader
from vibetui.screens.run import RunScreen
from vibetui.screens.runs import RunsScreen

EVERYWHERE = ((), ("1",), ("2",), ("d",), ("t",), ("l",), ("c",), ("question_mark",), ("r",))


async def test_a_run_that_is_starting_says_so(tmp_path: Path) -> None:
    run = fresh(tmp_path)
    lock = run.acquire()
    async with viewing(run, tmp_path) as pilot:
        await until(pilot, "STARTING")
        started(run, boot_id()).close()
        await until(pilot, "LIVE")
        lock.release()
        await until(pilot, "CRASHED")


async def test_the_initial_system_is_seen_while_it_is_evaluated(tmp_path: Path) -> None:
    run = fresh(tmp_path)
    started(run, boot_id()).close()
    lock = run.acquire()
    async with viewing(run, tmp_path, (80, 24)) as pilot:
        seen = await until(pilot, "34/120")
        assert "The initial system is being evaluated: 34/120 problems" in seen
        assert "validate c00, problem 34/120" in seen
    lock.release()


async def test_where_there_is_no_run_it_says_what_to_type(tmp_path: Path) -> None:
    async with viewing(None, tmp_path, (80, 24)) as pilot:
        await until(pilot, "vibetui start --task aime")


async def test_a_torn_and_damaged_journal_is_shown_and_told(copied: RunDir, tmp_path: Path) -> None:
    raw = copied.journal_file.read_bytes().split(b"\n")
    copied.journal_file.write_bytes(b"\n".join([*raw[:100], b"\xff\x00{", b"[1]", *raw[100:200], raw[200][:50]]))
    async with viewing(copied, tmp_path) as pilot:
        assert "record: 2 lines not understood" in await settled(pilot)


async def test_a_newer_schema_is_shown_as_far_as_it_is_known(copied: RunDir, tmp_path: Path) -> None:
    with copied.journal_file.open("ab") as file:
        line = {"v": 2, "seq": 10_000, "t": 1.0, "el": 400.0, "prev": "", "kind": "wonder", "what": "?"}
        file.write(json.dumps(line).encode() + b"\n")
    async with viewing(copied, tmp_path) as pilot:
        seen = await settled(pilot)
        assert "journal schema 2 is newer than 1" in seen and "best 38.0" in seen


async def test_a_terminal_that_is_too_small_shows_the_plain_facts(recorded: RunDir, tmp_path: Path) -> None:
    async with viewing(recorded, tmp_path, (50, 12)) as pilot:
        seen = await settled(pilot)
        assert "at least 60×16" in seen and "FINISHED" in seen and "best c06 38.0" in seen
        await pilot.resize_terminal(80, 24)
        await until(pilot, " valid of")
        await pilot.resize_terminal(59, 24)
        await until(pilot, "at least 60×16")


async def test_a_folder_from_another_machine_is_copied_not_crashed(cut: RunDir, tmp_path: Path) -> None:
    async with viewing(cut, tmp_path) as pilot:
        seen = await settled(pilot)
        assert "COPIED" in seen and "CRASHED" not in seen
        await pilot.press("s")
        await until(pilot, "this run is not")
        await pilot.press("S")
        await until(pilot, "only a run that")


async def back_to_run(pilot: Pilot[int]) -> None:
    """From any other screen to that of the run, by the keys that lead back."""
    while not isinstance(pilot.app.screen, RunScreen):
        await pilot.press("enter" if isinstance(pilot.app.screen, RunsScreen) else "escape")
        await settled(pilot)


async def test_no_hidden_number_is_anywhere_before_the_end(cut: RunDir, recorded: RunDir, tmp_path: Path) -> None:
    hidden = load(recorded.journal_file).hidden
    assert hidden is not None
    secret = {
        number(value * 100)
        for score in (hidden.initial, hidden.selected)
        for value in (score.score, score.low, score.high)
    }
    secret |= {number(hidden.delta.value * 100), "n=216"}
    public = load(cut.journal_file)
    known = {
        number(value * 100)
        for one in public.candidates.values()
        if one.validation
        for value in (one.validation.score, one.validation.low, one.validation.high)
    }
    secret -= known
    assert len(secret) > 4
    async with viewing(cut, tmp_path) as pilot:
        for pressed in EVERYWHERE:
            await pilot.press(*pressed)
            seen = await settled(pilot)
            assert "gap" not in seen or pressed == ("question_mark",)
            assert not secret & set(seen.replace(",", " ").replace("]", " ").replace("[", " ").split())
            await back_to_run(pilot)
            if pressed in (("1",), ("2",)):
                await pilot.press(*pressed)


def test_a_journal_cut_at_any_byte_opens(recorded: RunDir, tmp_path: Path) -> None:
    """Every byte of a small journal, and now and then one of a long one: what is whole is there, and nothing else."""
    run = fresh(tmp_path)
    for raw, every in ((small(run), 1), (recorded.journal_file.read_bytes(), 2503)):
        for at in range(0, len(raw) + 1, every):
            run.journal_file.write_bytes(raw[:at])
            reader = Reader(run)
            while reader.step():
                pass
            assert reader.ready and reader.state.unknown_count == 0
            assert reader.state.seq == raw[:at].count(b"\n") and reader.state == load(run.journal_file)
            reader.close()


def small(run: RunDir) -> bytes:
    """A journal of few lines, with letters beyond ASCII."""
    journal = started(run, boot_id())
    journal.append(ev.AgentTurn(n=1, summary="größer → 𝔸: “x”"))
    journal.close()
    return run.journal_file.read_bytes()


@pytest.mark.parametrize(
    "after",
    [b'{"v', b"34", b"gr\\u00", b"\\ud835", b"\\u201d"],
    ids=["a name", "a number", "a letter", "a letter of two halves", "a text"],
)
async def test_a_run_whose_journal_is_cut_inside_of_something_opens(after: bytes, tmp_path: Path) -> None:
    run = fresh(tmp_path)
    raw = small(run)
    run.journal_file.write_bytes(raw[: raw.rindex(after) + len(after)])
    whole = raw[: raw.rindex(after)].count(b"\n")
    async with viewing(run, tmp_path, (80, 24)) as pilot:
        await settled(pilot)
        app = pilot.app
        assert isinstance(app, VibeApp) and app.view is not None and app.view.ready
        assert app.view.state.seq == whole and app.view.state.unknown_count == 0
        with run.journal_file.open("ab") as file:  # the rest is written after all
            file.write(raw[run.journal_file.stat().st_size :])
        await pilot.press("2")
        await until(pilot, "größer → 𝔸: “x”")


@pytest.mark.parametrize("part", [0.001, 0.05, 0.4, 0.97])
async def test_every_screen_opens_on_a_journal_cut_anywhere(part: float, copied: RunDir, tmp_path: Path) -> None:
    raw = copied.journal_file.read_bytes()
    copied.journal_file.write_bytes(raw[: int(len(raw) * part)])
    async with viewing(copied, tmp_path, (80, 24)) as pilot:
        for pressed in EVERYWHERE[:-1]:
            await pilot.press(*pressed)
            await settled(pilot)
            await back_to_run(pilot)
            if pressed in (("1",), ("2",)):
                await pilot.press(*pressed)


async def test_a_journal_that_is_replaced_begins_again(copied: RunDir, tmp_path: Path) -> None:
    raw = copied.journal_file.read_bytes()
    async with viewing(copied, tmp_path) as pilot:
        app = pilot.app
        assert isinstance(app, VibeApp) and "c08" in shown(app)
        copied.journal_file.write_bytes(raw[: raw.index(b'"candidate":"c03"')].rpartition(b"\n")[0] + b"\n")
        seen = await until(pilot, "c08", gone=True)
        assert "c02" in seen
