"""The mini set's splits and sources: who may hold which problem, and the noisy data a run starts with.

Sources come first: validation excludes their questions, hidden excludes both. Only the standard library, so that a
script in another environment can ask for the graded questions.
"""

from __future__ import annotations

import functools
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tasks.aime import mini
from tasks.aime.text import normalise, prompt

SOURCES_SEED = "mini/sources/1"
POOL_PER_KIND = 90
BANK_PER_KIND = 167
LARGEST_SPLIT = 10_000
SEEDS = Path(__file__).parent / "seeds"

Flavour = Literal["good", "wrong_box", "no_box", "wrong_no_box", "loop"]
# How many of a kind's POOL_PER_KIND rows are of which flavour: 30 % are good, 64 % have no box.
FLAVOURS: dict[Flavour, int] = {"good": 27, "wrong_box": 5, "no_box": 18, "wrong_no_box": 22, "loop": 18}
_OFFSETS = (-10, -2, -1, 1, 2, 9, 10, 100)
_AGAIN = "Let me think about it again."


@dataclass(frozen=True, slots=True)
class Seed:
    """What a split's TOML file says: the seed and how many problems."""

    seed: str
    problems: int


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the noisy pool: the user message, what was written, and what is wrong with it."""

    problem: mini.MiniProblem
    prompt: str
    completion: str
    flavour: Flavour


def read_seed(path: Path) -> Seed:
    """A split's seed file. ValueError (what is wrong with it) or OSError."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    if set(table) != {"seed", "problems"}:
        raise ValueError("must have the keys seed and problems, and no others")
    seed, problems = table["seed"], table["problems"]
    if not isinstance(seed, str) or not 0 < len(seed) <= 200:
        raise ValueError("seed must be a text of 1 to 200 characters")
    if not isinstance(problems, int) or isinstance(problems, bool) or not 0 < problems <= LARGEST_SPLIT:
        raise ValueError(f"problems must be an integer in 1…{LARGEST_SPLIT}")
    return Seed(seed, problems)


@functools.cache
def _sources() -> tuple[mini.MiniProblem, ...]:
    return tuple(mini.generate(SOURCES_SEED, (POOL_PER_KIND + BANK_PER_KIND) * len(mini.kinds())))


def bank() -> tuple[mini.MiniProblem, ...]:
    """The clean problems of /sources: no question of the noisy pool, of validation or of hidden."""
    return _sources()[POOL_PER_KIND * len(mini.kinds()) :]


def questions(problems: list[mini.MiniProblem] | tuple[mini.MiniProblem, ...]) -> frozenset[str]:
    """Their normalised questions."""
    return frozenset(normalise(problem.question) for problem in problems)


def validation(seed: Seed) -> list[mini.MiniProblem]:
    """The validation problems of a seed: none is a source."""
    return mini.generate(seed.seed, seed.problems, questions(_sources()))


def hidden(seed: Seed, validation_seed: Seed) -> list[mini.MiniProblem]:
    """The hidden problems of a seed: none is a source or a validation problem."""
    taken = questions(_sources()) | questions(validation(validation_seed))
    return mini.generate(seed.seed, seed.problems, taken)


def graded_questions() -> frozenset[str]:
    """The normalised questions of both splits that come with the task: nothing may be trained on them."""
    seed = read_seed(SEEDS / "validation.toml")
    return questions(validation(seed)) | questions(hidden(read_seed(SEEDS / "hidden.toml"), seed))


def noisy_rows() -> list[Row]:
    """The data a run starts with, in a fixed shuffled order; every kind has the same share of every flavour."""
    kinds = mini.kinds()
    problems = _sources()[: POOL_PER_KIND * len(kinds)]
    rows: list[Row] = []
    for position, kind in enumerate(kinds):
        draw = mini.Draw(f"{SOURCES_SEED}/noise/{kind}")
        flavours = draw.shuffled([flavour for flavour, count in FLAVOURS.items() for _ in range(count)])
        for problem, flavour in zip(problems[position :: len(kinds)], flavours, strict=True):
            rows.append(Row(problem, prompt(problem.question), solution_noisy(problem, flavour, draw), flavour))
    return mini.Draw(f"{SOURCES_SEED}/order").shuffled(rows)


def solution_noisy(problem: mini.MiniProblem, flavour: Flavour, draw: mini.Draw) -> str:
    """A worked solution with the fault that ``flavour`` names; ``good`` is the plain solution."""
    if flavour == "good":
        return mini.solution_plain(problem)
    if flavour == "no_box":
        return "\n".join([*mini.plain_lines(problem.steps), f"The answer is {problem.answer}."])
    steps = _gone_wrong(problem, draw)
    lines = mini.plain_lines(steps)
    if flavour == "wrong_box":
        return "\n".join([*lines, mini.boxed(steps[-1].value)])
    if flavour == "wrong_no_box":
        return "\n".join([*lines, f"The answer is {steps[-1].value}."])
    stuck = draw.between(1, len(lines))
    return "\n".join([*lines[:stuck], *[_AGAIN, lines[stuck - 1]] * draw.between(3, 6)])


def _gone_wrong(problem: mini.MiniProblem, draw: mini.Draw) -> tuple[mini.Step, ...]:
    """The steps with one wrong value on which the later ones build, ending in a wrong answer of at least 0."""
    forms = [(step.label, step.form) for step in problem.steps]
    while True:
        wrong_at = draw.between(0, len(forms) - 1)
        off = draw.pick(_OFFSETS)
        if problem.steps[wrong_at].value + off < 1:
            continue
        steps = mini.calculate(forms, wrong_at=wrong_at, off=off)
        if steps[-1].value != problem.answer and min(step.value for step in steps) >= 0:
            return steps


def composition(rows: list[Row]) -> Counter[Flavour]:
    """How many rows are of which flavour."""
    return Counter(row.flavour for row in rows)
