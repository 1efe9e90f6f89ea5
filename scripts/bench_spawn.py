"""What our starter costs over bubblewrap itself: p50 of a whole hardened sandbox that runs `true`, both interleaved.

Raw: asyncio spawns bwrap with the very arguments and system call filter that isolation.sandbox.start would use, nothing
learnt, nothing bounded. Ours: start (pid, rlimits) and wait. Run as an ordinary user, or through
``python -P -m isolation.privilege -- python scripts/bench_spawn.py``. Exits 1 when the ratio is above the target.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from asyncio.subprocess import DEVNULL

from isolation import bwrap, seccomp
from isolation.sandbox import start, use_pidfd_children
from isolation.spec import Limits, SandboxSpec

TARGET = 1.3
COMMAND = ("/usr/bin/true",)


def memory_file(data: bytes) -> int:
    """A readable descriptor with ``data`` in it."""
    fd = os.memfd_create("bench", os.MFD_CLOEXEC)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


async def raw(spec: SandboxSpec) -> float:
    """Seconds of one bare bubblewrap with the same arguments."""
    begin = time.perf_counter()
    etc = {name: memory_file(data) for name, data in bwrap.etc_files(bwrap.BASE_ENV).items()}
    fds = bwrap.Descriptors(seccomp=memory_file(seccomp.program()), etc=etc)
    words = bwrap.arguments(spec, fds)
    plan = memory_file(b"".join(word.encode() + b"\0" for word in words))
    passed = (plan, fds.seccomp, *etc.values())
    argv = (str(bwrap.find_bwrap()), "--args", str(plan), "--", *COMMAND)
    process = await asyncio.create_subprocess_exec(
        *argv, env={}, pass_fds=passed, start_new_session=True, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
    )
    for fd in passed:
        os.close(fd)
    assert await process.wait() == 0
    return time.perf_counter() - begin


async def ours(spec: SandboxSpec) -> float:
    """Seconds of one sandbox, from start to its end."""
    begin = time.perf_counter()
    box = await start(spec)
    assert await box.wait() == 0
    return time.perf_counter() - begin


async def measure(count: int) -> tuple[float, float, float]:
    """p50 in milliseconds of raw, ours, and ours with a memory limit (its own cgroup, where there is one)."""
    plain = SandboxSpec("harness", COMMAND)
    bounded = SandboxSpec("harness", COMMAND, limits=Limits(memory=256 << 20))
    times: tuple[list[float], list[float], list[float]] = ([], [], [])
    for round_number in range(count + 3):
        taken = (await raw(plain), await ours(plain), await ours(bounded))
        if round_number >= 3:
            for series, value in zip(times, taken, strict=True):
                series.append(value * 1e3)
    first, second, third = (statistics.median(series) for series in times)
    return first, second, third


def main() -> int:
    """Prints one line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-n", type=int, default=100, help="sandboxes of each kind")
    options = parser.parse_args()
    use_pidfd_children()
    base, own, bounded = asyncio.run(measure(options.n))
    ratio = own / base
    print(
        f"bwrap {base:.2f} ms, sandbox {own:.2f} ms, ratio {ratio:.2f} (target {TARGET}), with cgroup {bounded:.2f} ms"
    )
    return 0 if ratio <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
