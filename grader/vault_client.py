"""The vault as the grader sees it: starts its sandbox, asks it, and starts it once more when it dies.

The vault answers in order, so the first unanswered request is the one that was being worked on when it died or hung:
that one is asked a second time and then fails; the others are asked again as often as they are innocent.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from grader.errors import GraderError, ProblemsError
from grader.protocol import GraderSetup, SplitInfo
from grader.strict import LineReader, StrictError
from isolation import bwrap, sandbox
from isolation.limits import Cgroup
from isolation.sandbox import Sandbox
from isolation.spec import Limits, Mount, SandboxSpec
from tasks import registry
from tasks.spec import Frozen, Public, SplitName, TaskError, Verdict

HANG_SECONDS = 180.0
"""How long the vault may work on one request; its own alarm on a scorer rings much earlier."""

LARGEST_ANSWER = 1 << 20
_LARGEST_LINE = 32 << 20
_PACKAGES = "/opt/vault"
_ROOT = Path(__file__).resolve().parents[1]
_LIMITS = Limits(memory=1 << 30, pids=64, tmp_bytes=64 << 20)
_Model = TypeVar("_Model", bound=Frozen)
_TOO_BIG = Verdict(reward=0.0, reason="answer_too_big")


class Opened(Frozen):
    """What the vault tells of the problem files when it opens. ``overlap``: the splits share a problem;
    ``same``: they are the same problems."""

    validation: SplitInfo
    hidden: SplitInfo
    overlap: bool
    same: bool


@dataclass(slots=True)
class _Asked:
    """A request on its way. ``attempts`` counts the vaults that ended while working on it."""

    line: bytes
    answer: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    attempts: int = 0


class Vault:
    """A running vault. Any number of calls may be outstanding; every method raises GraderError.

    Make one with :meth:`start`, from the main thread; then :meth:`open` before anything else.
    """

    def __init__(self, setup: GraderSetup, spec: SandboxSpec, files: Mapping[SplitName, Path], cgroup: Cgroup | None):
        self._setup = setup
        self._spec = spec
        self._files = files
        self._cgroup = cgroup
        self._ids = itertools.count(1)
        self._asked: dict[int, _Asked] = {}
        self._since = time.monotonic()
        self._box: Sandbox | None = None
        self._lines: LineReader | None = None
        self._ready = False
        self._failure: GraderError | None = None
        self._opened: Opened | None = None
        self._holder: str | None = None
        self._idle_deaths = 0
        self._loop: asyncio.Task[None] | None = None
        self.starts = 0
        """How often the sandbox was started: what was indexed before the last start is forgotten."""

    @classmethod
    async def start(
        cls, setup: GraderSetup, *, cgroup: Cgroup | None = None, python: Path = Path(sys.executable)
    ) -> Vault:
        """Starts the sandbox with the problem files of ``setup``; ``python`` is our own environment's interpreter."""
        files = _split_files(setup)
        vault = cls(setup, _spec(files, python), files, cgroup)
        await vault._launch()
        vault._ready = True
        vault._loop = asyncio.get_running_loop().create_task(vault._read())
        return vault

    async def open(self) -> Opened:
        """Reads both files: counts, digests, overlap. The hidden problems are not kept."""
        self._opened = _checked(Opened, await self._ask(self._opening()))
        return self._opened

    async def ids(self, split: SplitName) -> tuple[str, ...]:
        """The problem ids of ``split`` in file order; the hidden ones only after :meth:`unseal`."""
        return tuple(map(str, await self._ask({"op": "ids", "split": split})))

    async def public(self, split: SplitName, problem: str) -> Public:
        """What a session may be told of a problem."""
        return _checked(Public, await self._ask({"op": "public", "split": split, "problem": problem}))

    async def judge(self, split: SplitName, problem: str, submission: str) -> Verdict:
        """The verdict on ``submission``, any text at all; one over the limit is 0 (``answer_too_big``) unread."""
        if len(submission.encode("utf-8", "surrogatepass")) > min(LARGEST_ANSWER, self._setup.limits.answer_bytes):
            return _TOO_BIG
        request = {"op": "judge", "split": split, "problem": problem, "submission": submission}
        return _checked(Verdict, await self._ask(request))

    async def unseal(self, candidate: str) -> None:
        """Serves the hidden split to ``candidate`` from now on. The ledger's claim comes first: the caller's duty."""
        await self._ask({"op": "unseal", "candidate": candidate})
        self._holder = candidate

    async def index(self, split: SplitName) -> bool:
        """Begins a comparison with ``split``, the hidden one only after :meth:`unseal`; whether it wants replies."""
        return bool((await self._ask({"op": "index", "split": split}))["replies"])

    async def know(self, texts: Sequence[str]) -> tuple[str, ...]:
        """Texts that every agent is given; the ids of the problems found there so far."""
        return tuple(map(str, await self._ask({"op": "know", "texts": list(texts)})))

    async def replies(self, replies: Sequence[tuple[str, str]]) -> bool:
        """(problem, what the model wrote); False when not all of it could be taken in."""
        return bool(await self._ask({"op": "replies", "replies": list(replies)}))

    async def overlap(self, text: str) -> list[tuple[int, str, str]]:
        """(line of the text from 0, problem, how it was recognised)."""
        found = await self._ask({"op": "overlap", "text": text})
        return [(int(line), str(problem), str(how)) for line, problem, how in found]

    async def close(self) -> None:
        """Ends the vault; outstanding calls fail."""
        self._fail(GraderError("the vault is closed", where="vault"))
        if self._loop is not None:
            self._loop.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._loop
        if self._box is not None:
            await self._box.kill()

    async def _ask(self, request: Mapping[str, Any]) -> Any:
        if self._failure is not None:
            raise self._failure
        number, line = self._numbered(request)
        asked = _Asked(line)
        if not self._asked:
            self._since = time.monotonic()
        self._asked[number] = asked
        if self._ready:
            await self._send(line)
        return await asked.answer

    def _numbered(self, request: Mapping[str, Any]) -> tuple[int, bytes]:
        number = next(self._ids)
        return number, json.dumps({"id": number, **request}, ensure_ascii=True).encode("ascii") + b"\n"

    async def _send(self, line: bytes) -> None:
        """Hands a line over; a dead vault is the reader's to notice."""
        assert self._box is not None and self._box.stdin is not None
        with contextlib.suppress(ConnectionError, RuntimeError):
            self._box.stdin.write(line)
            await self._box.stdin.drain()

    async def _launch(self) -> None:
        self.starts += 1
        self._box = await sandbox.start(self._spec, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, cgroup=self._cgroup)
        assert self._box.stdout is not None
        self._lines = LineReader(self._box.stdout, _LARGEST_LINE)

    async def _read(self) -> None:
        """Takes answers, and brings a dead or hanging vault back, until :meth:`close` or a failure for good."""
        while self._failure is None:
            line = await self._line()
            if self._failure is None and (line is None or not self._take(line)):
                try:
                    await self._again()
                except GraderError as error:
                    self._fail(error)
                except Exception as error:
                    self._fail(GraderError(f"the vault did not start again: {error}", where="vault"))

    async def _line(self) -> bytes | None:
        """The vault's next line; None when it ended, spoke nonsense, or has worked on one request for too long."""
        assert self._lines is not None
        while True:
            try:
                async with asyncio.timeout(HANG_SECONDS / 8):
                    return await self._lines.line()
            except StrictError:
                return None
            except TimeoutError:
                if self._asked and time.monotonic() - self._since > HANG_SECONDS:
                    return None

    def _take(self, line: bytes) -> bool:
        """Gives an answer to whom it belongs; False when it is none."""
        try:
            answer = json.loads(line)
            number, good = int(answer["id"]), bool(answer["ok"])
            outcome = answer["result"] if good else None
        except (ValueError, KeyError, TypeError):
            return False
        asked = self._asked.pop(number, None)
        self._since = time.monotonic()
        self._idle_deaths = 0
        if asked is not None and not asked.answer.done():
            if good:
                asked.answer.set_result(outcome)
            else:
                asked.answer.set_exception(self._refusal(answer))
        return True

    async def _again(self) -> None:
        """A new vault in the state of the old one; asks again what is unanswered."""
        self._ready = False
        why = await self._bury()
        self._blame(why)
        await self._launch()
        if self._opened is not None:
            again = _checked(Opened, await self._exchange(self._opening()))
            if again != self._opened:
                raise GraderError("the problem files changed during the run", where="vault", do="Start a new run")
        if self._holder is not None:
            await self._exchange({"op": "unseal", "candidate": self._holder})
        self._since = time.monotonic()
        self._ready = True
        for asked in list(self._asked.values()):
            # Not awaited one by one: the reader must go on reading, or both pipes could fill.
            assert self._box is not None and self._box.stdin is not None
            self._box.stdin.write(asked.line)

    async def _bury(self) -> str:
        assert self._box is not None
        await self._box.kill()
        return self._box.death(await self._box.wait()) or "exit 0"

    def _blame(self, why: str) -> None:
        """Charges a death to the request that was being worked on; an idle vault may die once."""
        for number, asked in self._asked.items():
            asked.attempts += 1
            if asked.attempts >= 2:
                del self._asked[number]
                if not asked.answer.done():
                    text = f"the vault ended twice on the same request ({why})"
                    asked.answer.set_exception(GraderError(text, where="vault", do="Run it again"))
            return
        self._idle_deaths += 1
        if self._idle_deaths > 1:
            raise GraderError(f"the vault does not stay alive ({why})", where="vault", do="Run `runner doctor`")

    async def _exchange(self, request: Mapping[str, Any]) -> Any:
        """A request of the restart itself, ahead of all others."""
        number, line = self._numbered(request)
        await self._send(line)
        answered = await self._line()
        answer = json.loads(answered) if answered is not None else {}
        if answer.get("id") != number or not answer.get("ok"):
            raise self._refusal(answer)
        return answer["result"]

    def _opening(self) -> dict[str, Any]:
        files = {split: _inside(split, path) for split, path in self._files.items()}
        return {"op": "open", "task_name": self._setup.task, "problem_set": self._setup.problems, "files": files}

    def _refusal(self, answer: Mapping[str, Any]) -> GraderError:
        """The error that an answer of the vault stands for."""
        text = self._host_words(str(answer.get("error", "the vault ended again")))
        return ProblemsError(text) if answer.get("fault") == "problems" else GraderError(text, where="vault")

    def _host_words(self, text: str) -> str:
        """The vault's error with the paths that a person knows."""
        for split, path in self._files.items():
            text = text.replace(_inside(split, path), str(path))
        return text

    def _fail(self, error: GraderError) -> None:
        self._failure = self._failure or error
        for asked in self._asked.values():
            if not asked.answer.done():
                asked.answer.set_exception(self._failure)
        self._asked.clear()


