"""Problem files: the three published schemas, and one line for anything else."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.aime.problems import LARGEST_FILE, load_problems, load_rows, sha256_file
from tasks.aime.text import normalise
from tasks.spec import TaskError


def write(folder: Path, *rows: object) -> Path:
    path = folder / "problems.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_the_three_schemas(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"id": 60, "problem": "A?", "solution": "s", "answer": "033", "url": "u", "year": "2024"},
        {"problem_idx": 1, "problem": "B?", "answer": 70, "problem_type": ["Algebra"]},
        {"id": "0", "problem": "C?", "answer": "0"},
    )
    assert [(row.question, row.answer, row.solution) for row in load_rows(path)] == [
        ("A?", 33, "s"),
        ("B?", 70, ""),
        ("C?", 0, ""),
    ]
    problems = load_problems(path, "v")
    assert [(one.id, one.gold) for one in problems] == [("v001", "33"), ("v002", "70"), ("v003", "0")]


ROW = '{"id": 1, "problem": "A?", "answer": 5}'
FAULTS = {
    "not UTF-8": b'{"id": 1, "problem": "\xff", "answer": 5}',
    "not JSON": b"{",
    "not a JSON object": b"[1]",
    "problem is missing": b'{"id": 1, "answer": 5}',
    "problem is empty": b'{"id": 1, "problem": " $$ ", "answer": 5}',
    "no id": b'{"problem": "A?", "answer": 5}',
    "answer is missing": b'{"id": 1, "problem": "A?"}',
    "no integer in 0": b'{"id": 1, "problem": "A?", "answer": 1000}',
    "answer is": b'{"id": 1, "problem": "A?", "answer": "-1"}',
    "answer": b'{"id": 1, "problem": "A?", "answer": true}',
    "or no integer": '{"id": 1, "problem": "A?", "answer": "１２"}'.encode(),
    "control character": b'{"id": 1, "problem": "A\\u0000", "answer": 5}',
    "half a surrogate": b'{"id": 1, "problem": "A\\ud800", "answer": 5}',
    "beyond all limits": b'{"id": ' + b"9" * 10_000 + b"}",
    "nesting": b"[" * 200_000,
    "longer than 1 MiB": b'{"id": 1, "problem": "' + b"a" * (1 << 20) + b'", "answer": 5}',
    "longer than 50000": b'{"id": 1, "problem": "' + b"a" * 50_001 + b'", "answer": 5}',
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_fault_names_the_line(tmp_path: Path, what: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b'\n{"id": "first", "problem": "Fine?", "answer": 1}\n' + FAULTS[what] + b"\n")
    with pytest.raises(TaskError) as caught:
        load_rows(path)
    assert what in caught.value.what
    assert caught.value.where == f"{path}:3"
    assert caught.value.do
    assert "\n" not in str(caught.value)


def test_the_same_id_or_question_twice(tmp_path: Path) -> None:
    first, again = {"id": 1, "problem": "How many $x$?", "answer": 5}, {"id": 1, "problem": "B?", "answer": 6}
    with pytest.raises(TaskError, match=r"the same id as .*:1"):
        load_rows(write(tmp_path, first, again))
    with pytest.raises(TaskError, match=r"the same question as .*:1"):
        load_rows(write(tmp_path, first, {"id": 2, "problem": "how MANY  \\(x\\)?", "answer": 6}))


def test_files_that_are_none(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n\n")
    fifo = tmp_path / "fifo.jsonl"
    os.mkfifo(fifo)
    huge = tmp_path / "huge.jsonl"
    with huge.open("wb") as file:
        file.truncate(LARGEST_FILE + 1)
    other = tmp_path / "problems.csv"
    other.write_text(ROW)
    for path in (empty, fifo, huge, other, tmp_path, tmp_path / "absent.jsonl", tmp_path / "x\0.jsonl"):
        with pytest.raises(TaskError):
            load_rows(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(
    st.binary(max_size=200)
    | st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "id": st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers()),
                "problem_idx": st.integers() | st.floats(),
                "problem": st.none() | st.text(max_size=5) | st.integers(),
                "answer": st.none() | st.floats() | st.integers() | st.text(max_size=4) | st.sampled_from(["033", "7"]),
                "solution": st.none() | st.text(max_size=3) | st.integers(),
            },
        ),
        max_size=4,
    ).map(lambda rows: "\n".join(map(json.dumps, rows)).encode())
)
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_any_bytes_load_or_are_a_task_error(tmp_path: Path, suffix: str, data: bytes) -> None:
    path = tmp_path / f"any{suffix}"
    path.write_bytes(data)
    try:
        rows = load_rows(path)
    except TaskError as error:
        assert error.what and error.where and error.do
    else:
        assert rows
        assert all(0 <= row.answer <= 999 and row.question.encode() for row in rows)


def test_parquet_says_what_to_do_where_pyarrow_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "problems.parquet"
    path.write_bytes(b"PAR1 nonsense PAR1")
    missing = importlib.util.find_spec("pyarrow") is None
    with pytest.raises(TaskError, match="pyarrow" if missing else "not readable as Parquet"):
        load_rows(path)


def test_parquet_is_read_where_pyarrow_is_there(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "problems.parquet"
    parquet.write_table(arrow.table({"problem_idx": [1, 2], "problem": ["A?", "B?"], "answer": [70, 33]}), path)
    assert [row.answer for row in load_rows(path)] == [70, 33]


def test_sha256(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    assert sha256_file(path) == hashlib.sha256(b"abc").hexdigest()
    with pytest.raises(TaskError):
        sha256_file(tmp_path / "absent")


def test_what_does_not_count_when_questions_are_compared() -> None:
    assert normalise("Find  $x$\nnow") == normalise("find \\(x\\) NOW ")
    assert normalise("3x + 4 = 40") != normalise("3x - 4 = 40")


def test_the_published_years_load_and_share_no_problem(published: dict[int, Path]) -> None:
    years = {year: load_problems(path, "v") for year, path in published.items()}
    assert {year: len(problems) for year, problems in years.items()} == {2024: 30, 2025: 30, 2026: 30}
    texts = [normalise(problem.question) for problems in years.values() for problem in problems]
    assert len(set(texts)) == 90
    assert years[2025][0].gold == "70"
