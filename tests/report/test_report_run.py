"""The card and the Markdown of a run: honest, labelled, and proof against what others wrote."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from journal_samples import HOSTILE, started, whole_run, write_run
from test_figures_of_merit import folded

from runner.record import events as ev
from runner.record.events import Payload
from runner.record.files import Report
from runner.record.journal import JournalError, load
from runner.record.rundir import RunDir
from runner.record.state import RunState
from runner.report.card import card
from runner.report.document import build, write_report
from runner.report.markdown import escape, markdown


def a_run(**kwargs: bool) -> RunState:
    return folded(*(payload for payload, _, _ in whole_run(**kwargs)))


CARD = """\
run 2026-11-30T12-00-00-7f3a: ok
WEAK WALLS: soft limits (no cgroups)
INTEGRITY: 1 noticed: spoofed score ×1
These are not AIME scores: the problem set is “mini”, not the published one.
task aime · problems mini · model tiny · agent scripted · scope D+T+H · seed 7

P0       c00   validation 32.9 % [27.9, 37.9] n=112     hidden 30.0 % [25.0, 35.0] n=96
selected c03   validation 53.7 % [48.7, 58.7] n=112     hidden 51.5 % [46.5, 56.5] n=96
Δ              validation +20.8                         hidden Δ_test +21.5 [+13.5, +29.5]
best     c03   validation 53.7 % [48.7, 58.7] n=112

selected by the agent; validation regret 0.0; transfer (hidden − validation) −2.2
search   6 valid of 7 validations; peak c03 validation 53.7 %, +20.8 over P0 after 7m02s; ends below
designs  D 6 · T 0 · H 7
time     13m32s of 2h00m: grade 46 % · train 47 % · sample 0 % · wait 1 % · think 6 %
waiting  93.8 % of the time
used     tokens 4200 · money 0.06 of 5.00
"""


def test_the_card(tmp_path: Path) -> None:
    state = load(write_run(tmp_path).journal_file)
    assert card(state) == CARD


def test_before_the_end_no_hidden_number_exists() -> None:
    text = card(a_run(finish=False))
    assert "not finished, phase research" in text
    assert text.count("hidden not run") == 1
    assert "selected: nothing" in text


def test_what_weakens_the_numbers_comes_first() -> None:
    state = folded(started(), ev.IsolationChecked(weak=("w1",), allowed=("seccomp",)), ev.RunFinished(status="ok"))
    lines = card(state).splitlines()
    assert lines[1] == "MISSING WALLS, allowed by the person who ran this: seccomp"
    assert lines[2] == "WEAK WALLS: w1"
    text = markdown(state)
    assert text.index("MISSING WALLS") < text.index("## Result")


@pytest.mark.parametrize("comparable", [True, False])
def test_scores_of_another_problem_set_are_not_called_aime_scores(comparable: bool) -> None:
    text = card(folded(started(comparable=comparable)))
    assert ("not AIME scores" in text) is not comparable


def test_the_report_has_its_stable_keys_and_reads_back(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    report = write_report(run, load(run.journal_file))
    assert Report.model_validate_json((run.report / "report.json").read_bytes()) == report
    assert report.candidates[3].components == ("data", "harness")
    assert report.selected_by == "agent"
    assert sorted(path.name for path in run.report.iterdir()) == ["report.json", "report.md"]


def test_a_run_that_has_not_started_has_no_report() -> None:
    with pytest.raises(JournalError, match="not started"):
        build(RunState())


def test_a_report_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "gone")
    with pytest.raises(JournalError, match="runner report"):
        write_report(run, a_run())


def poisoned() -> RunState:
    """A run with hostile words in every free string of every event."""
    fixed = {"kind", "phase", "status", "by", "verb", "holder", "action", "component", "format", "job", "candidate"}

    def poison(payload: Payload) -> Payload:
        kept = fixed | ({"reason"} if isinstance(payload, ev.AgentEnded) else set())
        free = {key: HOSTILE for key, value in payload if isinstance(value, str) and key not in kept}
        return payload.model_copy(update=free)

    return folded(*(poison(payload) for payload, _, _ in whole_run()))


def test_hostile_words_are_neither_markup_nor_control_in_any_report() -> None:
    state = poisoned()
    for text in (card(state), markdown(state), build(state).model_dump_json()):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202e]", text)
    text = markdown(state)
    assert "<script" not in text
    assert "`" not in text
    assert "[bold]" not in text
    assert [line for line in text.splitlines() if line.startswith("# ")] == [text.splitlines()[0]]


def test_every_row_of_a_table_keeps_its_cells() -> None:
    lines = markdown(poisoned()).splitlines()
    tables = [line for line in lines if line.startswith("|")]
    widths = {line.count("|") for line in tables if "c0" in line and "at" not in line}
    head = next(line for line in tables if "hypothesis" in line)
    rows = lines[lines.index(head) + 2 : lines.index("## Time and cost") - 1]
    assert len(rows) == 8
    assert {row.count("|") for row in rows} == {head.count("|")}
    assert widths


@pytest.mark.parametrize(
    "text",
    [HOSTILE, "a|b", "a\\|b", "<img src=x onerror=alert(1)>", "[x](javascript:alert(1))", "![x](y)", "`code`", "**b**",
     "&lt;b&gt;", "https://evil.example", "www.evil.example", "a@evil.example", "~~x~~", "$x$", "| --- |"],
)  # fmt: skip
def test_escaped_text_shows_as_it_is_and_does_nothing(text: str) -> None:
    safe = escape(text)
    assert not re.search(r"[\\`*_\[\]<>|~@$]|://|www\.", safe)
    assert not re.search(r"&(?!#\d+;)", safe)
    assert "alert(1)" not in text or "alert(1)" in html.unescape(safe)
    assert html.unescape(escape("traj filter v2 + rep, 50 % more")) == "traj filter v2 + rep, 50 % more"
