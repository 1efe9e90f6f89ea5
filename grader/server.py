"""The grader's process: ``python -P -m grader.server``. JSON lines on stdin and stdout, one request at a time.

It ends, and everything it started with it, when its stdin ends, when its parent dies, or on ``shutdown``. Nothing but
protocol is written to stdout: whatever else prints goes to stderr, which is the log.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Self

from pydantic import TypeAdapter, ValidationError

from grader.errors import GraderError, ProblemsError
from grader.protocol import (
    Cancel,
    Evaluate,
    Gate,
    Generate,
    GraderSetup,
    HiddenTest,
    Noticed,
    Progress,
    Reply,
    Request,
    Rest,
    Scan,
    Shutdown,
)
from grader.service import Service
from grader.strict import LineReader, StrictError
from isolation.problem import BenchError
from isolation.sandbox import use_pidfd_children
from tasks.spec import Frozen, TaskError

PROGRESS_S = 0.25
MAX_LINE = 4 << 20
_PR_SET_PDEATHSIG = 1
_REQUEST: TypeAdapter[Request] = TypeAdapter(Request)


class Server:
    """Reads requests, answers each exactly once. ``write`` takes one line without its end."""

    def __init__(
        self,
        write: Callable[[str], None],
        service: Callable[[GraderSetup, Callable[[Noticed], None]], Service] = Service,
    ) -> None:
        self._write = write
        self._make_service = service
        self._service: Service | None = None
        self._one = asyncio.Lock()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ended = asyncio.Event()

    async def serve(self, stdin: asyncio.StreamReader) -> None:
        """Until stdin ends or a shutdown; then nothing of this grader is left."""
        reading = asyncio.create_task(self._read(stdin))
        ended = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait({reading, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            reading.cancel()
            ended.cancel()
            await self._stop()

    def end(self) -> None:
        """Lets :meth:`serve` return."""
        self._ended.set()

    async def _read(self, stdin: asyncio.StreamReader) -> None:
        lines = LineReader(stdin, MAX_LINE)
        while True:
            try:
                line = await lines.line()
            except StrictError:
                return
            if line is None:
                return
            try:
                request = _REQUEST.validate_json(line)
            except ValidationError as error:
                _log(f"a request that is none: {error.errors()[0]['type']}")
                continue
            self._take(request)

    def _take(self, request: Request) -> None:
        if isinstance(request, Cancel):
            self._cancel(request)
        elif request.id in self._tasks:
            self._send(Reply(id=request.id, ok=False, error="this id is in use"))
        else:
            task = asyncio.create_task(self._answer(request))
            self._tasks[request.id] = task
            task.add_done_callback(lambda task: self._done(request.id, task))

    def _done(self, request: str, task: asyncio.Task[None]) -> None:
        """A task that was cancelled before its first step had no chance to answer."""
        self._tasks.pop(request, None)
        if task.cancelled():
            self._send(Reply(id=request, ok=False, cancelled=True, error="cancelled"))

    def _cancel(self, request: Cancel) -> None:
        task = self._tasks.get(request.target)
        if task is not None:
            _cancel_once(task)
        self._send(Reply(id=request.id, ok=True, result={"found": task is not None}))

    async def _answer(self, request: Request) -> None:
        """One reply, whatever happens; an error that nobody foresaw goes to the log with its traceback."""
        try:
            if isinstance(request, Shutdown):
                await self._stop()
                self._send(Reply(id=request.id, ok=True))
                self._ended.set()
                return
            async with self._one:
                result = await self._do(request)
            self._send(Reply(id=request.id, ok=True, result=result))
        except asyncio.CancelledError:
            self._send(Reply(id=request.id, ok=False, cancelled=True, error="cancelled"))
        except (BenchError, TaskError) as error:
            of_files = isinstance(error, ProblemsError | TaskError)
            self._send(Reply(id=request.id, ok=False, error=str(error), fault="problems" if of_files else ""))
        except Exception as error:
            _log(traceback.format_exc())
            self._send(Reply(id=request.id, ok=False, error=f"the grader failed: {type(error).__name__}: {error}"))

    async def _do(self, request: Request) -> dict[str, Any]:
        if isinstance(request, GraderSetup):
            return await self._setup(request)
        service = self._service
        if service is None:
            raise GraderError("setup comes first", where=request.op)
        with Reporter(request.id, self._send) as reporter:
            match request:
                case Evaluate():
                    return _fields(await service.evaluate(request, reporter))
                case Generate():
                    return await service.sample(request, reporter)
                case Gate():
                    return _fields(await service.gate(request))
                case Scan():
                    return _fields(await service.scan(request))
                case HiddenTest():
                    return _fields(await service.hidden(request, reporter))
                case Rest():
                    await (service.sleep() if request.op == "sleep" else service.wake())
                    return {}
                case _:
                    raise GraderError("not a request for here", where=request.op)

    async def _setup(self, request: GraderSetup) -> dict[str, Any]:
        if self._service is not None:
            raise GraderError("setup was done already", where="setup")
        service = self._make_service(request, self._send)
        result = await service.start()
        self._service = service
        return _fields(result)

    async def _stop(self) -> None:
        """Cancels what runs, lets it clean up, then ends the service."""
        tasks = [task for task in self._tasks.values() if task is not asyncio.current_task()]
        for task in tasks:
            _cancel_once(task)
        await asyncio.gather(*tasks, return_exceptions=True)
        service, self._service = self._service, None
        if service is not None:
            await service.close()

    def _send(self, message: Frozen) -> None:
        self._write(message.model_dump_json())


class Reporter:
    """Progress lines of one request, at most four a second; the newest is told when its turn comes, the last at once.

    A context: nothing is sent once it is left, so no progress follows a reply.
    """

    def __init__(self, request: str, send: Callable[[Frozen], None]) -> None:
        self._request = request
        self._send = send
        self._note: str | None = None
        self._next = 0.0
        self._held: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()

    def __call__(self, done: int, total: int, note: str = "") -> None:
        self._drop()
        progress = Progress(id=self._request, done=done, total=total, note=note)
        wait = self._next - time.monotonic()
        if done == total or note != self._note or wait <= 0:
            self._tell(progress)
        else:
            self._held = asyncio.get_running_loop().call_later(wait, self._tell, progress)

    def _tell(self, progress: Progress) -> None:
        self._next, self._note = time.monotonic() + PROGRESS_S, progress.note
        self._send(progress)

    def _drop(self) -> None:
        if self._held is not None:
            self._held.cancel()


def _cancel_once(task: asyncio.Task[None]) -> None:
    """A second cancel would cut the cleaning up of the first, and leave processes behind."""
    if not task.cancelling():
        task.cancel()


def _fields(result: Frozen) -> dict[str, Any]:
    return result.model_dump(mode="json")


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _guarded_stdout() -> int:
    """A descriptor for the protocol alone; what anyone prints from now on goes to stderr."""
    protocol = os.dup(1)
    os.set_inheritable(protocol, False)
    os.dup2(2, 1)
    return protocol


def _die_with_parent() -> None:
    """SIGTERM at the parent's death: an orderly end. Should we be killed, the sandboxes have the same bond to us."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise GraderError("cannot bind my life to my parent's", where="prctl")


def _more_files() -> None:
    """A wave holds up to a dozen descriptors a session."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _writer(fd: int) -> Callable[[str], None]:
    """Writes whole lines; a reader that is gone ends the grader by its stdin, not by an exception here."""

    def write(line: str) -> None:
        data = memoryview(line.encode() + b"\n")
        while data:
            try:
                data = data[os.write(fd, data) :]
            except BrokenPipeError:
                return

    return write


async def _serve(protocol: int) -> None:
    loop = asyncio.get_running_loop()
    stdin = asyncio.StreamReader(limit=1 << 16)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    server = Server(_writer(protocol))
    loop.add_signal_handler(signal.SIGTERM, server.end)
    await server.serve(stdin)


def main() -> None:
    """The process entry."""
    protocol = _guarded_stdout()
    _die_with_parent()
    _more_files()
    use_pidfd_children()
    asyncio.run(_serve(protocol))


if __name__ == "__main__":
    main()
