"""What a run starts with: the files, that their descriptions are true, and that nothing graded is among them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tasks.aime import layout, pool
from tasks.aime.score import extract
from tasks.aime.text import INSTRUCTION, normalise
from tasks.spec import TaskError


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def laid_out(folder: Path, problem_set: str, *source_files: Path) -> tuple[Path, Path]:
    workspace, sources = folder / "workspace", folder / "sources"
    layout.lay_out(problem_set, workspace, sources, source_files)
    return workspace, sources


def questions(found: list[dict[str, Any]]) -> list[str]:
    return [row["prompt"].removesuffix("\n" + INSTRUCTION) if "prompt" in row else row["question"] for row in found]


def test_mini(tmp_path: Path) -> None:
    workspace, sources = laid_out(tmp_path, "mini")
    data, bank = rows(workspace / "data" / "train.jsonl"), rows(sources / "problems.jsonl")
    assert (len(data), len(bank)) == (1620, 3006)
    assert all(set(row) == {"prompt", "completion"} for row in data)
    assert all(row["prompt"].endswith("\n" + INSTRUCTION) for row in data)
    assert all(extract(row["solution"]).integer == row["answer"] for row in bank)
    assert not pool.graded_questions() & {normalise(question) for question in questions(data + bank)}
    assert {path.name for path in workspace.iterdir()} == {"data", "trainer", "harness"}
    assert (workspace / "trainer" / "train.py").is_file()
    assert (workspace / "harness" / "main.py").is_file()
    assert "1620 rows" in (workspace / "data" / "README.md").read_text()
    assert "3006 problems" in (sources / "README.md").read_text()


def test_twice_is_the_same(tmp_path: Path) -> None:
    workspace, sources = laid_out(tmp_path, "mini")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    layout.lay_out("mini", workspace, sources, ())
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_aime_with_sources(tmp_path: Path) -> None:
    given = tmp_path / "given.jsonl"
    published = [
        {"id": 1, "problem": "A?", "answer": "033", "solution": "So it is 33."},
        {"id": 2, "problem": "B?", "answer": "7", "solution": "Thus \\boxed{007}."},
        {"id": 3, "problem": "C?", "answer": 9},
    ]
    given.write_text("".join(json.dumps(row) + "\n" for row in published))
    workspace, sources = laid_out(tmp_path, "aime", given)
    data = rows(workspace / "data" / "train.jsonl")
    assert questions(data) == ["A?", "B?", "C?"]
    assert [row["completion"] for row in data] == ["So it is 33.\n\\boxed{33}", "Thus \\boxed{007}.", "\\boxed{9}"]
    assert [row.get("solution") for row in rows(sources / "problems.jsonl")] == [
        "So it is 33.",
        "Thus \\boxed{007}.",
        None,
    ]
    assert "(2 rows)" in (workspace / "data" / "README.md").read_text()
    assert "(2 of 3)" in (sources / "README.md").read_text()


def test_aime_with_a_published_year(tmp_path: Path, published: dict[int, Path]) -> None:
    workspace, sources = laid_out(tmp_path, "aime", published[2024])
    assert len(rows(workspace / "data" / "train.jsonl")) == len(rows(sources / "problems.jsonl")) == 30


def test_aime_without_sources_says_what_it_has(tmp_path: Path) -> None:
    workspace, sources = laid_out(tmp_path, "aime")
    data = rows(workspace / "data" / "train.jsonl")
    assert len(data) == layout.STARTER_ROWS
    assert questions(data) == questions(rows(sources / "problems.jsonl"))
    assert "procedural" in (workspace / "data" / "README.md").read_text()
    assert "No source problems were named" in (sources / "README.md").read_text()


def test_a_malformed_source_is_one_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n")
    with pytest.raises(TaskError, match=r"bad\.jsonl:1"):
        laid_out(tmp_path, "aime", bad)
    with pytest.raises(TaskError, match="unknown problem set"):
        laid_out(tmp_path, "other")


@pytest.mark.parametrize("problem_set", ["mini", "aime"])
def test_the_brief_is_filled_in(problem_set: str) -> None:
    text = layout.brief(problem_set)
    assert "{title}" not in text
    assert "{about}" not in text
    assert INSTRUCTION in text
    for word in ("D:", "T:", "H:", "/sources", "VIBE_MODEL_SOCKET", "VIBE_METRICS", "task.get", "finish"):
        assert word in text


def test_what_the_brief_calls_right_and_wrong_is_so() -> None:
    text = layout.brief("mini").split("## The score")[1].split("##")[0]
    right, wrong = text.split(" are\n73;")
    examples = [box for box in re.findall(r"`(\\boxed\{[^`]*)`", right) if "…" not in box]
    assert len(examples) == 5
    assert all(extract(box).integer == 73 or extract(box).expression for box in examples)
    assert all(extract(box).reason == "not_integer" for box in re.findall(r"`(\\boxed\{[^`]*)`", wrong))
