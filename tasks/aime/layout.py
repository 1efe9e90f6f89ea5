"""Lays out what a run starts with: D0, T0 and H0 in the workspace, and the sources that data may be made from.

Reads this package's own files and the source files the operator named; never a validation or hidden problem.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tasks.aime import mini, pool
from tasks.aime.problems import SourceProblem, load_rows
from tasks.aime.score import extract
from tasks.aime.text import prompt
from tasks.registry import load_spec
from tasks.spec import TaskError

HERE = Path(__file__).parent
TEMPLATES = HERE / "workspace"
STARTER_ROWS = 20 * len(mini.kinds())

_ABOUT: Mapping[str, str] = {
    "mini": (
        "The problems are short word problems with one to five calculations, of 18 kinds. `/sources/problems.jsonl` "
        "holds\nthousands of others of the same kinds, with solutions. Look at what the model gets wrong: knowing what "
        "to calculate and\ncalculating are two things, and not both have to be the model's work."
    ),
    "aime": (
        "The problems are from the American Invitational Mathematics Examination. `/sources` holds what may be used to "
        "make\ndata from; its README says what that is."
    ),
}
_POOL_README = """# The initial data

`train.jsonl`: {rows} rows, {{"prompt", "completion"}}, for {rows} different problems of 18 kinds, in random order.
It was collected without being checked. What is known about it:

- only a minority of the rows is right from the first line to the box;
- more than half have no `\\boxed{{}}`, some of those with a right answer;
- in about half, one calculation has a wrong value and what follows builds on it (some of these do have a box);
- about a fifth go round in circles and never answer.

Every calculation is written as `expression = value`, so each can be checked. `/sources` holds clean material.
"""
_BANK_README = """# Sources

`problems.jsonl`: {rows} problems of the 18 kinds of this task, `{{"question", "answer", "solution"}}`, equally many of
each kind. Answers and solutions are right: a calculation a line, then the box. No question occurs in the initial data,
in validation or in the hidden test.
"""
_GIVEN_README = """# Sources

`problems.jsonl`: {rows} competition problems, `{{"question", "answer", "solution"}}`, from {files}.
`solution` is there where one was published with the problem ({solved} of {rows}). Whether they overlap with validation
or hidden problems is checked by the grader, not here.
"""
_GIVEN_DATA = """# The initial data

`train.jsonl`: the {rows} problems of `/sources`, {{"prompt", "completion"}}. The completion is the published solution
with the answer in a box at its end ({solved} rows), or the boxed answer alone where no solution is known ({bare} rows):
a model trained on boxed answers alone learns to guess. It is a beginning, not a training set.
"""
_NONE_README = """# Sources

No source problems were named for this run (`--sources FILE` names some). `problems.jsonl` holds {rows} procedural word
problems instead, `{{"question", "answer", "solution"}}`: right, and far easier than the task.
"""
_NONE_DATA = """# The initial data

`train.jsonl`: {rows} rows, {{"prompt", "completion"}}: procedural word problems with plain, right solutions, taken from
`/sources`. No competition problem was named as a source, so these only show the format; they are far easier than the
task.
"""


def lay_out(problem_set: str, workspace: Path, sources: Path, source_files: Sequence[Path]) -> None:
    """Write ``workspace/{data,trainer,harness}`` and ``sources/`` for a set. ``source_files`` count for ``aime`` only.

    The folders may exist, and files of the same name are replaced. Raises TaskError for a malformed source file, an
    unknown set or an incomplete installation.
    """
    _known(problem_set)
    for component in ("trainer", "harness"):
        _copy(TEMPLATES / component, workspace / component)
    data = workspace / "data"
    data.mkdir(parents=True, exist_ok=True)
    sources.mkdir(parents=True, exist_ok=True)
    if problem_set == "mini":
        _mini(data, sources)
    elif source_files:
        _given(data, sources, source_files)
    else:
        _starter(data, sources)


def brief(problem_set: str) -> str:
    """The task's part of the brief, in Markdown: goal, score, data format, and the contracts of trainer and harness.

    ``brief.md`` has two places, ``{title}`` and ``{about}``; both are filled here.
    """
    text = (HERE / "brief.md").read_text(encoding="utf-8")
    title = load_spec("aime").sets[_known(problem_set)].title
    return text.replace("{title}", title).replace("{about}", _ABOUT[problem_set])


def _known(problem_set: str) -> str:
    if problem_set not in _ABOUT:
        raise TaskError(f"unknown problem set {problem_set[:80]!r}", where="aime", do="Choose mini or aime")
    return problem_set


def _copy(template: Path, target: Path) -> None:
    if not template.is_dir():
        raise TaskError("a template is missing", where=str(template), do="Install the package again")
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(template, target, ignore=ignored, copy_function=shutil.copyfile, dirs_exist_ok=True)


def _write_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def _write_text(path: Path, template: str, **values: object) -> None:
    path.write_text(template.format(**values), encoding="utf-8")


def _mini(data: Path, sources: Path) -> None:
    rows, bank = pool.noisy_rows(), pool.bank()
    _write_rows(data / "train.jsonl", ({"prompt": row.prompt, "completion": row.completion} for row in rows))
    _write_text(data / "README.md", _POOL_README, rows=len(rows))
    _write_rows(sources / "problems.jsonl", map(_bank_row, bank))
    _write_text(sources / "README.md", _BANK_README, rows=len(bank))


def _bank_row(problem: mini.MiniProblem) -> Mapping[str, object]:
    return {"question": problem.question, "answer": problem.answer, "solution": mini.solution_plain(problem)}


def _starter(data: Path, sources: Path) -> None:
    problems = pool.bank()[:STARTER_ROWS]
    rows = ({"prompt": prompt(one.question), "completion": mini.solution_plain(one)} for one in problems)
    _write_rows(data / "train.jsonl", rows)
    _write_text(data / "README.md", _NONE_DATA, rows=len(problems))
    _write_rows(sources / "problems.jsonl", map(_bank_row, problems))
    _write_text(sources / "README.md", _NONE_README, rows=len(problems))


def _given(data: Path, sources: Path, files: Sequence[Path]) -> None:
    problems = [problem for path in files for problem in load_rows(path)]
    solved = sum(bool(problem.solution) for problem in problems)
    counts = {"rows": len(problems), "solved": solved, "bare": len(problems) - solved}
    rows = ({"prompt": prompt(one.question), "completion": _completion(one)} for one in problems)
    _write_rows(data / "train.jsonl", rows)
    _write_text(data / "README.md", _GIVEN_DATA, **counts)
    _write_rows(sources / "problems.jsonl", map(_source_row, problems))
    _write_text(sources / "README.md", _GIVEN_README, files=", ".join(path.name for path in files), **counts)


def _source_row(problem: SourceProblem) -> Mapping[str, object]:
    row: dict[str, object] = {"question": problem.question, "answer": problem.answer}
    return row | ({"solution": problem.solution} if problem.solution else {})


def _completion(problem: SourceProblem) -> str:
    """The solution, with a box at its end unless its last box already holds the answer."""
    boxed = mini.boxed(problem.answer)
    if not problem.solution:
        return boxed
    solution = problem.solution.rstrip()
    return solution if extract(solution).integer == problem.answer else f"{solution}\n{boxed}"
