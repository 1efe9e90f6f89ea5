"""Throughput of the LLM gateway: parallel streams through it against a direct connection, and its memory.

``python scripts/bench_llm.py [--streams 8] [--tokens 100000] [--rate 0]`` prints tokens per second, their ratio, what a
token costs in processor time on both sides, and the gateway's resident memory before and after. ``--rate`` is the
tokens per second of each stream. 0, unpaced, is as fast as a program can write events, far beyond any model's pace: it
measures how three processes (upstream, gateway and client) share the processors, not a run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from aiohttp import web

from runner.research.llm.client import LlmGateway
from runner.research.llm.protocol import Door, Limits, Upstream

MODEL = "bench"


def delta(content: str) -> bytes:
    """One token as an event."""
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": None}
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": MODEL, "choices": [choice]}
    return f"data: {json.dumps(chunk)}\n\n".encode()


async def upstream(tokens: int, rate: float) -> None:
    """The stand-in: prints its port, streams ``tokens`` events a request, ends with its stdin."""
    usage = {"prompt_tokens": 10, "completion_tokens": tokens}
    end = f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n".encode()

    async def handle(request: web.Request) -> web.StreamResponse:
        await request.read()
        out = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await out.prepare(request)
        event, began = delta("word "), time.monotonic()
        for number in range(tokens):
            await out.write(event)
            if rate and (ahead := began + number / rate - time.monotonic()) > 0.005:
                await asyncio.sleep(ahead)
        await out.write(end)
        return out

    app = web.Application()
    app.router.add_post("/v1/chat/completions", handle)
    served = web.AppRunner(app, access_log=None)
    await served.setup()
    await web.TCPSite(served, "127.0.0.1", 0).start()
    print(served.addresses[0][1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def one(connect: object) -> int:
    """Bytes of one stream."""
    reader, writer = await connect()  # type: ignore[operator]
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "go"}], "stream": True}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
    writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
    size, tail = 0, b""
    while chunk := await reader.read(1 << 18):
        size, tail = size + len(chunk), (tail + chunk)[-64:]
    writer.close()
    assert b"[DONE]" in tail, tail
    return size


async def measure(streams: int, tokens: int, connect: object) -> float:
    """Tokens per second of all streams together."""
    began = time.monotonic()
    await asyncio.gather(*(one(connect) for _ in range(streams)))
    return streams * tokens / (time.monotonic() - began)


def resident(pid: int) -> float:
    """MB; the gateway closes its /proc to other processes of the user, so only root or ps may tell."""
    out = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True).stdout
    return int(out or 0) / 1024


def cpu(pid: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def bench(streams: int, tokens: int, rate: float) -> None:
    server = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--serve", "--tokens", str(tokens), "--rate", str(rate),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert server.stdout is not None and server.stdin is not None
    port = int(await server.stdout.readline())
    with tempfile.TemporaryDirectory(prefix="vt-") as name:
        folder = Path(name)
        where = Upstream(style="openai", base_url=f"http://127.0.0.1:{port}")
        door = Door(
            role="researcher", socket=str(folder / "llm.sock"), models=(MODEL,), upstream=where,
            limits=Limits(streams=streams),
        )  # fmt: skip
        gateway = LlmGateway((door,), folder / "llm.jsonl", folder / "llm.log", print, lambda _: None)
        await gateway.start()
        direct = await measure(streams, tokens, lambda: asyncio.open_connection("127.0.0.1", port))
        before, used = resident(gateway.pid), (cpu(server.pid), cpu(gateway.pid))
        through = await measure(streams, tokens, lambda: asyncio.open_unix_connection(folder / "llm.sock"))
        after = resident(gateway.pid)
        costs = (cpu(server.pid) - used[0], cpu(gateway.pid) - used[1])
        await gateway.close()
    server.stdin.close()
    await server.wait()
    print(f"{streams} streams of {tokens} tokens, load {os.getloadavg()[0]:.1f}")
    print(f"direct {direct:,.0f} tokens/s, through the gateway {through:,.0f} tokens/s, ratio {through / direct:.2f}")
    upstream_us, gateway_us = (seconds / (streams * tokens) * 1e6 for seconds in costs)
    print(f"processor time a token: upstream {upstream_us:.1f} µs, gateway {gateway_us:.1f} µs")
    print(f"gateway's memory {before:.0f} MB before, {after:.0f} MB after")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--serve", action="store_true")
    args = parser.parse_args()
    asyncio.run(upstream(args.tokens, args.rate) if args.serve else bench(args.streams, args.tokens, args.rate))


if __name__ == "__main__":
    main()
