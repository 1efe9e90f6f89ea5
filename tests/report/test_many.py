"""Leaderboards, comparisons and their tables: nothing unlike is averaged, nothing foreign is run."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from journal_samples import HOSTILE, write_run
from report_kit import Made, a_good_run, flags

from runner.cli import main
from runner.config import ConfigError
from runner.record.journal import JournalError, load
from runner.report.compare import as_text, compare, side
from runner.report.figures_many import figures
from runner.report.gather import chosen_runs, last_tick, summaries
from runner.report.leaderboard import boards, means
from runner.report.published import published
from runner.report.tables import csv_table, markdown_table, text_table


def three_seeds(root: Path) -> None:
    for seed in range(3):
        a_good_run(root, seed=seed)


def test_a_system_is_the_mean_of_its_seeds_with_an_error(tmp_path: Path) -> None:
    three_seeds(tmp_path)
    a_good_run(tmp_path, seed=3, agent="other")
    (board,) = boards(summaries(chosen_runs(tmp_path, [])))
    assert [entry.system.agent for entry in board.entries] == ["other", "scripted"]
    mine = board.entries[1]
    assert mine.hidden is not None and mine.hidden.n == 3 and mine.hidden.sem == pytest.approx(0.0)
    assert mine.hidden.mean == pytest.approx(20 / 30)
    assert mine.seeds == (0, 1, 2)
    assert (mine.tokens, mine.money) == (1000.0, 0.5)


def test_other_problems_are_other_boards_and_never_averaged(tmp_path: Path) -> None:
    a_good_run(tmp_path, seed=0)
    a_good_run(tmp_path, seed=1, problems="aime", comparable=True)
    every = boards(summaries(chosen_runs(tmp_path, [])))
    assert [board.benchmark.problems for board in every] == ["aime", "mini"]
    (over,) = means(every)
    assert (over.n, over.of) == (2, 2)


def test_runs_without_a_result_are_counted_and_not_averaged(tmp_path: Path) -> None:
    a_good_run(tmp_path, seed=0)
    made = Made(tmp_path, seed=1)
    made.validate(flags("10"))
    made.write()
    (board,) = boards(summaries(chosen_runs(tmp_path, [])))
    (entry,) = board.entries
    assert (len(entry.runs), entry.others) == (1, 1)


def test_a_folder_without_a_journal_is_no_run(tmp_path: Path) -> None:
    a_good_run(tmp_path)
    (tmp_path / "aime" / "2026-11-30T12-00-09-7f3a").mkdir()
    assert len(list(summaries(chosen_runs(tmp_path, [])))) == 1


def test_the_last_tick_is_the_newest_whole_one(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.validate(flags("10"))
    made.tick(tokens=1)
    made.tick(tokens=2)
    run = made.write()
    assert (tick := last_tick(run.journal_file)) is not None and tick.tokens == 2
    with run.journal_file.open("ab") as file:
        file.write(b'{"v":1,"kind":"budget_tick"')
    assert (tick := last_tick(run.journal_file)) is not None and tick.tokens == 2
    assert last_tick(tmp_path / "nothing") is None
    assert load(run.journal_file).budget.tokens == 2


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


def test_the_leaderboard_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    three_seeds(tmp_path)
    text = printed(capsys, "leaderboard", "--runs", str(tmp_path))
    assert "66.7 ± 0.0 (n=3)" in text and "P0 on hidden problems: 10.0 ± 0.0 (n=3)" in text
    assert "3/3 = 100 %" in text and "published" not in text.lower().replace("published problem set", "")
    data = json.loads(printed(capsys, "leaderboard", "--runs", str(tmp_path), "--json"))
    assert data["boards"][0]["entries"][0]["hidden"]["n"] == 3
    rows = list(csv.DictReader(io.StringIO(printed(capsys, "leaderboard", "--runs", str(tmp_path), "--as", "csv"))))
    assert float(rows[0]["hidden_mean"]) == pytest.approx(2 / 3)
    beside = printed(capsys, "leaderboard", "--runs", str(tmp_path), "--with-published")
    assert "Published, not run here" in beside and "14/24" in beside
    whole = json.loads(printed(capsys, "leaderboard", "--runs", str(tmp_path), "--with-published", "--json"))
    assert whole["published"][0]["value"] == "14/24"


def test_the_leaderboard_of_one_run_keeps_its_own_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = a_good_run(tmp_path)
    text = printed(capsys, "leaderboard", str(run.path), "--runs", str(tmp_path))
    assert "66.7 (n=1)" in text and "[48.8, 80.8] n=30" in text


def test_the_leaderboard_is_written_with_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    three_seeds(tmp_path / "runs")
    out = tmp_path / "out"
    printed(capsys, "leaderboard", str(tmp_path / "runs"), "--out", str(out))
    names = {path.name for path in out.iterdir()}
    assert {"leaderboard.md", "leaderboard.csv", "leaderboard.json", "cost-aime-1.svg", "leaders-aime-1.png"} <= names
    assert "![What a score costs](cost-aime-1.svg)" in (out / "leaderboard.md").read_text()


def test_figures_over_runs_without_a_result(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.validate(flags("10"))
    made.validate(flags("11"), "data")
    made.write()
    runs = list(summaries(chosen_runs(tmp_path, [])))
    assert [picture.name for picture in figures(boards(runs), runs)] == ["searches-aime-1", "components-aime-1"]


def test_no_runs_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no runs" in printed(capsys, "leaderboard", "--runs", str(tmp_path))


def test_a_reference_is_shown_beside_and_ranked_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_good_run(tmp_path, seed=0)
    made = Made(tmp_path, seed=1, agent="reference", model="instruct")
    made.validate(flags("1" * 18 + "0" * 2))
    made.finish("c00", flags("1" * 27 + "0" * 3), flags("1" * 27 + "0" * 3))
    run = made.write()
    found = list(summaries(chosen_runs(tmp_path, [])))
    (board,) = boards(found)
    assert [entry.system.agent for entry in board.entries] == ["scripted"]
    assert [entry.system.model for entry in board.references] == ["instruct"]
    assert board.hidden_leader == board.entries[0].system
    assert board.initial is not None and board.initial.n == 1
    text = printed(capsys, "leaderboard", "--runs", str(tmp_path))
    assert "90.0 (n=1)" in text and "ranked nowhere" in text and "1/1 = 100 %" in text
    cost = next(picture for picture in figures([board], found) if picture.name.startswith("cost"))
    assert b"reference instruct" in cost.svg
    assert printed(capsys, "compare", run.name, run.name, "--runs", str(tmp_path)).count("within noise") == 2


# -- comparisons -----------------------------------------------------------------------------------------------------


def test_two_candidates_are_compared_on_validation_problem_by_problem(tmp_path: Path) -> None:
    run = a_good_run(tmp_path)
    one, other = side(tmp_path, f"{run.name}:c01"), side(tmp_path, "c03")
    (found,) = compare(one, other)
    assert found.split == "VALIDATION" and found.pair is not None
    assert (len(found.pair.gained), found.pair.verdict) == (13, "better")
    assert "this is no result" in as_text(one, other, [found])


def test_two_runs_are_compared_on_hidden_problems_without_naming_one(tmp_path: Path) -> None:
    first, second = a_good_run(tmp_path, seed=0), a_good_run(tmp_path, seed=1)
    one, other = side(tmp_path, first.name), side(tmp_path, second.name)
    hidden, validation = compare(one, other)
    assert (hidden.split, validation.split) == ("HIDDEN", "VALIDATION")
    assert hidden.pair is not None and hidden.pair.p == 1.0
    text = as_text(one, other, [hidden])
    assert "within noise of A" in text and "v0" not in text


def test_other_problems_are_compared_as_two_scores(tmp_path: Path) -> None:
    made = Made(tmp_path, seed=5)
    made.validate({f"x{i}": [float(i < 5)] for i in range(10)})
    other = made.write()
    run = a_good_run(tmp_path)
    (found,) = compare(side(tmp_path, f"{run.name}:c00"), side(tmp_path, f"{other.name}:c00"))
    assert found.pair is None
    assert found.delta.value == pytest.approx(0.4)
    assert found.delta.low < 0.4 < found.delta.high


def test_what_cannot_be_compared_is_refused_in_one_line(tmp_path: Path) -> None:
    run = a_good_run(tmp_path)
    with pytest.raises(ConfigError, match="no candidate 'c99'"):
        side(tmp_path, f"{run.name}:c99")
    with pytest.raises(JournalError, match="no run is called"):
        side(tmp_path, "nothing:c01")
    with pytest.raises(ConfigError, match="nothing to compare"):
        compare(side(tmp_path, "c02"), side(tmp_path, "c01"))
    other = Made(tmp_path, seed=7, task="gpqa").write()
    with pytest.raises(ConfigError, match="other tasks"):
        compare(side(tmp_path, run.name), side(tmp_path, other.name))


def test_the_compare_command_in_json_counts_hidden_flips_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = a_good_run(tmp_path, seed=0), a_good_run(tmp_path, seed=1)
    data = json.loads(printed(capsys, "compare", first.name, second.name, "--runs", str(tmp_path), "--json"))
    assert data["compared"][0]["split"] == "HIDDEN" and data["compared"][0]["pair"]["gained"] == 0
    assert isinstance(data["compared"][1]["pair"]["gained"], list | tuple)


# -- tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["=cmd()", "+1", "-1", "@x", "\t=1", "−1", HOSTILE, "＝1", " =1"])
def test_no_text_is_a_formula(text: str) -> None:
    (row,) = list(csv.reader(io.StringIO(csv_table(["a", "b"], [[text, -1.5]]))))[1:]
    assert not re.match(r"\s*[=+\-@−＝]", row[0])
    assert row[1] == "-1.5"


@given(st.lists(st.text(), min_size=2, max_size=2))
def test_every_table_keeps_its_columns(cells: list[str]) -> None:
    assert len(text_table(["a", "b"], [cells]).splitlines()) == 2
    lines = markdown_table(["a", "b"], [cells]).splitlines()
    assert len(lines) == 3 and lines[2].count("|") == 3
    rows = list(csv.reader(io.StringIO(csv_table(["a", "b"], [cells]))))
    assert len(rows) == 2 and len(rows[1]) == 2


def test_hostile_names_reach_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path)
    a_good_run(tmp_path, seed=9, agent=HOSTILE, model=HOSTILE)
    for form in ("text", "markdown", "csv"):
        text = printed(capsys, "leaderboard", "--runs", str(tmp_path), "--as", form)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202e]", text)


def test_published_figures_have_a_source_and_a_place() -> None:
    every = published()
    assert {item.value for item in every} >= {"14/24", "18/23", "5/23"}
    assert all(item.source and item.where for item in every)
