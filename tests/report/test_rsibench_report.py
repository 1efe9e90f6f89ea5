"""rsibench-data in every view: two scores with names of their own, attempts valid or invalid, searches counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from journal_samples import model
from report_kit import Made, a_good_run, flags

from runner import views
from runner.record import events as ev
from runner.record.describe import describe
from runner.record.fold import fold
from runner.record.journal import load, read
from runner.record.rundir import RunDir
from runner.record.state import RunState
from runner.report.board_views import as_csv, as_json, as_text
from runner.report.card import card
from runner.report.document import build
from runner.report.explorer import explore
from runner.report.figures import figures
from runner.report.gather import summaries
from runner.report.html import page
from runner.report.leaderboard import boards, means
from runner.report.markdown import markdown
from runner.report.searches import tables
from runner.report.story import tell

REFUSED = "the recipe was refused: method was changed from 'lora' to 'full'. Put these back"


def a_search(root: Path, *, same: bool = False, seed: int = 0) -> RunDir:
    """P0 2/20; a refused training, c01 3/20, c02 8/20 (selected), a failed training, c03 5/20."""
    made = Made(
        root, seed=seed, protocol="rsibench-data", scope=("data",), official_seed=99, recipe_fields=("epochs",),
        teacher="wise-1",
    )  # fmt: skip
    split = ev.SplitInfo(count=20, sha256="a" * 64)
    other = split if same else ev.SplitInfo(count=30, sha256="b" * 64)
    made.payloads.append(ev.TaskLoaded(validation=split, hidden=other, engine="transformers", same=same))
    made.validate(flags("1" * 2 + "0" * 18))
    made.payloads.append(ev.TrainFinished(job="j090", status="refused", seconds=0.1, error=REFUSED))
    made.validate(flags("1" * 3 + "0" * 17), "data")
    made.validate(flags("1" * 8 + "0" * 12), "data")
    made.payloads.append(ev.TrainFinished(job="j091", status="failed", seconds=3.0, error="the trainer ended with 2"))
    made.payloads.append(ev.TrainFinished(job="j092", status="cut", seconds=3.0))  # no attempt
    made.validate(flags("1" * 5 + "0" * 15), "data")
    taught = ev.Taught(teacher="wise-1", samples=("s001",), rows=12, of=300)
    made.payloads.append(model("m01", "j001", "m00").model_copy(update={"taught": taught}))
    made.tick(money=1.25, teacher=ev.LlmUse(calls=40, output=900))
    made.finish("c02", flags("1" * 3 + "0" * 27), flags("1" * 12 + "0" * 18))
    return made.write()


def test_attempts_are_counted_by_what_decided_them(tmp_path: Path) -> None:
    state = load(a_search(tmp_path).journal_file)
    found = [(one.n, one.job, one.candidate, one.valid) for one in state.trials.attempts]
    assert found == [
        (1, "j090", None, False), (2, "j001", "c01", True), (3, "j002", "c02", True), (4, "j091", None, False),
        (5, "j003", "c03", True),
    ]  # fmt: skip
    assert state.trials.attempts[0].why == REFUSED


def test_selection_and_official_are_kept_apart_in_card_report_status_and_json(tmp_path: Path) -> None:
    run = a_search(tmp_path)
    state = load(run.journal_file)
    told = card(state)
    assert "selected c02   selection 40.0 %" in told and "official 40.0 %" in told and "official Δ_test" in told
    assert "3 valid of 5 attempts (invalid: j090, j091)" in told and "protocol rsibench-data" in told
    assert "hidden" not in told and "validation" not in told
    text = markdown(state, tell(run, state))
    assert "| selection | official test |" in text and "SELECTION" in text and "OFFICIAL" in text
    assert "teacher wise-1: 40 calls" in text.replace("&#45;", "-") and "12 of 300 rows hold its words" in text
    assert "invalid attempt 1" in text and "method was changed" in text
    report = build(state).model_dump(mode="json")
    assert report["protocol"] == "rsibench-data" and report["official"]["seed"] == 99
    assert not report["official"]["is_selection_set"] and report["official"]["recipe_fields"] == ["epochs"]
    assert [one["valid"] for one in report["official"]["attempts"]] == [False, True, True, False, True]
    assert report["validation"]["selected"]["n"] == 20 and report["hidden"]["selected"]["n"] == 30
    shown = views.status(run)
    assert json.loads(json.dumps(shown["official"])) == report["official"]
    assert "official" in views.ls(tmp_path)


def test_an_official_set_that_is_the_selection_set_is_called_so_everywhere(tmp_path: Path) -> None:
    run = a_search(tmp_path, same=True)
    state = load(run.journal_file)
    story = tell(run, state)
    label = "official on the selection set"
    assert label in card(state) and card(state).splitlines()[1].startswith("OFFICIAL = SELECTION")
    for text in (markdown(state, story), page(story, figures(story), explore(run, story))):
        assert "OFFICIAL = SELECTION" in text.replace("&#61;", "=") and label.split()[-3] in text
        assert "by nobody before" not in text and "hidden problems" not in text
    assert label in views.ls(tmp_path)
    (board,) = boards(summaries([run]))
    assert "OFFICIAL = SELECTION SET" in as_text([board], [], [], [])
    assert as_csv([board]).splitlines()[1].split(",")[3] == "1"
    lines, folded = [], RunState()
    for event in read(run.journal_file):
        folded = fold(folded, event)
        lines.append(describe(event, folded))
    assert any(line.startswith("official test on the selection set: P0") for line in lines)
    assert any("[attempt 1: INVALID]" in line and "method was changed" in line for line in lines)
    assert any("[attempt 2: valid]" in line for line in lines)


def test_searches_of_two_protocols_are_two_tables(tmp_path: Path) -> None:
    runs = [a_search(tmp_path, seed=n) for n in range(3)] + [a_good_run(tmp_path, seed=9)]
    found = list(summaries(runs))
    every = boards(found)
    both = tables(found)
    assert [(table.called.seen, table.settings) for table in both] == [("validation", 1), ("selection", 3)]
    mine = both[1]
    assert (mine.improved.part, mine.improved.whole, mine.below.part, mine.below.whole) == (3, 3, 3, 3)
    assert mine.valid == 3.0 and mine.money == 1.25
    assert mine.gains == (("aime/mini", pytest.approx(0.25), pytest.approx(0.3)),)
    text = as_text(every, means(every), both, [])
    assert "Searches, on VALIDATION" in text and "Searches, on SELECTION" in text
    plain = as_json(every, means(every), both, [])
    assert [table["called"] for table in plain["searches"]] == ["validation", "selection"]
