"""``python -m runner.research.llm.process``: the LLM gateway, the only process that holds a key.

Reads its setup from stdin, says what happens on stdout, ends with its stdin. It makes no core file, cannot be read by
other processes of the user, and prints no trace: a trace could hold what it must not.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from isolation.problem import BenchError
from runner.research.llm.account import Account, Book, totals
from runner.research.llm.protocol import Elsewhere, Failed, Notice, Price, Ready, Said, Setup
from runner.research.llm.server import DoorServer
from runner.research.llm.upstream import Client

LINE_BYTES = 4 << 20
_PR_SET_DUMPABLE = 4


def seal() -> None:
    """No core file, and /proc/<pid>/environ and memory closed to the user's other processes; no trace and no log."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    logging.disable(logging.CRITICAL)
    sys.excepthook = lambda kind, _value, _trace: _mention(kind)
    sys.unraisablehook = lambda unraisable: _mention(unraisable.exc_type)


def _mention(kind: type[BaseException] | None) -> None:
    """All that is said of a fault. What an exception says of itself may hold a request's headers."""
    sys.stderr.write(f"LLM gateway: {kind.__name__ if kind else 'fault'}\n")


def quiet(loop: asyncio.AbstractEventLoop) -> None:
    """The same for what goes wrong in tasks and callbacks of ``loop``."""

    def mention(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        _mention(type(context["exception"]) if "exception" in context else None)

    loop.set_exception_handler(mention)


def say(message: Said) -> None:
    """One line to the runner; a runner that is gone ends us by our stdin."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.write(message.model_dump_json() + "\n")
        sys.stdout.flush()


async def serve(setup: Setup, lines: asyncio.StreamReader) -> None:
    """Open every door, until the end of ``lines``."""
    book = Book(Path(setup.log))
    prices = {door.role: door.price for door in setup.doors}
    lost = book.settle(lambda begun: prices.get(begun.role, Price()))
    if lost:
        what = f"{lost} LLM calls were cut by a crash"
        say(Notice(level="warning", what=what, where="LLM gateway", detail="charged what they had passed"))
    before = totals(Path(setup.log))
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(book.close)
        accounts = [Account(door, book, before.get(door.role), say) for door in setup.doors]
        for account in accounts:  # before a door opens: a client may be there already
            account.peers = tuple(other for other in accounts if other is not account)
            account.elsewhere = setup.elsewhere
        for door, account in zip(setup.doors, accounts, strict=True):
            client = Client(door.upstream)
            stack.push_async_callback(client.close)
            server = DoorServer(door, client, account, say)
            await server.start()
            stack.push_async_callback(server.close)
            say(account.totals)
        say(Ready())
        while line := await lines.readline():
            spent = Elsewhere.model_validate_json(line).money
            for account in accounts:
                account.elsewhere = spent


async def main() -> int:
    """The process, start to end; the exit code."""
    loop = asyncio.get_running_loop()
    quiet(loop)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, lambda: None)  # the runner decides when we end
    lines = asyncio.StreamReader(limit=LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    try:
        await serve(Setup.model_validate_json(await lines.readline()), lines)
    except BenchError as error:
        say(Failed(what=error.what, where=error.where, do=error.do))
        return 1
    except (ValidationError, OSError) as error:
        say(Failed(what=f"{type(error).__name__}", where="LLM gateway", do="Report this"))
        return 1
    return 0


if __name__ == "__main__":
    seal()
    sys.exit(asyncio.run(main()))
