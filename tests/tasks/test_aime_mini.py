"""The mini problems: repeatable, balanced, disjoint, right; and a first pool that is as bad as it says."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks import registry
from tasks.aime import mini, pool
from tasks.aime.equivalence import Equivalence
from tasks.aime.score import extract, judge
from tasks.aime.text import normalise
from tasks.spec import Problem, TaskError, Verdict

GOLDEN = {
    "validation": "75baf27441fc35a92586dd39ba027c8b789554657edd7f5886cdcd56ad804341",
    "hidden": "485256014d146b04b0478693c07b072ed1e58d348482cd55eefd13f0a81e7917",
    "pool": "c21ee95149a31ce411077cdafc088401e73f1eda4b73aafc7e80f45c115597c5",
}


def splits() -> dict[str, list[Problem]]:
    task = registry.task("aime")
    return {"validation": list(task.load("mini", "validation", {})), "hidden": list(task.load("mini", "hidden", {}))}


def digest(values: object) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def test_the_splits_are_always_the_same() -> None:
    found = {
        name: digest([(p.id, p.question, p.gold, p.kind) for p in problems]) for name, problems in splits().items()
    }
    found["pool"] = digest([(row.prompt, row.completion) for row in pool.noisy_rows()])
    assert found == GOLDEN


def test_every_kind_comes_equally_often() -> None:
    kinds = len(mini.kinds())
    validation, hidden = splits()["validation"], splits()["hidden"]
    assert (len(validation), len(hidden)) == (6 * kinds, 12 * kinds) == (108, 216)
    assert set(Counter(problem.kind for problem in validation).values()) == {6}
    assert set(Counter(problem.kind for problem in hidden).values()) == {12}
    assert {problem.level for problem in hidden} == {0, 1, 2, 3, 4}
    assert [problem.id for problem in validation[:2]] == ["v001", "v002"]
    assert hidden[-1].id == "h216"


def test_no_question_is_in_two_places() -> None:
    places = {name: [problem.question for problem in problems] for name, problems in splits().items()}
    places["pool"] = [row.problem.question for row in pool.noisy_rows()]
    places["bank"] = [problem.question for problem in pool.bank()]
    texts = [normalise(question) for questions in places.values() for question in questions]
    assert {name: len(questions) for name, questions in places.items()} == {
        "validation": 108,
        "hidden": 216,
        "pool": 1620,
        "bank": 3006,
    }
    assert len(set(texts)) == len(texts)
    assert pool.graded_questions() == frozenset(texts[:324])


def test_answers_are_what_the_steps_give_and_the_scorer_takes_them(comparer: Equivalence) -> None:
    for problem in mini.generate("check", 40 * len(mini.kinds())):
        assert problem.answer == problem.steps[-1].value == mini.evaluate(problem.steps[-1].expr)
        assert all(step.value == mini.evaluate(step.expr) >= 0 for step in problem.steps)
        assert 1 <= len(problem.steps) <= 5
        assert all(re.fullmatch(r"[0-9+\-*/()]+", step.expr) for step in problem.steps)
        for text in (mini.solution_calculator(problem), mini.solution_plain(problem)):
            assert judge(problem.answer, text, comparer).reason == "match"


def test_every_number_of_a_question_is_in_its_steps() -> None:
    """A step list that ignored part of the question would be a wrong solution."""
    for problem in mini.generate("numbers", 10 * len(mini.kinds())):
        used = set(re.findall(r"[0-9]+", " ".join(step.expr for step in problem.steps)))
        assert set(re.findall(r"[0-9]+", problem.question)) <= used


def test_the_calculator_notation() -> None:
    problem = next(one for one in mini.generate("notation", 18) if one.kind == "boxes")
    first, last, box = mini.solution_calculator(problem).split("\n")
    assert re.fullmatch(r"Bought: <<\d+\*\d+>>=\d+", first)
    assert re.fullmatch(r"Remaining: <<\d+-\d+>>=\d+", last)
    assert box == f"\\boxed{{{problem.answer}}}"


def test_excluded_questions_are_not_made() -> None:
    first = mini.generate("seed", 36)
    taken = {normalise(problem.question) for problem in first}
    second = mini.generate("seed", 36, taken)
    assert not taken & {normalise(problem.question) for problem in second}
    assert [problem.kind for problem in second] == [problem.kind for problem in first]


def test_a_kind_that_is_used_up_is_an_error() -> None:
    class Everything:
        def __contains__(self, question: object) -> bool:
            return True

    with pytest.raises(ValueError, match="no unused question of kind small_sum"):
        mini.generate("seed", 1, Everything())


@settings(deadline=None)
@given(st.text(max_size=30))
def test_evaluate_is_total(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(mini.evaluate(text), int)


def test_evaluate_takes_no_code_and_no_powers() -> None:
    assert mini.evaluate("-(2+3)*4//3") == -7
    for text in ("__import__('os')", "9**9", "1/2", "True", "a", "1 if 1 else 2", "1//0", "(" * 500 + ")" * 500):
        with pytest.raises(ValueError):
            mini.evaluate(text)


LINE = re.compile(r"([0-9][0-9+\-*/]*) = (-?[0-9]+)$")


def consistent(completion: str) -> bool:
    """What an agent can check without knowing answers: every calculation is right, and a box ends the text."""
    lines = completion.split("\n")
    calculations = [LINE.search(line) for line in lines[:-1]]
    right = all(found and mini.evaluate(found[1]) == int(found[2]) for found in calculations)
    return right and lines[-1].startswith("\\boxed{")


def test_the_first_pool_is_bad_and_its_good_rows_can_be_found() -> None:
    rows = pool.noisy_rows()
    assert len(rows) == 1620
    assert pool.composition(rows) == {name: 18 * count for name, count in pool.FLAVOURS.items()}
    assert sum("\\boxed" not in row.completion for row in rows) / len(rows) > 0.5
    for row in rows:
        assert consistent(row.completion) == (row.flavour == "good")
        answer = extract(row.completion).integer
        assert (answer == row.problem.answer) == (row.flavour == "good")
    by_kind: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        by_kind[row.problem.kind][row.flavour] += 1
    assert all(counts == pool.FLAVOURS for counts in by_kind.values())


def test_a_seed_file_of_ones_own(tmp_path: Path) -> None:
    task = registry.task("aime")
    own = tmp_path / "hidden.toml"
    own.write_text('seed = "mine"\nproblems = 36\n')
    hidden = task.load("mini", "hidden", {"hidden": own})
    assert len(hidden) == 36
    assert not {p.question for p in hidden} & {p.question for p in splits()["hidden"]}
    same = tmp_path / "validation.toml"
    same.write_text('seed = "mine"\nproblems = 36\n')
    validation = task.load("mini", "validation", {"validation": same})
    hidden = task.load("mini", "hidden", {"hidden": own, "validation": same})
    assert not {p.question for p in hidden} & {p.question for p in validation}


@pytest.mark.parametrize(
    "data",
    [
        b"seed =",
        b"\xff",
        b'seed = "x"\n',
        b"seed = 1\nproblems = 3\n",
        b'seed = "x"\nproblems = 0\n',
        b'seed = "x"\nproblems = true\n',
        b'seed = "x"\nproblems = 10000000\n',
        b'seed = "x"\nproblems = 3\nmore = 1\n',
        b"a = " + b"[" * 5000,
    ],
)
def test_a_wrong_seed_file_is_one_line(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "seed.toml"
    path.write_bytes(data)
    with pytest.raises(TaskError) as caught:
        registry.task("aime").load("mini", "validation", {"validation": path})
    assert caught.value.where == str(path)
    assert caught.value.do


def test_the_task_shows_the_question_and_judges_at_once() -> None:
    task = registry.task("aime")
    problem = splits()["validation"][0]
    shown = task.public(problem)
    assert (shown.id, shown.instruction, shown.tools) == (problem.id, problem.question, ())
    assert problem.gold not in shown.model_dump_json().replace(problem.question, "").replace(problem.id, "")
    plan = task.plan(problem, f"\\boxed{{{problem.gold}}}")
    assert isinstance(plan, Verdict)
    assert plan.reward == 1.0
    with pytest.raises(TaskError):
        task.verdict(problem, {})
    episode = task.open(problem)
    episode.finish("\\boxed{1}")
    refusals: list[Callable[[], object]] = [
        lambda: episode.exec("ls", 1.0),
        lambda: episode.tool("x", {}),
        lambda: episode.say("hi"),
    ]
    for refused in refusals:
        with pytest.raises(TaskError, match="no environment"):
            refused()
