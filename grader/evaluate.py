"""A candidate on a split: waves of sessions, committed one by one, then the files of the evaluation.

A wave is fixed by index: the same (problem, sample) pairs share their rounds in every run, and a wave that was not
committed is run again whole with the same seeds. The score divides by what was scheduled, never by what came back.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader.commit import Conditions, EvalFolder, Wave
from grader.engines.base import Engine, EngineError
from grader.protocol import EngineConfig, ModelRef, ProblemRow, ScoreFile, SplitInfo, TrajectoryStep
from grader.session import Ground, Outcome, Session
from isolation.spec import Mount
from tasks.spec import Decoding, ProblemLimits, Public, SplitName, Verdict

SPAWNS = 4
AHEAD = 32

OnProgress = Callable[[int, int], None]
OnAttempt = Callable[[str, str], None]
Pair = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Split:
    """An opened split: its problems in their fixed order, and the one who shows and judges them."""

    name: SplitName
    info: SplitInfo
    problems: tuple[str, ...]
    public: Callable[[str], Awaitable[Public]]
    judge: Callable[[str, str], Awaitable[Verdict]]


@dataclass(frozen=True, slots=True)
class Rules:
    """What is the same for every evaluation of a run."""

    decoding: Decoding
    limits: ProblemLimits
    samples: int
    seed: int
    engine: EngineConfig


@dataclass(frozen=True, slots=True)
class Subject:
    """Who is evaluated, and where the files go. ``identity`` is what the model and harness are, not what they are
    called."""

    candidate: str
    eval: str
    model: ModelRef
    identity: str
    harness_dir: Path
    out_dir: Path


@dataclass(frozen=True, slots=True)
class Bench:
    """What evaluations are done with: a started engine and its name, the interpreter of harnesses, a short folder."""

    engine: Engine
    engine_name: str
    python: Path
    mounts: tuple[Mount, ...]
    runtime_dir: Path


@dataclass(slots=True)
class _Tally:
    done: int = 0
    attempts: Counter[str] = field(default_factory=Counter)


def call_seed(seed: int, problem: str, sample: int, call: int) -> int:
    """The seed of one model call, 0…2⁶³−1: nothing else decides its draw."""
    text = f"{seed}\0{problem}\0{sample}\0{call}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1


def conditions(bench: Bench, rules: Rules, split: Split, subject: Subject) -> Conditions:
    """Everything that decides the result of an evaluation."""
    return Conditions(
        identity=subject.identity,
        split=split.name,
        problems=split.info,
        samples=rules.samples,
        seed=rules.seed,
        decoding=rules.decoding,
        limits=rules.limits,
        engine=rules.engine,
        engine_name=bench.engine_name,
    )


class Evaluation:
    """One evaluation. Cancelling :meth:`run` leaves no process, no socket and no half wave."""

    def __init__(
        self,
        bench: Bench,
        rules: Rules,
        split: Split,
        subject: Subject,
        *,
        on_progress: OnProgress,
        on_attempt: OnAttempt,
    ) -> None:
        self._bench = bench
        self._rules = rules
        self._split = split
        self._subject = subject
        self._on_progress = on_progress
        self._on_attempt = on_attempt
        self._tally = _Tally()
        self._spawns = asyncio.Semaphore(SPAWNS)
        self._ahead: dict[int, asyncio.Task[Session]] = {}
        decided = conditions(bench, rules, split, subject)
        self.digest = decided.digest()
        self._folder = EvalFolder(subject.out_dir, decided)
        self._pairs: Sequence[Pair] = [(p, s) for p in split.problems for s in range(rules.samples)]
        self._ground = Ground(
            engine=bench.engine,
            judge=split.judge,
            harness_dir=subject.harness_dir,
            python=bench.python,
            mounts=bench.mounts,
            runtime_dir=bench.runtime_dir,
            decoding=rules.decoding,
            limits=rules.limits,
            seed=lambda problem, sample, call: call_seed(rules.seed, problem, sample, call),
        )

    async def run(self) -> ScoreFile:
        """The score; raises EngineError, GraderError or SandboxError when the infrastructure failed."""
        finished = self._folder.finished()
        if finished is not None:
            return finished
        open_waves = self._open_waves()
        self._tally.done = len(self._pairs) - sum(len(wave) for wave in open_waves.values())
        self._report()
        if open_waves:
            await self._run_waves(open_waves)
        return await self._publish()

    async def give_up(self, reason: str) -> ScoreFile:
        """Commits every open sample with reward 0 and ``reason``: the candidate itself cannot be served."""
        for number, wave in self._open_waves().items():
            rows = [(_zero(self._pairs[index], reason), _zero_step(self._pairs[index], reason)) for index in wave]
            self._folder.commit(Wave(number, 0.0, tuple((row, (step,)) for row, step in rows)))
        return await self._publish()

    async def _publish(self) -> ScoreFile:
        subject = self._subject
        return await asyncio.to_thread(
            self._folder.publish,
            candidate=subject.candidate,
            eval_id=subject.eval,
            problems=self._split.problems,
            reproducible=self._rules.engine.kind == "transformers",
        )

    def _open_waves(self) -> dict[int, range]:
        """The waves that are not committed, as ranges of indices into the pairs."""
        width, total = self._rules.engine.wave, len(self._pairs)
        waves = {k: range(k * width, min((k + 1) * width, total)) for k in range(-(-total // width))}
        committed = self._folder.committed()
        return {number: wave for number, wave in waves.items() if number not in committed}

    async def _run_waves(self, waves: dict[int, range]) -> None:
        """The model loads while the first sandboxes start; each later wave has some started ahead."""
        order = list(waves.items())
        loading = asyncio.create_task(self._bench.engine.load(self._subject.model))
        try:
            self._prepare(order[0][1])
            await loading
            for (number, wave), following in zip(order, [*(w for _, w in order[1:]), range(0)], strict=True):
                started = time.monotonic()
                outcomes = await self._run_wave(wave, following[:AHEAD])
                sessions = tuple((outcome.row, outcome.steps) for outcome in outcomes)
                self._folder.commit(Wave(number, time.monotonic() - started, sessions))
        finally:
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
            await self._drop_ahead()

    async def _run_wave(self, wave: range, following: range) -> list[Outcome]:
        """All sessions of the wave at once; in the order of the pairs."""
        self._prepare(wave)
        async with self._sessions(wave) as sessions:
            half = len(sessions) // 2
            plays = [asyncio.create_task(session.play()) for session in sessions]
            try:
                for ended, play in enumerate(asyncio.as_completed(plays), start=1):
                    self._note(await play)
                    if ended > half:
                        self._prepare(following)
                return [play.result() for play in plays]
            finally:
                await _cancel(plays)

    @asynccontextmanager
    async def _sessions(self, wave: range) -> AsyncIterator[list[Session]]:
        """Prepared sessions that the engine knows, all in one message; closed and forgotten at the end."""
        sessions = [await self._ahead[index] for index in wave]
        keys = [session.key for session in sessions]
        for index in wave:
            del self._ahead[index]
        try:
            await self._bench.engine.sessions(keys, ())
            try:
                yield sessions
            except BaseException:
                with suppress(EngineError):
                    await self._bench.engine.sessions((), keys)
                raise
        finally:
            await asyncio.gather(*(session.close() for session in sessions))

    def _prepare(self, wave: range) -> None:
        for index in wave:
            if index not in self._ahead:
                self._ahead[index] = asyncio.create_task(self._prepared(index))

    async def _prepared(self, index: int) -> Session:
        problem, sample = self._pairs[index]
        async with self._spawns:
            session = Session(self._ground, f"{index:06d}", await self._split.public(problem), sample)
            try:
                await session.prepare()
            except BaseException:
                await session.close()
                raise
            return session

    async def _drop_ahead(self) -> None:
        tasks, self._ahead = list(self._ahead.values()), {}
        await _cancel(tasks)
        ready = [task.result() for task in tasks if not task.cancelled() and task.exception() is None]
        await asyncio.gather(*(session.close() for session in ready))

    def _note(self, outcome: Outcome) -> None:
        """Progress, and each kind of attempt once per evaluation."""
        self._tally.done += 1
        for attempt in outcome.attempts:
            if not self._tally.attempts[attempt]:
                self._on_attempt(attempt, f"{self._subject.candidate} {outcome.row.problem}")
        self._tally.attempts.update(outcome.attempts)
        self._report()

    def _report(self) -> None:
        self._on_progress(self._tally.done, len(self._pairs))


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _zero(pair: Pair, reason: str) -> ProblemRow:
    return ProblemRow(
        problem=pair[0],
        sample=pair[1],
        reward=0.0,
        reason=reason,
        calls=0,
        parse_errors=0,
        tokens_in=0,
        tokens_out=0,
        seconds=0.0,
    )


def _zero_step(pair: Pair, reason: str) -> TrajectoryStep:
    return TrajectoryStep(problem=pair[0], sample=pair[1], step=0, kind="end", reason=reason, reward=0.0)