def _split_files(setup: GraderSetup) -> dict[SplitName, Path]:
    """The host paths of both files: as set up, or those that come with the task."""
    try:
        own = registry.split_files(setup.task, setup.problems) or {}
    except TaskError as error:
        raise ProblemsError(error.what, where=error.where, do=error.do) from None
    given: dict[SplitName, str | None] = {"validation": setup.validation, "hidden": setup.hidden}
    files: dict[SplitName, Path] = {}
    for split, name in given.items():
        path = Path(name) if name else own.get(split)
        if path is None or not path.is_file():
            raise ProblemsError(
                f"there is no {split} file", where=str(path or setup.problems), do="Run `runner prepare`, or name one"
            )
        files[split] = path.resolve()
    return files


def _inside(split: SplitName, path: Path) -> str:
    """Where the vault finds a file; the suffix says its format."""
    suffix = path.suffix if path.suffix[1:].isalnum() else ""
    return f"/vault/{split}{suffix}"


def _spec(files: Mapping[SplitName, Path], python: Path) -> SandboxSpec:
    packages = tuple(Mount(_ROOT / name, f"{_PACKAGES}/{name}") for name in ("grader", "tasks"))
    problems = tuple(Mount(path, _inside(split, path)) for split, path in files.items())
    return SandboxSpec(
        profile="vault",
        argv=(str(python), "-P", "-m", "grader.vault"),
        mounts=(*bwrap.python_mounts(python), *packages, *problems),
        env={"PYTHONPATH": _PACKAGES, "PYTHONDONTWRITEBYTECODE": "1"},
        limits=_LIMITS,
        hostname="vault",
    )


def _checked(kind: type[_Model], value: Any) -> _Model:
    try:
        return kind.model_validate(value)
    except ValidationError:
        raise GraderError("the vault's answer was not understood", where="vault", do="Run it again") from None
