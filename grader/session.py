"""One problem, one sample: a harness in a sandbox of its own, from ``task.get`` to its verdict.

Everything a harness says is hostile. Whatever it does ends as data (an answer, or a reason for 0); only a failure of
the engine, the vault or the walls is an error, and then the evaluation has no score.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.engines.base import Engine
from grader.gateway import Gateway
from grader.protocol import ProblemRow, TrajectoryStep
from grader.strict import LineReader, StrictError, parse_object, shorten
from isolation import sandbox
from isolation.clean import clean
from isolation.spec import Limits, Mount, SandboxSpec
from tasks.spec import Decoding, ProblemLimits, Public, Verdict

HARNESS = "/harness"
SOCKET_DIR = "/run/vibe"
SOCKET_NAME = "model.sock"
MAX_MESSAGES = 1000
LINE_BUFFER = 1 << 16
LOG_KEPT = 4096
LOG_S = 2.0
LOG_MOST = 4 << 20
ANSWER_KEPT = 64 << 10
NO_ENVIRONMENT = {"error": "this task has no environment"}
MEMORY = 2 << 30


@dataclass(frozen=True, slots=True)
class Ground:
    """What all sessions of an evaluation share. ``python`` is the model environment's interpreter."""

    engine: Engine
    judge: Callable[[str, str], Awaitable[Verdict]]
    harness_dir: Path
    python: Path
    mounts: tuple[Mount, ...]
    runtime_dir: Path
    decoding: Decoding
    limits: ProblemLimits
    seed: Callable[[str, int, int], int]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A session that ended: its row, its trajectory, and what it tried that it may not."""

    row: ProblemRow
    steps: tuple[TrajectoryStep, ...]
    attempts: Counter[str]


@dataclass(frozen=True, slots=True)
class End:
    """Why a session ended: an ``answer`` to judge, or the ``reason`` for 0 with a ``note`` of ours for the log."""

    reason: str = ""
    answer: str | None = None
    note: str = ""


class Session:
    """Prepared (the sandbox is up and waits for the answer to ``task.get``), then played once."""

    def __init__(self, ground: Ground, key: str, public: Public, sample: int) -> None:
        self.key = key
        self._ground = ground
        self._public = public
        self._sample = sample
        self._folder = ground.runtime_dir / key
        self._sandbox: sandbox.Sandbox | None = None
        self._gateway: Gateway | None = None
        self._stderr: asyncio.Task[None] | None = None
        self._log = bytearray()
        self._flood: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        self._odd = 0

    async def prepare(self) -> None:
        """The socket, then the sandbox. Raises SandboxError; the caller closes the session in any case."""
        ground = self._ground
        self._folder.mkdir(mode=0o700, parents=True)
        self._gateway = Gateway(
            engine=ground.engine,
            session=self.key,
            socket=self._folder / SOCKET_NAME,
            decoding=ground.decoding,
            limits=ground.limits,
            seed=lambda call: ground.seed(self._public.id, self._sample, call),
        )
        await self._gateway.start()
        pipe = asyncio.subprocess.PIPE
        start = sandbox.start(self._spec(), stdin=pipe, stdout=pipe, stderr=pipe, line_limit=LINE_BUFFER)
        self._sandbox = await _whole(start)
        self._stderr = asyncio.create_task(self._keep_log())

    def _spec(self) -> SandboxSpec:
        ground = self._ground
        own = (Mount(ground.harness_dir, HARNESS), Mount(self._folder, SOCKET_DIR))
        return SandboxSpec(
            profile="harness",
            # -s: no user site; -B: the folder is read-only; -u: a line that is printed is sent.
            argv=(str(ground.python), "-s", "-B", "-u", f"{HARNESS}/main.py"),
            mounts=(*ground.mounts, *own),
            env={"VIBE_MODEL_SOCKET": f"{SOCKET_DIR}/{SOCKET_NAME}"},
            cwd=HARNESS,
            limits=Limits(memory=MEMORY, cpu_seconds=int(ground.limits.wall_s) + 30),
        )

    async def play(self) -> Outcome:
        """The session, start to verdict; the engine must have been told that it is open.

        Raises EngineError or GraderError when it was not the harness that failed.
        """
        assert self._gateway is not None
        started = time.monotonic()
        self._gateway.open()
        end = await self._until_end()
        await asyncio.gather(self._kill(), self._leave())
        if self._stderr is not None:
            await asyncio.wait({self._stderr}, timeout=LOG_S)
        verdict = await self._verdict(end)
        return self._outcome(end, verdict, time.monotonic() - started)

    async def close(self) -> None:
        """Whatever is left: process, socket, folder. Safe at any time, and twice."""
        await self._kill()
        if self._gateway is not None:
            await self._gateway.close()
        if self._stderr is not None:
            self._stderr.cancel()
        self._flood.cancel()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _kill(self) -> None:
        """Ends the sandbox; what it still had to say is read, or asyncio would wait for its pipes for ever."""
        if self._sandbox is None:
            return
        assert self._sandbox.stdout is not None
        rest = asyncio.create_task(_discard(self._sandbox.stdout))
        try:
            await self._sandbox.kill()
        finally:
            rest.cancel()

    async def _leave(self) -> None:
        """Out of the round: after a pending call, so that an exit never changes what the round holds."""
        assert self._gateway is not None
        await self._gateway.settle()
        await self._ground.engine.sessions((), (self.key,))

    async def _until_end(self) -> End:
        """The first of: the harness is done, a clock ran out, a flood; a failure of the engine is raised."""
        assert self._gateway is not None
        channel = asyncio.create_task(self._channel())
        clock = asyncio.create_task(self._clock())
        failure = self._gateway.failure
        try:
            ways: set[asyncio.Future[Any]] = {channel, clock, self._flood, failure}
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            if failure.done():
                failure.result()
            return next(done.result() for done in (channel, self._flood, clock) if done.done())
        finally:
            channel.cancel()
            clock.cancel()
            await asyncio.gather(channel, clock, return_exceptions=True)

    async def _clock(self) -> End:
        """Ends when the harness was silent too long, or used all its time; stands while its request is pending."""
        assert self._gateway is not None
        clock = self._gateway.clock
        while True:
            clock.changed.clear()
            left = clock.left()
            if left is not None and left <= 0:
                return End("timeout", note="no model call and no answer in time")
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await clock.changed.wait()

    async def _channel(self) -> End:
        """JSON lines on the sandbox's stdout, each answered on its stdin."""
        assert self._sandbox is not None and self._sandbox.stdout is not None
        lines = LineReader(self._sandbox.stdout)
        for _ in range(MAX_MESSAGES):
            try:
                line = await lines.line()
                if line is None:
                    return await self._exited()
                message = parse_object(line)
            except StrictError as error:
                return End("bad_message", note=f"a line on stdout is no message: {error}")
            if message.get("op") == "finish" and isinstance(message.get("answer"), str):
                return self._finished(message["answer"])
            await self._send(self._obey(message))
        return End("bad_message", note=f"more than {MAX_MESSAGES} messages")

    def _obey(self, message: dict[str, Any]) -> dict[str, Any]:
        match message.get("op"):
            case "task.get":
                return {
                    "instruction": self._public.instruction,
                    "tools": list(self._public.tools),
                    "limits": {**self._ground.limits.model_dump(), "max_tokens": self._ground.decoding.max_tokens},
                }
            case "env.exec" | "tool.call" | "say":
                self._odd += 1
                return NO_ENVIRONMENT
            case "finish":
                self._odd += 1
                return {"error": "finish needs an answer: a string"}
            case _:
                self._odd += 1
                return {"error": "unknown op: task.get, finish"}

    def _finished(self, answer: str) -> End:
        limit = self._ground.limits.answer_bytes
        if len(answer.encode()) > limit:
            return End("answer_too_big", note=f"the answer is larger than {limit} bytes")
        self._write({"ok": True})
        return End(answer=answer)

    def _write(self, message: dict[str, Any]) -> None:
        assert self._sandbox is not None and self._sandbox.stdin is not None
        self._sandbox.stdin.write(json.dumps(message).encode() + b"\n")

    async def _send(self, message: dict[str, Any]) -> None:
        """A harness that closed its stdin, or died, is noticed by its stdout."""
        assert self._sandbox is not None and self._sandbox.stdin is not None
        with suppress(ConnectionError):
            self._write(message)
            await self._sandbox.stdin.drain()

    async def _exited(self) -> End:
        assert self._sandbox is not None
        code = await self._sandbox.wait()
        if code == 0:
            return End("no_answer", note="exited without finish")
        death = self._sandbox.death(code)
        return End("memory" if death == "memory" else "crash", note=death)

    async def _keep_log(self) -> None:
        """The last bytes of stderr; a flood ends the session."""
        assert self._sandbox is not None and self._sandbox.stderr is not None
        seen = 0
        while chunk := await self._sandbox.stderr.read(1 << 16):
            seen += len(chunk)
            self._log += chunk
            del self._log[:-LOG_KEPT]
            if seen > LOG_MOST and not self._flood.done():
                self._flood.set_result(End("log_too_big", note=f"more than {LOG_MOST} bytes on stderr"))

    async def _verdict(self, end: End) -> Verdict:
        if end.answer is None:
            return Verdict(reward=0.0, reason=end.reason)
        return await self._ground.judge(self._public.id, end.answer)

    def _outcome(self, end: End, verdict: Verdict, seconds: float) -> Outcome:
        assert self._gateway is not None
        usage = self._gateway.usage
        row = ProblemRow(
            problem=self._public.id,
            sample=self._sample,
            reward=verdict.reward,
            reason=verdict.reason,
            calls=usage.asked,
            parse_errors=usage.refused + self._odd,
            tokens_in=usage.tokens_in,
            tokens_out=usage.tokens_out,
            seconds=round(seconds, 3),
        )
        return Outcome(row, (*self._calls(), self._last_step(end, row, len(usage.calls))), usage.attempts)

    def _calls(self) -> list[TrajectoryStep]:
        assert self._gateway is not None
        return [
            TrajectoryStep(
                problem=self._public.id,
                sample=self._sample,
                step=step,
                kind="call",
                prompt=call.prompt,
                reply=call.reply,
                finish_reason=call.finish_reason,
                tokens_in=call.tokens_in,
                tokens_out=call.tokens_out,
                seconds=round(call.seconds, 3),
                overwritten=call.overwritten,
            )
            for step, call in enumerate(self._gateway.usage.calls)
        ]

    def _last_step(self, end: End, row: ProblemRow, step: int) -> TrajectoryStep:
        log = clean(bytes(self._log).decode("utf-8", "replace"))
        return TrajectoryStep(
            problem=row.problem,
            sample=row.sample,
            step=step,
            kind="end",
            reply=shorten(end.answer or "", ANSWER_KEPT),
            reason=row.reason,
            reward=row.reward,
            seconds=row.seconds,
            log="\n".join(part for part in (log.rstrip(), end.note) if part),
        )


async def _whole(start: Coroutine[Any, Any, sandbox.Sandbox]) -> sandbox.Sandbox:
    """A start that is not cut in the middle: a cancel waits for it (milliseconds), and ends what was started."""
    task = asyncio.create_task(start)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if task.exception() is None:
            await task.result().kill()
        raise


async def _discard(stream: asyncio.StreamReader) -> None:
    while await stream.read(LINE_BUFFER):
        pass
