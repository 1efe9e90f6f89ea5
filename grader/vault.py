"""The vault: the one process that holds answers. Runs inside its own sandbox, as ``python -P -m grader.vault``.

JSON lines, requests on stdin and one answer each on stdout, in order: ``{"id", "op", …}`` → ``{"id", "ok": true,
"result"}`` or ``{"id", "ok": false, "error"}``, and ``"fault": "problems"`` where the files are to blame.
Operations: open, ids, public, judge, unseal; index, know, replies and overlap for the comparison of an agent's texts
with the problems. No answer of it holds a gold, a hidden problem is served, or compared with, only after ``unseal``,
and nothing is ever written to a file or to stderr.

Imports tasks, the protocol and the comparison alone: of our packages only tasks and grader are mounted here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any, Never

from grader.overlap import Index
from grader.protocol import SplitInfo
from tasks.registry import task
from tasks.spec import Problem, SplitName, Task, TaskError, Verdict

JUDGE_SECONDS = 90
"""How long one answer may be judged; a scorer that is still busy then gives 0. Host and vault both know it."""

_SPLITS: tuple[SplitName, ...] = ("validation", "hidden")


class _TooSlowError(Exception):
    """Raised by the alarm into a scorer."""


class Vault:
    """The problems of one task set, and what may be said about them."""

    def __init__(self, tasks: Callable[[str], Task] = task, judge_s: float = JUDGE_SECONDS) -> None:
        """``tasks`` finds a task by its name; ``judge_s``: how long one answer may be judged."""
        self._tasks, self._judge_s = tasks, judge_s
        self._task: Task | None = None
        self._set = ""
        self._files: dict[SplitName, Path] = {}
        self._served: dict[SplitName, dict[str, Problem]] = {}
        self._hidden: SplitInfo | None = None
        self._holder: str | None = None
        self._index: Index | None = None
        self._operations: Mapping[str, Callable[..., Any]] = {
            "open": self.open,
            "ids": self.ids,
            "public": self.public,
            "judge": self.judge,
            "unseal": self.unseal,
            "index": self.index,
            "know": self.know,
            "replies": self.replies,
            "overlap": self.overlap,
        }

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one request, whatever happens on the way."""
        fields = {name: value for name, value in request.items() if name not in ("id", "op")}
        try:
            result = self._operations[request["op"]](**fields)
        except TaskError as error:
            fault = "problems" if request["op"] == "open" else ""
            return {"id": request.get("id"), "ok": False, "error": str(error), "fault": fault}
        except Exception as error:
            # Values stay out: an exception's text may quote a problem.
            return {"id": request.get("id"), "ok": False, "error": f"the vault failed ({_site(error)})"}
        return {"id": request.get("id"), "ok": True, "result": result}

    def open(self, task_name: str, problem_set: str, files: Mapping[SplitName, str]) -> dict[str, Any]:
        """Counts and digests of both splits, and whether they share a problem. Keeps only validation."""
        self._task, self._set = self._tasks(task_name), problem_set
        self._files = {split: Path(files[split]) for split in _SPLITS}
        validation, info = self._load("validation")
        hidden, self._hidden = self._load("hidden")
        self._served = {"validation": validation}
        return {
            "validation": info.model_dump(),
            "hidden": self._hidden.model_dump(),
            "overlap": shares_a_problem(list(validation.values()), list(hidden.values())),
            "same": same_problems(list(validation.values()), list(hidden.values())),
        }

    def ids(self, split: SplitName) -> list[str]:
        return list(self._problems(split))

    def public(self, split: SplitName, problem: str) -> dict[str, Any]:
        return self._opened().public(self._problem(split, problem)).model_dump()

    def judge(self, split: SplitName, problem: str, submission: str) -> dict[str, Any]:
        """The verdict. A scorer that fails on, or is too slow for, what an agent's system wrote gives 0."""
        found = self._problem(split, problem)
        try:
            with _alarm(self._judge_s):
                judged = self._opened().plan(found, submission)
        except _TooSlowError:
            return Verdict(reward=0.0, reason="timeout").model_dump()
        except TaskError:
            raise
        except Exception:
            return Verdict(reward=0.0, reason="judge_error").model_dump()
        if not isinstance(judged, Verdict):
            raise TaskError("judging in a sandbox is not built yet", where=problem, do="Choose another task")
        return judged.model_dump()

    def unseal(self, candidate: str) -> dict[str, Any]:
        """Serves the hidden split from now on, for ``candidate``; refuses a second one and a file that changed."""
        if self._holder not in (None, candidate):
            raise TaskError("the hidden split is unsealed for another candidate", where="vault", do="Start a new run")
        hidden, info = self._load("hidden")
        if info != self._hidden:
            raise TaskError("the hidden problems changed after the start", where="vault", do="Start a new run")
        self._served["hidden"], self._holder = hidden, candidate
        return {}

    def index(self, split: SplitName) -> dict[str, Any]:
        """A new comparison with ``split`` in place of the last one. ``replies``: whether it wants the model's."""
        self._index = Index(self._problems(split).values())
        return {"replies": not self._index.of_templates}

    def know(self, texts: Sequence[str]) -> list[str]:
        """Texts that every agent is given; the ids of the problems that are in one, which are not looked for."""
        index = self._compared()
        for text in texts:
            index.know(text)
        return sorted(index.given)

    def replies(self, replies: Sequence[Sequence[str]]) -> bool:
        """(problem, what the model wrote) of validations; False when not all of it could be taken in."""
        index = self._compared()
        taken = [index.reply(problem, text) for problem, text in replies]
        return all(taken)

    def overlap(self, text: str) -> list[tuple[int, str, str]]:
        """(line, problem, how) for each problem in ``text``: ids and places, never a word of a problem."""
        return [(hit.line, hit.problem, hit.how) for hit in self._compared().find(text)]

    def _compared(self) -> Index:
        if self._index is None:
            raise TaskError("nothing is compared", where="vault", do="Send index first")
        return self._index

    def _opened(self) -> Task:
        if self._task is None:
            raise TaskError("nothing is open", where="vault", do="Send open first")
        return self._task

    def _problems(self, split: SplitName) -> dict[str, Problem]:
        self._opened()
        if split not in self._served:
            raise TaskError(f"the {split} split is sealed", where="vault", do="Claim the hidden test first")
        return self._served[split]

    def _problem(self, split: SplitName, problem: str) -> Problem:
        found = self._problems(split).get(problem)
        if found is None:
            raise TaskError("no such problem", where="vault", do="Ask for the ids of the split")
        return found

    def _load(self, split: SplitName) -> tuple[dict[str, Problem], SplitInfo]:
        path = self._files[split]
        digest = _sha256(path)
        problems = self._opened().load(self._set, split, self._files)
        by_id = {problem.id: problem for problem in problems}
        if len(by_id) != len(problems) or not by_id:
            raise TaskError("no problems, or an id twice", where=str(path), do="Mend the problems file")
        if _sha256(path) != digest:
            raise TaskError("changed while it was read", where=str(path), do="Start again")
        return by_id, SplitInfo(count=len(by_id), sha256=digest)


