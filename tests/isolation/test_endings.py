"""How sandboxes end: nothing is left, and the record says why."""

# ruff: noqa: ASYNC220
from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isolation import limits as back_ends
from isolation.limits import Cgroup
from isolation.problem import SandboxError
from isolation.sandbox import Sandbox, start
from isolation.spec import Limits, Mount, SandboxSpec

DAEMON = """
import os, signal, sys, time
for name in ("SIGTERM", "SIGHUP", "SIGINT"): signal.signal(getattr(signal, name), signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("daemon", flush=True)
        while True: time.sleep(1)
    os._exit(0)
os.wait()
"""


def in_namespace(pid: int) -> set[int]:
    """Every process of this machine in the pid namespace of ``pid``."""
    found = set()
    wanted = Path(f"/proc/{pid}/ns/pid").readlink()
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and (process / "ns/pid").readlink() == wanted:
                found.add(int(process.name))
        except OSError:
            continue
    return found


def alive(pids: set[int]) -> set[int]:
    """Those that still run (a zombie does not)."""
    left = set()
    for pid in pids:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                left.add(pid)
        except OSError:
            continue
    return left


def with_word(word: str) -> set[int]:
    """Every process of this machine with ``word`` in its command line."""
    found = set()
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and word.encode() in (process / "cmdline").read_bytes():
                found.add(int(process.name))
    return found


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def line_of(box: Sandbox) -> bytes:
    assert box.stdout is not None
    return await asyncio.wait_for(box.stdout.readline(), 60)


async def test_kill_leaves_no_process_not_even_a_daemon(spec: Callable[..., SandboxSpec]) -> None:
    box = await start(spec(DAEMON + "time.sleep(1000)"), stdout=PIPE)
    await line_of(box)
    inside = in_namespace(box.inner_pid)
    assert len(inside) >= 3
    await box.kill()
    assert box.ended and not alive(inside | {box.pid, box.inner_pid})
    code = await box.wait()
    assert code == 137 and box.death(code) == "signal 9"
    await box.kill()


async def test_a_daemon_does_not_outlive_the_command(spec: Callable[..., SandboxSpec]) -> None:
    box = await start(spec(DAEMON + "sys.stdin.read()"), stdin=PIPE, stdout=PIPE)
    await line_of(box)
    inside = in_namespace(box.inner_pid)
    assert box.stdin is not None
    box.stdin.close()
    assert await asyncio.wait_for(box.wait(), 60) == 0
    assert not alive(inside)


async def test_the_death_of_the_starter_ends_the_sandbox(spec: Callable[..., SandboxSpec]) -> None:
    program = f"""
import asyncio, sys
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[2])]!r}
from conftest import spec_of
from isolation.sandbox import start
async def main():
    box = await start(spec_of("import time; time.sleep(1000)"))
    print(box.inner_pid, flush=True)
    await box.wait()
asyncio.run(main())
"""
    starter = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    inner = int(starter.stdout.readline())
    handle = os.pidfd_open(inner)
    starter.kill()
    starter.wait()
    starter.stdout.close()
    import select

    assert select.select([handle], [], [], 30)[0] == [handle]
    os.close(handle)


@pytest.mark.parametrize(
    ("code", "limits", "death"),
    [
        ("pass", Limits(), ""),
        ("import sys; sys.exit(3)", Limits(), "exit 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", Limits(), "signal 11"),
        ("while True: pass", Limits(cpu_seconds=1), "cpu time"),
        ("import signal; signal.signal(25, signal.SIG_DFL); open('/tmp/a','wb').write(b'x'*5000)",
         Limits(file_bytes=4096), "file size"),
    ],
)  # fmt: skip
async def test_the_reason_is_named(run: Callable[..., Any], code: str, limits: Limits, death: str) -> None:
    assert (await run(code, limits=limits)).death == death


async def test_a_memory_bomb_ends_with_the_word_memory(run: Callable[..., Any]) -> None:
    if not back_ends.backend().hard:
        pytest.skip("no cgroup here that may be divided")
    root = back_ends.backend().roots[0]
    before = set(root.glob("harness-*"))  # a grader that another test killed could not remove its own
    bomb = "import os\nfor _ in range(3): os.fork()\nx = []\nwhile True: x.append(bytearray(8 << 20))"
    result = await run(bomb, limits=Limits(memory=128 << 20))
    assert result.code != 0 and result.death == "memory"
    shm = "f = open('/dev/shm/a', 'wb')\nwhile True: f.write(bytes(1 << 20))"
    assert (await run(shm, limits=Limits(memory=64 << 20, shm_bytes=1 << 30))).death == "memory"
    assert set(root.glob("harness-*")) <= before, "its group is removed"


