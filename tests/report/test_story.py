"""What a run did, read from its folder: comparisons, gains and losses, luck; total on bad files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from report_kit import Made, a_good_run, flags

from grader.intervals import mcnemar_exact
from runner.record.journal import load
from runner.record.rundir import RunDir
from runner.report.evidence import changes, rewards, trajectory
from runner.report.explorer import examples, explore
from runner.report.grid import grid
from runner.report.story import Story, tell
from runner.report.words import conclusion, sureness


def told(run: RunDir) -> Story:
    return tell(run, load(run.journal_file))


def test_each_decision_is_compared_with_its_parent_and_with_p0(tmp_path: Path) -> None:
    story = told(a_good_run(tmp_path))
    by_id = {item.candidate.id: item for item in story.decisions}
    assert by_id["c00"].to_parent is None
    better, worse = by_id["c03"].to_parent, by_id["c04"].to_parent
    assert better is not None and worse is not None
    assert (better.verdict, len(better.gained), better.lost) == ("better", 14, ())
    assert (worse.verdict, worse.gained, len(worse.lost)) == ("worse", (), 16)
    assert by_id["c02"].to_parent is None
    assert by_id["c04"].to_initial is not None and by_id["c04"].to_initial.verdict == "within noise"
    assert [name for name, item in by_id.items() if item.selected] == ["c03"]


def test_the_hidden_comparison_counts_and_tests(tmp_path: Path) -> None:
    story = told(a_good_run(tmp_path))
    assert story.hidden is not None
    assert (len(story.hidden.gained), len(story.hidden.lost), story.hidden.n) == (18, 1, 30)
    assert story.hidden.p == mcnemar_exact(18, 1)
    assert conclusion(story) == "On hidden problems c03 is better than P0."
    lines = list(sureness(story))
    assert lines[0].startswith("HIDDEN, c03 against P0: +56.7 [")
    assert "18 gained, 1 lost of 30, p < 0.001 (McNemar, exact): better than P0" in lines[0]
    assert any("validations spent: 4, valid: 3; picking" in line for line in lines)


def test_candidates_that_validation_cannot_tell_apart_are_named(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.validate(flags("0" * 20))
    made.validate(flags("1" * 12 + "0" * 8), "data")
    made.validate(flags("0" + "1" * 13 + "0" * 6), "harness")
    made.finish("c02", flags("0" * 9), flags("0" * 9))
    story = told(made.write())
    assert story.rivals == ("c01",)
    assert "VALIDATION cannot tell the selected from c01" in list(sureness(story))
    assert conclusion(story) == "On hidden problems no difference between c02 and P0 can be told from noise."
    assert story.optimism is not None and 0.005 < story.optimism.value < 0.15


def test_rows_that_contradict_the_recorded_score_are_not_used(tmp_path: Path) -> None:
    run = a_good_run(tmp_path)
    path = run.evaluation("e003") / "problems.jsonl"
    path.write_text(path.read_text().replace('"reward":1.0', '"reward":0.0', 1))
    story = told(run)
    assert "c03" not in story.rewards
    assert story.optimism is None


@pytest.mark.parametrize("harm", ["gone", "link", "fifo", "torn", "bytes", "folder"])
def test_a_file_that_cannot_be_read_is_as_if_it_were_not_there(tmp_path: Path, harm: str) -> None:
    run = a_good_run(tmp_path)
    path = run.evaluation("e001") / "problems.jsonl"
    whole = path.read_bytes()
    path.unlink()
    if harm == "link":
        path.symlink_to("/etc/passwd")
    elif harm == "fifo":
        os.mkfifo(path)
    elif harm == "torn":
        path.write_bytes(whole[:-30])
    elif harm == "bytes":
        path.write_bytes(b"\xff\x00{" * 100)
    elif harm == "folder":
        path.mkdir()
    story = told(run)
    assert "c01" not in story.rewards
    assert "c03" in story.rewards


def test_a_bare_journal_still_tells_its_story(tmp_path: Path) -> None:
    from journal_samples import write_run

    story = told(write_run(tmp_path))
    assert story.rewards == {} and story.hidden is None and story.optimism is None
    assert next(sureness(story)).startswith("HIDDEN, c03 against P0: +21.5")


def test_an_evaluation_with_a_row_twice_is_not_used(tmp_path: Path) -> None:
    run = a_good_run(tmp_path)
    path = run.evaluation("e001") / "problems.jsonl"
    path.write_text(path.read_text() + path.read_text().splitlines()[0] + "\n")
    assert rewards(path.parent, samples=1) is None
    assert rewards(path.parent, samples=2) is None


def test_diffs_are_cut_cleaned_and_total(tmp_path: Path) -> None:
    run = a_good_run(tmp_path)
    candidate = load(run.journal_file).candidates["c03"]
    folder = run.candidate("c03") / "diffs"
    folder.mkdir(parents=True)
    (folder / "harness.patch").write_text("--- a\n+++ b\n+\x1b[31mred\n" + "+x\n" * 500)
    (folder / "data.json").write_text('{"added": 3, "removed": true, "samples": {"added": ["\\u001b[1ma", 7, "b"]}}')
    (folder / "trainer.patch").write_text("")
    data, harness = changes(run, candidate)
    assert data.counts == (("added", 3.0),) and data.added == ("a", "b") and data.removed == ()
    assert harness.patch.startswith("--- a\n+++ b\n+red") and harness.cut and len(harness.patch.splitlines()) == 60
    (folder / "data.json").write_text("[1, 2")
    assert [change.component for change in changes(run, candidate)] == ["harness"]


def test_the_explorer_shows_validation_only_and_what_changed_first(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.validate(flags("100"), reply="P0 says", question="What is it?")
    made.validate(flags("101"), "data", reply="c01 says")
    made.finish("c01", flags("0" * 9), flags("1" * 9))
    run = made.write()
    story = told(run)
    found = explore(run, story)
    assert list(found.problems) == ["v002", "v000", "v001"]
    assert found.problems["v000"] == "What is it?"
    assert found.attempts["c01"]["v002"].reply == "c01 says"
    assert found.left_out == 0
    pair = story.decisions[1].to_parent
    (example,) = examples(found, "c01", pair, "c00")
    assert (example.problem, example.gained, example.before, example.after) == ("v002", True, "P0 says", "c01 says")
    data = found.data()
    assert data["candidates"][0][0] == "P0" and data["candidates"][1][1][0] == [1.0, "match", "c01 says"]


def test_a_problem_name_cannot_leave_the_folder(tmp_path: Path) -> None:
    run = a_good_run(tmp_path)
    assert trajectory(run.evaluation("e001"), "../../e003/trajectories/v000") == []


def test_the_grid_puts_what_was_solved_first_on_the_left() -> None:
    drawn = grid({"c00": flags("0010"), "c01": flags("1010"), "c02": {"other": [1.0]}}, 1, "c01")
    assert drawn is not None
    assert drawn.problems[:2] == ("v002", "v000")
    assert [row.name for row in drawn.rows] == ["P0", "c01"]
    assert [row.whole.count("M") for row in drawn.rows] == [1, 2]
    assert grid({}, 1, None) is None
