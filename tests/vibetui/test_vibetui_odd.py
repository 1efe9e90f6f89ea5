"""Odd runs: dead in the first second, without candidates or diffs, with numbers and diffs beyond reason, half read."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from looking import settled, shown, until, viewing
from run_folders import fresh, started

from runner.record import events as ev
from runner.record.journal import Journal, load
from runner.record.liveness import Liveness, boot_id
from runner.record.rundir import RunDir
from vibetui import detail
from vibetui.app import VibeApp
from vibetui.files import LogFile
from vibetui.follow import Reader, View
from vibetui.text import line, plain
from vibetui.theme import UNICODE
from vibetui.widgets.lines import search
from vibetui.widgets.status import caveats, liveness_of

HUGE, MANY = 1.7e308, 2**63


async def test_a_run_that_died_in_its_first_second_is_told_as_it_is(tmp_path: Path) -> None:
    run = fresh(tmp_path)
    run.acquire().release()
    async with viewing(run, tmp_path) as pilot:
        assert "NO JOURNAL" in await settled(pilot)
        run.journal_file.write_bytes(b"")
        await until(pilot, "NO JOURNAL")
        run.journal_file.unlink()
        started(run, boot_id()).close()
        await until(pilot, "CRASHED")


async def test_keys_that_need_a_candidate_say_that_there_is_none(tmp_path: Path) -> None:
    run = fresh(tmp_path)
    run.journal_file.touch()
    async with viewing(run, tmp_path, (80, 24)) as pilot:
        for key in ("d", "t", "c"):
            await pilot.press(key)
            await until(pilot, "there is no candidate yet")
        await pilot.press("enter", "y", "j", "G", "x", "z")
        assert "NO JOURNAL" in await settled(pilot)


def extremes(run: RunDir) -> None:
    """A journal in which every number is as large, as small or as negative as its type lets it be."""
    journal = Journal.create(run.journal_file, lambda: 9e14)
    score = ev.Score(score=1.0, low=0.0, high=1.0, n=MANY, samples=MANY)
    split = ev.Split(grade=HUGE, train=HUGE, sample=-HUGE, wait=HUGE, think=-1.0)
    said = [
        ev.RunStarted(
            run=run.name, task="aime", problems="mini", model="tiny", agent="scripted", scope=("data",), seed=-MANY,
            samples=MANY, profile="laptop", protocol="vibetraining", config_digest="d", boot_id=boot_id(), version="0",
            budget=ev.BudgetLimits(wall_s=5e-324, tokens=-MANY, money=HUGE, accelerator_s=-HUGE), comparable=True,
        ),
        ev.BudgetTick(wall_s=HUGE, split=split, tokens=MANY, money=-HUGE, accelerator_s=HUGE, gap_s=-HUGE),
        ev.TrainStarted(job="j0", parents=(), data="d", trainer="t"),
        ev.TrainProgress(job="j0", step=MANY, steps=-MANY, loss=-HUGE),
        ev.TrainFinished(job="j0", status="ok", seconds=-HUGE),
        ev.ModelCreated(
            model="m01", job="j0", format="full", parents=("m00",), data="d", trainer="t", sha256="s", bytes=-MANY,
            delta_norm=HUGE,
        ),
    ]  # fmt: skip
    for n, seconds in enumerate((-HUGE, HUGE, 0.0)):
        name = f"c{n:02d}"
        said += [
            ev.CandidateCreated(
                candidate=name, parent="c00" if n else None, model="m01", data="d", trainer="t", harness="h",
                components=("data", "trainer", "harness"), diff={"data": ev.DiffSize(added=-MANY, removed=MANY)},
            ),
            ev.ValidationFinished(
                job=f"v{n}", candidate=name, eval="e001", status="ok", seconds=seconds, score=score
            ),
        ]  # fmt: skip
    said += [
        ev.ValidationStarted(job="v9", candidate="c02", eval="e001", problems=MANY, samples=-MANY),
        ev.ValidationProgress(job="v9", candidate="c02", done=-MANY, total=MANY),
    ]
    for payload in said:
        journal.append(payload)
    journal.close()
    row = {"problem": "p", "sample": 0, "reason": "x", "parse_errors": 0, "tokens_out": 10**400, "seconds": HUGE}
    rows = [{**row, "reward": -HUGE, "calls": -1, "tokens_in": 10**400}]
    step = {"problem": "p", "sample": 0, "kind": "call", "tokens_in": 10**400, "seconds": HUGE}
    steps = [{**step, "step": -1}, {**step, "step": 10**400}, {**step, "step": 2, "kind": "end", "reward": HUGE}]
    trained = [{"step": 10**400}, {"step": 1, "loss": HUGE}, {"step": 2, "loss": -1.0}, {"step": 3, "steps": 10**15}]
    for name, lines in (
        ("evals/e001/problems.jsonl", rows),
        ("evals/e001/trajectories/p.jsonl", steps),
        ("models/m01/train.jsonl", trained),
    ):
        path = run.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(map(json.dumps, lines)))


@pytest.mark.parametrize("ending", [False, True], ids=["running", "over"])
async def test_numbers_beyond_reason_are_shown_on_every_screen(ending: bool, tmp_path: Path) -> None:
    run = fresh(tmp_path)
    extremes(run)
    if ending:
        journal = Journal.reopen(run.journal_file, lambda: -9e14)
        whole = ev.Score(score=0.0, low=0.0, high=0.0, n=1, samples=1)
        delta = ev.Delta(value=HUGE, low=-HUGE, high=HUGE)
        journal.append(ev.HiddenProgress(done=MANY, total=-1))
        journal.append(
            ev.HiddenFinished(candidate="c02", initial=whole, selected=whole, delta=delta, status="ok")
        )  # fmt: skip
        journal.append(ev.RunFinished(status="ok"))
        journal.close()
    async with viewing(run, tmp_path, (80, 24)) as pilot:
        for keys in (("x", "x", "x", "z", "z"), ("d", "5"), ("4",), ("t", "enter", "right", "right"), ("c",), ("r",)):
            await pilot.press(*keys)
            assert await settled(pilot) and pilot.app._exception is None


def test_a_count_that_no_machine_could_count_is_a_line_not_understood(tmp_path: Path) -> None:
    run = fresh(tmp_path)
    started(run, boot_id()).close()
    event = {"v": 1, "seq": 99, "t": 1.0, "el": 1.0, "prev": "", "kind": "train_progress", "job": "j", "steps": 1}
    with run.journal_file.open("ab") as file:
        file.write(json.dumps({**event, "step": 10**400}).encode() + b"\n")
    assert load(run.journal_file).unknown_count == 1


async def test_a_candidate_whose_files_are_not_there_and_a_diff_beyond_reason(tmp_path: Path) -> None:
    run = fresh(tmp_path)
    journal = started(run, boot_id())
    journal.append(
        ev.CandidateCreated(
            candidate="c01", parent="c00", model="m01", data="d", trainer="t", harness="h",
            components=("data", "trainer", "harness"),
        )
    )  # fmt: skip
    journal.close()
    patch = run.path / "candidates" / "c01" / "diffs" / "trainer.patch"
    patch.parent.mkdir(parents=True)
    patch.write_text("--- a/train.py\n+++ b/train.py\n@@ -0,0 +1,100000 @@\n" + "+a line\n" * 100_000)
    async with viewing(run, tmp_path, (80, 24)) as pilot:
        await pilot.press("d", "3")
        await until(pilot, "the diff of the harness is not in this folder")
        await pilot.press("2")
        await until(pilot, "train.py")
        await pilot.press("G")
        await until(pilot, "not shown to its end")
        await pilot.press("w", "4")
        await until(pilot, "no evaluation in this folder")


async def test_what_is_read_for_a_candidate_that_was_left_is_not_shown(recorded: RunDir, tmp_path: Path) -> None:
    async with viewing(recorded, tmp_path, (100, 30)) as pilot:
        await pilot.press("d", "3")
        await settled(pilot)
        await pilot.press(*"[]" * 8, "[", "[", "[")
        seen = await settled(pilot)
        name = next(word for word in seen.split() if word.startswith("c0"))
        one = load(recorded.journal_file).candidates[name]
        wanted = [plain(line) for line in detail.patch_of(recorded, one, "harness")]
        assert all(line.rstrip() in seen for line in wanted[:3])


def test_nothing_is_said_of_a_run_before_its_journal_was_read(recorded: RunDir) -> None:
    reader = Reader(recorded)
    seen: list[View] = []
    while not reader.ready:
        reader.step()
        seen.append(reader.view())
    half = [view for view in seen if not view.ready]
    assert half and seen[-1].ready and seen[-1].how is Liveness.FINISHED
    for view in (View(run=recorded), *half):
        assert liveness_of(view, UNICODE)[1].startswith("READING")
        assert not view.running and not view.resumable
        assert not [text for text, _ in caveats(view) if "died" in text or "copied" in text]
    reader.close()


async def test_a_run_whose_runner_says_nothing_for_two_minutes_is_quiet(tmp_path: Path) -> None:
    run = fresh(tmp_path)
    lock = run.acquire()
    journal = written_at(run, time.time() - 300)
    async with viewing(run, tmp_path) as pilot:
        await until(pilot, "QUIET 5m")
        await pilot.press("s")
        await until(pilot, "stop this run?")
        await pilot.press("n", "r")
        await until(pilot, "quiet 5m")
        await pilot.press("enter")
        await until(pilot, "QUIET 5m")
        journal.append(ev.ValidationProgress(job="j000", candidate="c00", done=35, total=120))
        await until(pilot, "LIVE")
        assert "35/120" in shown(pilot.app)  # type: ignore[arg-type]
    journal.close()
    lock.release()


def written_at(run: RunDir, at: float) -> Journal:
    """A journal that was written at ``at``, open for what is written now."""
    started(run, boot_id(), now=lambda: at).close()
    os.utime(run.journal_file, (at, at))
    return Journal.reopen(run.journal_file, lambda: 0.0)


def test_a_log_is_looked_through_a_part_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(b"line\n" * 600_000)
    log = LogFile(tmp_path, "x.log")
    assert log.grow(1 << 20) == 1 << 20 and len(log) == (1 << 20) // 5 + 1
    while log.grow(1 << 20):
        pass
    assert len(log) == 600_000 and log[599_999] == "line"
    log.close()


async def test_find_asks_no_one_to_wait(copied: RunDir, tmp_path: Path) -> None:
    """A long log is looked through beside the keys: each of them counts, and those of another tab or word end it."""
    log = copied.path / "logs" / "agent.log"
    log.unlink()
    log.write_text("".join(f"line {i}{' needle' if i % 20_000 == 19_999 else ''}\n" for i in range(100_000)))
    async with viewing(copied, tmp_path, (80, 24)) as pilot:
        await pilot.press("l", "2", "g", "slash", *"needle", "enter", "n", "n")
        await until(pilot, "line 59999 needle")
        await pilot.press("N")
        await until(pilot, "line 39999 needle")
        await pilot.press("slash", *"absent", "enter", "1")
        await until(pilot, "the journal in words")
        await pilot.press("2", "slash", *"absent", "enter", "n")
        await until(pilot, "“absent” is not there")
        assert "logs/agent.log" in await settled(pilot)


def test_a_search_that_is_not_wanted_any_more_ends() -> None:
    lines, asked = [line("needle"), line("hay")], list[int]()
    assert search(lines, "NEEDLE", 1, 1, lambda: True) == 1 == search(lines, "needle", -2, -1, lambda: True)
    assert search(lines, "other", 0, 1, lambda: True) is None is search([], "needle", 0, 1, lambda: True)
    assert search(lines, "needle", 0, 1, lambda: bool(asked.append(1))) is None and asked == [1]


async def test_the_way_back_ends_at_the_list_of_runs(recorded: RunDir, tmp_path: Path) -> None:
    """The list is made when it is first asked for; from there a run opens again."""
    async with viewing(recorded, tmp_path, (80, 24)) as pilot:
        app = pilot.app
        assert isinstance(app, VibeApp) and len(app.screen_stack) == 1
        await pilot.press("d", "escape", "escape")
        await until(pilot, "runs in")
        assert len(app.screen_stack) == 1
        await pilot.press("escape", "escape", "enter")
        await until(pilot, " valid of")
        await pilot.press("r")
        await until(pilot, "1 of 1 runs")