async def test_without_cgroups_memory_is_bounded_softly(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(back_ends.CGROUP_VARIABLE, raising=False)
    back_ends.backend.cache_clear()
    try:
        if back_ends.backend().hard:
            pytest.skip("this machine delegates a cgroup to us")
        result = await run("x = bytearray(200 << 20)", limits=Limits(memory=100 << 20))
        assert result.code == 1 and "MemoryError" in result.err
    finally:
        monkeypatch.undo()
        back_ends.backend.cache_clear()


async def test_a_control_group_that_bounds_no_memory_starts_nothing(
    spec: Callable[..., SandboxSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(back_ends.CGROUP_VARIABLE, str(tmp_path))
    back_ends.backend.cache_clear()
    try:
        assert back_ends.backend().hard
        with pytest.raises(SandboxError, match="does not bound memory"):
            await start(spec("pass", limits=Limits(memory=1 << 30)))
        assert not list(tmp_path.iterdir()), "nothing of the group is left"
    finally:
        monkeypatch.undo()
        back_ends.backend.cache_clear()


async def test_a_fork_bomb_is_bounded_and_the_starter_stays_quick(spec: Callable[..., SandboxSpec]) -> None:
    bomb = """
import os, time
made = 0
while True:
    try:
        if os.fork() == 0:
            while True: time.sleep(100)
        made += 1
    except OSError as error:
        print(made, error.errno, flush=True)
        time.sleep(1000)
"""
    box = await start(spec(bomb, limits=Limits(pids=40)), stdout=PIPE)
    made, number = (await line_of(box)).split()
    assert int(made) < 40 and int(number) == 11
    inside = in_namespace(box.inner_pid)
    await box.kill()
    assert not alive(inside)


async def test_limits_count_per_sandbox_not_per_user(spec: Callable[..., SandboxSpec]) -> None:
    code = """
import os, sys
for _ in range(12):
    if os.fork() == 0:
        sys.stdin.read(); os._exit(0)
print("made", flush=True)
sys.stdin.read()
"""
    boxes = [await start(spec(code, limits=Limits(pids=20)), stdin=PIPE, stdout=PIPE) for _ in range(4)]
    try:
        assert [await line_of(box) for box in boxes] == [b"made\n"] * 4
    finally:
        for box in boxes:
            await box.kill()


async def test_a_callers_cgroup_is_used_and_stays(spec: Callable[..., SandboxSpec]) -> None:
    group = Cgroup.create("test", Limits(memory=200 << 20))
    if group is None:
        pytest.skip("no cgroup here that may be divided")
    try:
        box = await start(spec("import sys; sys.stdin.read()"), stdin=PIPE, cgroup=group)
        assert group.pids() and not group.remove()
        group.kill()
        assert await asyncio.wait_for(box.wait(), 60) == 137
        assert not group.pids() and not group.oom_killed()
    finally:
        assert group.remove()


async def test_a_command_that_is_not_there_is_an_exit_not_a_hang(run: Callable[..., Any]) -> None:
    result = await run(("/usr/bin/there-is-no-such-program",))
    assert result.code != 0 and result.death.startswith("exit")


async def test_a_start_in_another_thread_is_refused(spec: Callable[..., SandboxSpec]) -> None:
    plan = spec(("/usr/bin/true",))
    refused: list[str] = []

    def other() -> None:
        try:
            asyncio.run(start(plan))
        except SandboxError as error:
            refused.append(str(error))

    thread = threading.Thread(target=other)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert refused and "main thread" in refused[0]


async def test_a_cancelled_wait_does_not_end_the_sandbox(spec: Callable[..., SandboxSpec]) -> None:
    box = await start(spec("import sys; sys.stdin.read()"), stdin=PIPE)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(box.wait(), 0.05)
    assert not box.ended
    os.kill(box.inner_pid, signal.SIGKILL)
    assert await asyncio.wait_for(box.wait(), 60) == 137


@pytest.mark.parametrize("after", [0.0, 0.001, 0.004, 0.01, 0.03])
async def test_a_cancelled_start_leaves_nothing(spec: Callable[..., SandboxSpec], after: float) -> None:
    mark = f"{os.getpid()}.{int(after * 1000)}"  # a number that no other command line has
    before = open_descriptors()
    with contextlib.suppress(TimeoutError):
        box = await asyncio.wait_for(start(spec(("/usr/bin/sleep", mark))), after)
        await box.kill()
    assert not alive(with_word(mark)) and open_descriptors() == before


async def test_many_at_once_leave_no_descriptor_behind(run: Callable[..., Any], tmp_path: Path) -> None:
    await run(("/usr/bin/true",))
    before = open_descriptors()
    mounts = (Mount(tmp_path, "/in"),)
    results = await asyncio.gather(*[run(("/usr/bin/echo", str(n)), mounts=mounts) for n in range(12)])
    assert [result.out for result in results] == [f"{n}\n" for n in range(12)]
    with pytest.raises(SandboxError):
        await run(("/usr/bin/true",), mounts=(Mount(tmp_path / "gone", "/in"),))
    assert open_descriptors() == before


def test_root_is_refused() -> None:
    if os.getuid() != 0:
        pytest.skip("only root can show this")
    with pytest.raises(SandboxError, match="root"):
        asyncio.run(start(SandboxSpec("harness", ("/usr/bin/true",))))


async def test_kill_returns_although_nobody_reads_the_full_pipes():
    """A sandbox that fills its pipes and is killed: asyncio waits for the pipes' end, so kill() must empty them."""
    box = await start(
        SandboxSpec("harness", ("/bin/sh", "-c", "yes >&2 & yes; wait")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        line_limit=1 << 12,
    )
    assert box.stdout is not None
    await box.stdout.readexactly(1 << 13)
    async with asyncio.timeout(20):
        await box.kill()
    assert box.ended


async def test_a_start_without_descriptors_fails_as_a_sandbox_and_leaves_none() -> None:
    """Whatever is missing, the error is one that evaluations are tried again after."""
    await (await start(SandboxSpec("harness", ("/usr/bin/true",)))).wait()  # the keeper is there
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = len(os.listdir("/proc/self/fd"))
    refused = 0
    for spare in range(24):
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        held: list[int] = []
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        for number in held[len(held) - spare :]:
            os.close(number)
        try:
            await (await start(SandboxSpec("harness", ("/usr/bin/true",)), stdout=PIPE, stderr=PIPE)).kill()
        except SandboxError:
            refused += 1
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for number in held[: len(held) - spare]:
                os.close(number)
        assert len(os.listdir("/proc/self/fd")) == before
    assert 5 < refused < 24
