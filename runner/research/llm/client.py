"""The LLM gateway as the runner knows it: a child process, started again when it dies, whose file is the account.

The runner never holds a key: it hands on the one variable that the configuration names, or nothing.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from runner.config import ConfigError
from runner.research.llm.account import Book, totals
from runner.research.llm.protocol import SAID, Door, Elsewhere, Failed, Notice, Price, Ready, Said, Setup, Totals
from runner.research.llm.upstream import LlmError

CLOSE_S = 20.0
RESTARTS = 5
_PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")

OnNotice = Callable[[Notice], None]
OnTotals = Callable[[Totals], None]


class LlmGateway:
    """A running gateway. ``on_totals`` hears each role's absolute figures, so that nothing counts twice."""

    def __init__(self, doors: tuple[Door, ...], rows: Path, log: Path, on_notice: OnNotice, on_totals: OnTotals):
        """``rows`` is llm.jsonl, ``log`` takes what the process writes to its stderr."""
        self._doors = doors
        self._rows = rows
        self._log = log
        self._on_notice = on_notice
        self._on_totals = on_totals
        self._process: Process | None = None
        self._living: asyncio.Task[None] | None = None
        self._closing = False
        self._elsewhere = 0.0

    async def start(self) -> None:
        """Spawn it; its sockets are there when this returns. Raises ConfigError for a key that is not there."""
        await self._spawn()
        self._living = asyncio.create_task(self._live())

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def elsewhere(self, money: float) -> None:
        """Tell it, and those that are started after it, what the run spent elsewhere: it counts towards the limit."""
        self._elsewhere = money
        process = self._process
        if process is not None and process.returncode is None and process.stdin is not None:
            process.stdin.write(Elsewhere(money=money).model_dump_json().encode() + b"\n")

    async def close(self) -> None:
        """End it; what it used is on the disk and told when this returns, however it ended."""
        self._closing = True
        process = self._process
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()
            try:
                async with asyncio.timeout(CLOSE_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        if self._living is not None:
            await asyncio.gather(self._living, return_exceptions=True)
        prices = {door.role: door.price for door in self._doors}
        book = Book(self._rows)
        book.settle(lambda begun: prices.get(begun.role, Price()))
        book.close()
        told = totals(self._rows)
        for door in self._doors:
            if door.role in told:
                self._on_totals(told[door.role])

    async def _spawn(self) -> None:
        named = {door.upstream.key_env for door in self._doors} - {None}
        env = {name: os.environ[name] for name in (*_PASSED_ON, *map(str, named)) if name in os.environ}
        with self._log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "runner.research.llm.process",
                stdin=PIPE, stdout=PIPE, stderr=log, env=env, start_new_session=True, limit=1 << 20,
            )  # fmt: skip
        self._process = process
        assert process.stdin is not None
        setup = Setup(doors=self._doors, log=str(self._rows), elsewhere=self._elsewhere)
        process.stdin.write(setup.model_dump_json().encode() + b"\n")
        while True:
            match await self._next(process):
                case Ready():
                    return
                case Failed(what=what, where=where, do=do):
                    await process.wait()
                    raise ConfigError(what, where=where, do=do)
                case None:
                    await process.wait()
                    raise LlmError("the LLM gateway died at its start", where=str(self._log), do="Its log says why")

    async def _next(self, process: Process) -> Said | None:
        """Its next message, told to whom it concerns; None when it has ended."""
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line:
            return None
        said = SAID.validate_json(line)
        if isinstance(said, Notice):
            self._on_notice(said)
        elif isinstance(said, Totals):
            self._on_totals(said)
        return said

    async def _live(self) -> None:
        """Listen for as long as it lives; start it again when it dies."""
        for restarts in range(RESTARTS + 1):
            await self._listen()
            if self._closing:
                return
            if restarts == RESTARTS:
                break
            notice = Notice(level="warning", what="the LLM gateway died", where="LLM gateway", detail="started again")
            self._on_notice(notice)
            try:
                await self._spawn()
            except LlmError:
                continue  # it died again at once: that counts
            except ConfigError:
                break
            if self._closing and self._process is not None and self._process.stdin is not None:
                self._process.stdin.close()  # closed while it was being started again
        self._on_notice(Notice(level="warning", what="the LLM gateway is gone for good", where="LLM gateway"))

    async def _listen(self) -> None:
        process = self._process
        assert process is not None
        try:
            while await self._next(process) is not None:
                continue
        except (ValueError, ValidationError):
            process.kill()
        await process.wait()