def shares_a_problem(first: Sequence[Problem], second: Sequence[Problem]) -> bool:
    """Whether a question is in both: exactly, or after NFKC, case folding and dropping all but letters and digits."""
    return any(
        {form(problem.question) for problem in first} & {form(problem.question) for problem in second}
        for form in (str, _normalised)
    )


def same_problems(first: Sequence[Problem], second: Sequence[Problem]) -> bool:
    """Whether both hold the same questions with the same answers, in whatever order."""
    both = [sorted((_normalised(problem.question), problem.gold) for problem in part) for part in (first, second)]
    return both[0] == both[1]


def _normalised(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    # A text without a letter or a digit is compared as it is: two such texts need not be one problem.
    return "".join(letter for letter in folded if letter.isalnum()) or text


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise TaskError(f"cannot be read ({error.strerror})", where=str(path), do="Fetch the problems again") from None


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    previous = signal.signal(signal.SIGALRM, _too_slow)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _too_slow(number: int, frame: FrameType | None) -> Never:
    raise _TooSlowError


def _site(error: Exception) -> str:
    """The exception's type and where in our code it rose, without any value."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else ""
    return f"{type(error).__name__}{place}"


def serve(source: IO[bytes], sink: IO[bytes]) -> None:
    """Answers every line of ``source`` on ``sink`` until ``source`` ends."""
    vault = Vault()
    for line in source:
        # ASCII both ways: a lone surrogate travels as its escape and comes back as itself.
        sink.write(json.dumps(vault.answer(json.loads(line)), ensure_ascii=True).encode("ascii") + b"\n")
        sink.flush()


def main() -> None:
    """Serves stdin; what a scorer prints goes nowhere near the answers."""
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, sink)


if __name__ == "__main__":
    main()
