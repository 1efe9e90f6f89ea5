"""Reads problem files of the AIME kind: JSON lines or Parquet, in the schemas in which they are published.

``HuggingFaceH4/aime_2024`` {id, problem, solution, answer, url, year}, ``MathArena/aime_20xx`` {problem_idx, problem,
answer, problem_type}, ``math-ai/aimeXX`` {id, problem, answer}; other columns are ignored. Any fault is a TaskError
that names file and line, whatever the bytes are.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tasks.aime.text import normalise
from tasks.spec import Problem, TaskError

LARGEST_ANSWER = 999
LARGEST_FILE = 64 << 20
LARGEST_LINE = 1 << 20
LONGEST_QUESTION = 50_000
MOST_ROWS = 20_000
_ANSWER = re.compile(r"[0-9]{1,6}")
_MEND = "Mend the line, or fetch the file again"
_FETCH = "Check the path, or fetch the file again"


@dataclass(frozen=True, slots=True)
class SourceProblem:
    """A row of a problems file: the question, its integer answer (0…999) and, where published, a solution."""

    question: str
    answer: int
    solution: str = ""


def sha256_file(path: Path) -> str:
    """The sha256 of a file's bytes, in hex. Raises TaskError where it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TaskError(f"cannot be read ({error.strerror})", where=str(path), do=_FETCH) from None


def load_problems(path: Path, prefix: str) -> list[Problem]:
    """The rows of a file as problems ``v001``, ``v002``, … for the prefix ``v``. Raises TaskError."""
    rows = enumerate(load_rows(path), start=1)
    return [Problem(id=f"{prefix}{n:03d}", question=row.question, gold=str(row.answer)) for n, row in rows]


def load_rows(path: Path) -> list[SourceProblem]:
    """All rows of a ``.jsonl`` or ``.parquet`` file, in order; ids and questions are unique. Raises TaskError."""
    if path.suffix == ".jsonl":
        rows = _json_rows(path)
    elif path.suffix == ".parquet":
        rows = _parquet_rows(path)
    else:
        _refuse("is neither .jsonl nor .parquet", str(path), "Convert it to JSON lines")
    return _checked(rows, path)


def _refuse(what: str, where: str, do: str = _MEND) -> NoReturn:
    raise TaskError(what, where=where, do=do)


def _checked(rows: Iterable[tuple[str, dict[str, Any]]], path: Path) -> list[SourceProblem]:
    out: list[SourceProblem] = []
    ids: dict[str, str] = {}
    texts: dict[str, str] = {}
    for where, row in rows:
        if len(out) == MOST_ROWS:
            _refuse(f"more than {MOST_ROWS} problems", where, "Give a smaller file")
        problem = _problem(row, where)
        _once(ids, f"{_identity(row, where)!r}", "id", where)
        _once(texts, normalise(problem.question), "question", where)
        out.append(problem)
    if not out:
        _refuse("holds no problem", str(path), _FETCH)
    return out


def _once(seen: dict[str, str], key: str, what: str, where: str) -> None:
    if key in seen:
        _refuse(f"the same {what} as {seen[key]}", where, "Remove one of the two")
    seen[key] = where


def _identity(row: dict[str, Any], where: str) -> int | str:
    identity = row.get("id", row.get("problem_idx"))
    if isinstance(identity, bool) or not isinstance(identity, (int, str)):
        _refuse("has no id (a number or a text in id or problem_idx)", where)
    return identity


def _problem(row: dict[str, Any], where: str) -> SourceProblem:
    question = _text(row.get("problem"), "problem", where)
    if not normalise(question):
        _refuse("problem is empty", where)
    solution = row.get("solution")
    return SourceProblem(question, _answer(row, where), _text(solution, "solution", where) if solution else "")


def _text(value: object, name: str, where: str) -> str:
    if not isinstance(value, str):
        _refuse(f"{name} is missing or no text", where)
    if len(value) > LONGEST_QUESTION:
        _refuse(f"{name} is longer than {LONGEST_QUESTION} characters", where)
    if any((char < " " and char not in "\n\t\r") or "\ud800" <= char <= "\udfff" for char in value):
        _refuse(f"{name} holds a control character or half a surrogate pair", where)
    return value


def _answer(row: dict[str, Any], where: str) -> int:
    answer = row.get("answer")
    if isinstance(answer, str) and _ANSWER.fullmatch(answer.strip()):
        answer = int(answer)
    if isinstance(answer, bool) or not isinstance(answer, int) or not 0 <= answer <= LARGEST_ANSWER:
        _refuse(f"answer is missing or no integer in 0…{LARGEST_ANSWER}", where)
    return answer


def _json_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(_bytes(path).split(b"\n"), start=1):
        if line.strip():
            where = f"{path}:{number}"
            yield where, _json_object(line, where)


def _bytes(path: Path) -> bytes:
    try:
        if not path.is_file():  # a FIFO would never end
            _refuse("no such file", str(path), _FETCH)
        if path.stat().st_size > LARGEST_FILE:
            _refuse(f"is larger than {LARGEST_FILE >> 20} MiB", str(path), "Give a smaller file")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        _refuse(f"cannot be read ({error})", repr(str(path)), _FETCH)


def _json_object(line: bytes, where: str) -> dict[str, Any]:
    if len(line) > LARGEST_LINE:
        _refuse(f"the line is longer than {LARGEST_LINE >> 20} MiB", where)
    try:
        row = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        _refuse(f"not UTF-8 at byte {error.start}", where)
    except json.JSONDecodeError as error:
        _refuse(f"not JSON: {error.msg} at character {error.pos}", where)
    except (ValueError, RecursionError):  # a number of too many digits; brackets too deep
        _refuse("not JSON: a number or a nesting beyond all limits", where)
    if not isinstance(row, dict):
        _refuse("not a JSON object", where)
    return row


def _parquet_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    data = _bytes(path)
    try:
        arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        _refuse("Parquet needs pyarrow, which is not installed", str(path), "Install pyarrow, or convert it to .jsonl")
    try:
        table = parquet.read_table(arrow.BufferReader(data))
        if table.num_rows > MOST_ROWS:
            _refuse(f"more than {MOST_ROWS} problems", str(path), "Give a smaller file")
        wanted = [name for name in ("id", "problem_idx", "problem", "answer", "solution") if name in table.column_names]
        rows = table.select(wanted).to_pylist()
    except TaskError:
        raise
    except Exception as error:  # pyarrow raises its own tree, and plain errors on damaged files
        _refuse(f"not readable as Parquet: {repr(str(error))[:200]}", str(path), _FETCH)
    for number, row in enumerate(rows, start=1):
        yield f"{path}:{number}", row
