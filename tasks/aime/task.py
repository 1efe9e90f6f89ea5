"""The AIME task: a question in, a text with a box out, judged at once. Serves the sets ``mini`` and ``aime``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.aime import mini, pool
from tasks.aime.equivalence import Equivalence
from tasks.aime.problems import load_problems
from tasks.aime.score import Comparer, judge
from tasks.spec import Episode, JudgePlan, Problem, Public, SplitName, TaskError, Verdict

PREFIXES: Mapping[SplitName, str] = {"validation": "v", "hidden": "h"}


class AimeEpisode:
    """A problem without an environment: it takes the answer and refuses everything else."""

    def __init__(self) -> None:
        self.answer: str | None = None

    def exec(self, command: str, timeout_s: float) -> Mapping[str, Any]:
        raise _no_environment("env.exec")

    def tool(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        raise _no_environment("tool.call")

    def say(self, text: str) -> Mapping[str, Any]:
        raise _no_environment("say")

    def finish(self, answer: str) -> None:
        self.answer = answer


def _no_environment(verb: str) -> TaskError:
    return TaskError(f"{verb}: this task has no environment", where="harness", do="Answer with finish")


class AimeTask:
    """Implements ``tasks.spec.Task``. ``comparer`` judges boxes that hold no integer; the default is a child process
    that starts when it is first needed."""

    def __init__(self, comparer: Comparer | None = None) -> None:
        self._comparer: Comparer = comparer or Equivalence()

    def load(self, name: str, split: SplitName, files: Mapping[SplitName, Path]) -> Sequence[Problem]:
        """The problems of a split. ``mini`` takes seed files and has its own where none is given; ``aime`` needs
        problem files. Raises TaskError."""
        if name == "mini":
            return _mini(split, files)
        if name != "aime":
            raise TaskError(f"unknown problem set {name!r}", where="aime", do="Choose mini or aime")
        if split not in files:
            raise TaskError(f"no file for the {split} split", where="aime", do="Run `runner prepare`, or name one")
        return load_problems(files[split], PREFIXES[split])

    def public(self, problem: Problem) -> Public:
        return Public(id=problem.id, instruction=problem.question)

    def open(self, problem: Problem) -> Episode:
        return AimeEpisode()

    def plan(self, problem: Problem, submission: str) -> Verdict | JudgePlan:
        return judge(int(problem.gold), submission, self._comparer)

    def verdict(self, problem: Problem, evidence: Mapping[str, Any]) -> Verdict:
        raise TaskError("answers are judged at once, there is no evidence", where=problem.id, do="Use plan")


def _mini(split: SplitName, files: Mapping[SplitName, Path]) -> list[Problem]:
    seed_file = files.get(split, pool.SEEDS / f"{split}.toml")
    validation_file = files.get("validation", pool.SEEDS / "validation.toml")
    try:
        if split == "validation":
            problems = pool.validation(_seed(seed_file))
        else:
            problems = pool.hidden(_seed(seed_file), _seed(validation_file))
    except ValueError as error:
        raise TaskError(str(error), where=str(seed_file), do="Ask for fewer problems") from None
    return [_problem(f"{PREFIXES[split]}{n:03d}", one) for n, one in enumerate(problems, start=1)]


def _problem(identity: str, made: mini.MiniProblem) -> Problem:
    return Problem(id=identity, question=made.question, gold=str(made.answer), kind=made.kind, level=made.level)


def _seed(path: Path) -> pool.Seed:
    do = 'Write two lines: seed = "…" and problems = 108'
    try:
        return pool.read_seed(path)
    except tomllib.TOMLDecodeError as error:
        raise TaskError(f"is not valid TOML: {error}", where=str(path), do=do) from None
    except OSError as error:
        raise TaskError(f"cannot be read ({error.strerror})", where=str(path), do=do) from None
    except (ValueError, RecursionError) as error:
        raise TaskError(str(error), where=str(path), do=do) from None
