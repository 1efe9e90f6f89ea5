"""The desk: the unix socket at which `vibe` asks. All that arrives is hostile; what is read of it is bounded.

A connection carries one request: a JSON line of at most 64 KiB (``sample`` adds bounded lines with its prompts). The
answer is one line, before it the job id and progress for a client that waits. A job is the desk's, not the client's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from grader.request import ROLES
from grader.strict import LineReader, StrictError, parse_object
from isolation.clean import clean_line
from runner.record.events import Integrity
from runner.research.answers import encode, with_time
from runner.research.candidate import Registry
from runner.research.jobs import Job, Jobs, Refusal
from runner.research.lab import Lab
from runner.research.verbs import (
    ORDER,
    CancelJob,
    Finish,
    History,
    Order,
    Sample,
    Select,
    Status,
    Train,
    Validate,
    Verbs,
    Wait,
)

LINE_BYTES = 64 << 10
PROMPTS_BYTES = 8 << 20
PROMPT_ROWS = 10_000
MAX_CLIENTS = 64
_FIRST_LINE_S = 10.0
_UPLOAD_S = 60.0
_WRITE_S = 10.0
_PROGRESS_S = 1.0
_NOTICE_S = 60.0


class Malformed(Exception):
    """The client is none of ours, or is attacking: refused, and an integrity event says so."""


class Desk:
    """Serves the agent's requests until it is closed. ``finished`` is set by `vibe finish` or by a crash of ours."""

    def __init__(self, lab: Lab, registry: Registry) -> None:
        self.finished = asyncio.Event()
        self.jobs = Jobs(lab, lambda: registry.next_id("j", 3), self.finished.set)
        self._lab = lab
        self._registry = registry
        self._verbs = Verbs(lab, registry, self.jobs, self.finished.set)
        self._server: asyncio.Server | None = None
        self._socket: Path | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._uploading = False
        self._notices: Counter[str] = Counter()
        self._noticed_at: dict[str, float] = {}

    @property
    def selected(self) -> str | None:
        """The agent's last choice."""
        return self._registry.selected

    async def serve(self, socket_dir: Path) -> None:
        """Listen at ``socket_dir``/desk.sock; returns at once. The folder is private and mounted read-only inside."""
        path = socket_dir / "desk.sock"
        path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._accept, path, limit=LINE_BYTES, backlog=128)
        path.chmod(0o600)
        self._socket = path

    async def close(self, deadline: bool = False) -> None:
        """End the research phase: queue emptied, training and sampling cut, a running validation awaited (late), all
        connections closed. ``deadline``: the budget's end, else `vibe finish` or the agent's own end.

        Raises what broke inside a job, if it was the runner's own error.
        """
        self.jobs.closing = True
        if self._server is not None:
            self._server.close()
        if self._socket is not None:
            self._socket.unlink(missing_ok=True)  # nothing to connect to is left when the hidden test begins
        await self.jobs.close("the budget is used up" if deadline else "the research phase has ended")
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        for what, count in self._notices.items():
            self._lab.journal.append(Integrity(what=what, where="desk", detail=f"{count} more"))
        self._notices.clear()
        if self.jobs.crash is not None:
            raise self.jobs.crash

    # -- connections

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._clients) >= MAX_CLIENTS:
            self._notice("connection flood", f"more than {MAX_CLIENTS} clients")
            writer.write(encode({"type": "answer", "ok": False, "text": "too many clients at once: end some of them"}))
            writer.close()
            return
        self._clients.add(task)
        try:
            with contextlib.suppress(ConnectionError, TimeoutError):
                await self._converse(reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        finally:
            try:
                await _hang_up(writer)
            finally:
                self._clients.discard(task)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = LineReader(reader, LINE_BYTES)
        try:
            order = await self._order(lines)
            if order is None:
                return
            answer = await self._do(order, lines, reader, writer)
        except Malformed as bad:
            self._notice("malformed request", str(bad))
            answer = {"ok": False, "text": f"not a request: {bad}. Use the `vibe` command"}
        except Refusal as refusal:
            answer = {"ok": False, "text": refusal.line, **refusal.more}
        if answer is not None:
            await self._send(writer, with_time(answer, self._lab.budget.left(), self._lab.budget.deadline))

    async def _order(self, lines: LineReader) -> Order | None:
        """The request of a connection; None when the client left without one."""
        async with asyncio.timeout(_FIRST_LINE_S):
            fields = await _object(lines)
        if fields is None:
            return None
        try:
            return ORDER.validate_python(fields)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            raise Malformed(clean_line(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", 200)) from None

    async def _do(
        self, order: Order, lines: LineReader, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> dict[str, Any] | None:
        """Carry out a request; None when the client left while its job goes on."""
        match order:
            case Status():
                return self._verbs.status()
            case History():
                return self._verbs.history()
            case Select(candidate=candidate):
                if self.jobs.closing:
                    raise Refusal("the research phase is over: the selection stands")
                return self._verbs.select(candidate)
            case Finish():
                return self._verbs.finish()
            case CancelJob(job=job):
                return self._verbs.cancel(job)
            case Wait(job=job):
                return await self._watch(self._verbs.job(job), reader, writer)
            case Train() | Validate() | Sample():
                return await self._start(order, lines, reader, writer)

    async def _start(
        self,
        order: Train | Validate | Sample,
        lines: LineReader,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> dict[str, Any] | None:
        match order:
            case Train():
                job = self._verbs.train(order)
            case Validate():
                job = self._verbs.validate(order)
            case Sample():
                self.jobs.check_room()
                job = self._verbs.sample(order, await self._upload(lines))
        behind = f", after {job.after.id}" if job.after else ""
        await self._send(writer, {"type": "job", "job": job.id, "verb": job.verb, "text": f"{job.id}{behind}"})
        if order.detach:
            return {"ok": True, "job": job.id, "text": f"{job.id} goes on: vibe wait {job.id}"}
        return await self._watch(job, reader, writer)

    async def _watch(
        self, job: Job, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> dict[str, Any] | None:
        """Tell a client how its job gets on, then the answer; None when the client left."""
        ending = asyncio.create_task(job.done.wait())
        leaving = asyncio.create_task(reader.read(1))  # a waiting client says nothing: data or EOF ends it
        said = ""
        try:
            with self.jobs.watching(job):
                while not ending.done():
                    if job.note != said:
                        said = job.note
                        text = f"{job.id} {job.verb}: {said}"
                        await self._send(writer, {"type": "progress", "job": job.id, "text": text})
                    await asyncio.wait({ending, leaving}, timeout=_PROGRESS_S, return_when=asyncio.FIRST_COMPLETED)
                    if leaving.done() and not ending.done():
                        return None
            return {"job": job.id, **job.answer}
        finally:
            for task in (ending, leaving):
                task.cancel()
            await asyncio.gather(ending, leaving, return_exceptions=True)

    async def _upload(self, lines: LineReader) -> list[bytes]:
        """The prompts of a sample request, checked and written anew; one upload at a time."""
        if self._uploading:
            raise Refusal("another client is sending prompts: try again in a minute")
        self._uploading = True
        try:
            async with asyncio.timeout(_UPLOAD_S):
                return await _prompts(lines)
        finally:
            self._uploading = False

    async def _send(self, writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        """One line to a client; one that does not read for too long is left."""
        writer.write(encode(message))
        async with asyncio.timeout(_WRITE_S):
            await writer.drain()

    def _notice(self, what: str, detail: str) -> None:
        """An integrity event; a flood of one kind becomes one event a minute with a count."""
        now = asyncio.get_running_loop().time()
        if now - self._noticed_at.get(what, -_NOTICE_S) < _NOTICE_S:
            self._notices[what] += 1
            return
        self._noticed_at[what] = now
        more = self._notices.pop(what, 0)
        self._lab.journal.append(
            Integrity(what=what, where="desk", detail=f"{detail} ({more} more before)" if more else detail)
        )


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    """Close, and see it closed: a client that does not read what it asked for would keep it, and a descriptor."""
    try:
        writer.close()
        async with asyncio.timeout(_WRITE_S):
            await writer.wait_closed()
    except (ConnectionError, TimeoutError):
        pass
    finally:
        writer.transport.abort()


async def _object(lines: LineReader) -> dict[str, Any] | None:
    """The next line as a JSON object; None at the end of the stream."""
    try:
        line = await lines.line()
        return None if line is None else parse_object(line, max_depth=8)
    except StrictError as error:
        raise Malformed(str(error)) from None


async def _prompts(lines: LineReader) -> list[bytes]:
    prompts: list[bytes] = []
    size = 0
    while True:
        fields = await _object(lines)
        if fields is None:
            raise Malformed("the prompts ended early")
        if fields.get("end") is True:
            break
        prompts.append(prompt_row(fields.get("row"), len(prompts) + 1))
        size += len(prompts[-1])
        if size > PROMPTS_BYTES or len(prompts) > PROMPT_ROWS:
            raise Refusal(f"more than {PROMPTS_BYTES >> 20} MiB or {PROMPT_ROWS} prompts at once: split the file")
    if not prompts:
        raise Refusal('no prompts: write one {"prompt": "..."} per line')
    return prompts


def prompt_row(row: Any, number: int) -> bytes:
    """A prompt as the grader reads it: only the keys it knows, of the types it knows. Raises Refusal."""
    if isinstance(row, dict):
        text, messages = row.get("prompt"), row.get("messages")
        if isinstance(text, str) and text and messages is None:
            return json.dumps({"prompt": text}).encode()
        if text is None and isinstance(messages, list) and messages and all(map(_is_message, messages)):
            kept = [{"role": one["role"], "content": one["content"]} for one in messages]
            return json.dumps({"messages": kept}).encode()
    raise Refusal(f'prompt {number}: write {{"prompt": "..."}} or {{"messages": [{{"role": ..., "content": ...}}]}}')


def _is_message(one: Any) -> bool:
    if not isinstance(one, dict):
        return False
    role, content = one.get("role"), one.get("content")
    return isinstance(role, str) and role in ROLES and isinstance(content, str)
