"""The bridge: a unix socket over TCP inside a sandbox, streams and exit code those of the command."""

from __future__ import annotations

import asyncio
import os
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import Callable
from pathlib import Path

from isolation import bwrap
from isolation.inside import bridge
from isolation.sandbox import start
from isolation.spec import Limits, Mount, SandboxSpec

CLIENT = """
import socket, sys
for size in (5, 300000):
    with socket.create_connection(("127.0.0.1", 8931), timeout=20) as s:
        s.sendall(b"x" * size); s.shutdown(socket.SHUT_WR)
        got = b""
        while block := s.recv(65536): got += block
        print(len(got), set(got))
print(sys.stdin.read())
sys.exit(7)
"""


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends back, in capitals, everything up to the end."""
    while block := await reader.read(65536):
        writer.write(block.upper())
        await writer.drain()
    writer.close()


async def test_it_forwards_both_ways_and_becomes_the_command(spec: Callable[..., SandboxSpec]) -> None:
    python = str(bwrap.base_python())
    with tempfile.TemporaryDirectory() as place:
        server = await asyncio.start_unix_server(echo, f"{place}/s")
        mounts = (
            *bwrap.python_mounts(Path(python)),
            Mount(Path(os.path.realpath(place)), "/run/vibe"),
            Mount(Path(bridge.__file__), "/opt/bridge.py"),
        )
        argv = (python, "-I", "-S", "/opt/bridge.py", "8931=/run/vibe/s", "--", python, "-I", "-S", "-c", CLIENT)
        box = await start(spec(argv, mounts=mounts, limits=Limits(pids=64)), stdin=PIPE, stdout=PIPE)
        assert box.stdin is not None and box.stdout is not None
        box.stdin.write(b"through")
        box.stdin.close()
        out = await asyncio.wait_for(box.stdout.read(), 60)
        code = await asyncio.wait_for(box.wait(), 60)
        server.close()
    assert out.decode() == "5 {88}\n300000 {88}\nthrough\n" and code == 7
