"""A person's terminal, carried to and from a sandbox as bytes: no descriptor of it is ever inside.

Where stdin is no terminal (a file, a pipe), its bytes are typed and then its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import termios
import tty
from collections.abc import Iterator

from isolation.sandbox import Sandbox
from runner.research.train import CappedLog

_BLOCK = 1 << 16


def size() -> tuple[int, int, str]:
    """Columns, lines and kind of the terminal."""
    columns, lines = shutil.get_terminal_size()
    return columns, lines, os.environ.get("TERM", "dumb")


@contextlib.contextmanager
def _every_key(descriptor: int) -> Iterator[None]:
    """Keys come one by one and unseen, Ctrl-C among them; lines that we print still begin at the left."""
    if not os.isatty(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor, termios.TCSADRAIN)
        now = termios.tcgetattr(descriptor)
        now[1] |= termios.OPOST | termios.ONLCR
        termios.tcsetattr(descriptor, termios.TCSADRAIN, now)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


async def attend(running: Sandbox, log: CappedLog) -> None:
    """Connect our stdin and stdout with a sandbox's until it closes its stdout. What it shows is logged."""
    assert running.stdin is not None and running.stdout is not None
    with _every_key(0):
        typing = asyncio.create_task(_type(running.stdin))
        try:
            while shown := await running.stdout.read(_BLOCK):
                log.write(shown)
                sys.stdout.write(shown.decode("utf-8", "replace"))
                sys.stdout.flush()
        finally:
            typing.cancel()
            await asyncio.gather(typing, return_exceptions=True)


async def _type(sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while typed := await _read(0):
            sink.write(typed)
            await sink.drain()
        sink.close()


async def _read(descriptor: int) -> bytes:
    """What is there to read, or nothing at its end; a plain file is always ready."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_reader(descriptor, _settle, ready)
    except PermissionError:
        return os.read(descriptor, _BLOCK)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, _BLOCK)


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
