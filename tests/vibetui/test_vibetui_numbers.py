"""The same numbers in the viewer, in `runner status --json` and in the report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from looking import settled, until, viewing

from runner.record.describe import delta_text, duration, number, score_text
from runner.record.events import Delta, Score
from runner.record.files import Report
from runner.record.journal import load, verify
from runner.record.rundir import RunDir
from runner.report.document import build
from runner.report.markdown import markdown
from runner.views import rows, status, status_text


def _status(run: RunDir) -> dict[str, Any]:
    words = [sys.executable, "-P", "-m", "runner", "status", "--json", str(run.path)]
    said: dict[str, Any] = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    return said


def test_the_recorded_run_is_whole(recorded: RunDir) -> None:
    chain = verify(recorded.journal_file)
    assert chain.ok and not chain.torn and chain.lines > 300
    state = load(recorded.journal_file)
    assert state.finished is not None and state.hidden is not None and not state.unknown_count
    kept = Report.model_validate_json((recorded.path / "report" / "report.json").read_bytes())
    assert kept == build(state)


async def test_the_run_screen_shows_the_numbers_of_status_and_report(recorded: RunDir, tmp_path: Path) -> None:
    told = _status(recorded)
    assert told == json.loads(json.dumps(status(recorded)))
    text, document = status_text(recorded), markdown(load(recorded.journal_file))
    async with viewing(recorded, tmp_path, (120, 36)) as pilot:
        seen = await settled(pilot)
    scores = [
        Score.model_validate(told[split][side])
        for split in ("validation", "hidden")
        for side in ("initial", "selected")
    ]
    for words in (*map(score_text, scores), delta_text(Delta.model_validate(told["hidden"]["delta"]))):
        assert words in seen and words in text and words in document
    assert f"gap {delta_text(told['merit']['transfer'])}" in seen
    assert delta_text(told["merit"]["transfer"]) in text
    assert f"wall {duration(told['budget']['wall_s'])} / {duration(told['limits']['wall_s'])}" in seen
    total = sum(told["budget"]["split"].values())
    for name, seconds in told["budget"]["split"].items():
        words = f"{name} {seconds / total * 100:.0f} %"
        assert words in seen and words in text


async def test_each_candidate_has_the_numbers_of_the_report(recorded: RunDir, tmp_path: Path) -> None:
    report = build(load(recorded.journal_file))
    initial = report.validation.initial
    assert initial is not None
    async with viewing(recorded, tmp_path, (120, 36)) as pilot:
        await pilot.press("3")
        seen = await settled(pilot)
    table = seen.partition("hypothesis")[2].splitlines()
    for candidate in report.candidates:
        row = next(line for line in table if f" {candidate.id} " in line)
        score = candidate.validation
        assert score is not None
        assert f" {number(score.score * 100)} " in row
        assert f"[{number(score.low * 100)}, {number(score.high * 100)}]" in row
        if candidate.parent is not None:
            assert f" {delta_text(score.score - initial.score)} " in row


async def test_the_list_has_the_numbers_of_ls(recorded: RunDir, tmp_path: Path) -> None:
    (row,) = rows(recorded.path.parent.parent)
    async with viewing(None, tmp_path, (120, 36), runs=recorded.path.parent.parent) as pilot:
        seen = await until(pilot, row["run"])
    line = next(line for line in seen.splitlines() if row["run"] in line)
    words = (
        number(row["base"] * 100),
        number(row["best"] * 100),
        delta_text(row["hidden_delta"]),
        duration(row["wall_s"]),
    )
    for word in (*words, f" {row['validations']} ", row["liveness"], row["agent"]):
        assert word in line
