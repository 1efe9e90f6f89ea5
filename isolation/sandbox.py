"""A running sandbox, and how one is started from its spec.

Only :mod:`isolation.bwrap` turns a spec into arguments, and only :func:`start` spawns it. Call :func:`start` from the
main (asyncio) thread: ``--die-with-parent`` follows the thread that forked.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import sys
import threading
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from isolation.keeper import KEEPER
from isolation.problem import SandboxError
from isolation.spec import SandboxSpec

if TYPE_CHECKING:
    from isolation.limits import Cgroup

START_SECONDS = 30.0
"""How long bubblewrap may take to build the walls before the start counts as failed."""

_STATUS_BYTES = 64 << 10
_SIGNAL_WORDS = {signal.SIGXCPU: "cpu time", signal.SIGXFSZ: "file size"}


def use_pidfd_children() -> None:
    """Lets asyncio wait for children through pidfds; from Python 3.12 on it does so by itself."""
    if sys.version_info < (3, 12):
        asyncio.set_child_watcher(asyncio.PidfdChildWatcher())


class _Status:
    """Reads bubblewrap's status documents, of which the first says the pid of the sandbox's init."""

    def __init__(self, fd: int) -> None:
        loop = asyncio.get_running_loop()
        self._fd = fd
        self._seen = b""
        self.child: asyncio.Future[int] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        os.set_blocking(fd, False)
        loop.add_reader(fd, self._readable)

    def _readable(self) -> None:
        try:
            block = os.read(self._fd, 4096)
        except BlockingIOError:
            return
        except OSError:
            block = b""
        self._seen += block[: _STATUS_BYTES - len(self._seen)]
        pid = self._child_pid()
        if pid is not None and not self.child.done():
            self.child.set_result(pid)
        if not block:
            self.close()

    def _child_pid(self) -> int | None:
        for line in self._seen.splitlines():
            try:
                value = json.loads(line).get("child-pid")
            except (ValueError, AttributeError):
                continue
            if isinstance(value, int):
                return value
        return None

    def close(self) -> None:
        """Stops reading; whoever waits for the pid learns that there is none."""
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
        if not self.child.done():
            self.child.set_exception(SandboxError("bubblewrap ended before the walls stood", where="sandbox"))
            self.child.exception()
        if not self.ended.done():
            self.ended.set_result(None)


class Sandbox:
    """A running sandbox. Its streams are asyncio's; :meth:`wait` and :meth:`kill` return when nothing of it is left."""

    def __init__(self, spec: SandboxSpec, process: Process, status: _Status, inner: int, group: Cgroup | None) -> None:
        self.spec = spec
        self.pid = process.pid
        """bubblewrap's own process, outside."""
        self.inner_pid = status.child.result()
        """The init of the sandbox's pid namespace, as this side numbers it."""
        self.stdin = process.stdin
        self.stdout = process.stdout
        self.stderr = process.stderr
        self.cgroup = group
        self._process = process
        self._status = status
        self._inner = inner
        self._own_group = False
        self._memory_death = False
        self._finished: asyncio.Task[int] = asyncio.get_running_loop().create_task(self._finish())

    async def _finish(self) -> int:
        code = await self._process.wait()
        await _readable(self._inner)
        await self._status.ended
        os.close(self._inner)
        self._inner = -1
        if self.cgroup is not None:
            self._memory_death = self.cgroup.oom_killed()
            if self._own_group:
                self.cgroup.remove()
        return code if code >= 0 else 128 - code

    async def wait(self) -> int:
        """Waits for the end and returns the exit code as a shell would (128 + n for signal n)."""
        return await asyncio.shield(self._finished)

    async def kill(self) -> None:
        """Kills every process inside, daemons too; returns when the pid namespace is dead."""
        if self._inner >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._inner, signal.SIGKILL)
            await _readable(self._inner)
        _end(self._process)
        # asyncio counts a process as ended only when its pipes are at their end: full ones must be emptied.
        await asyncio.gather(_drain(self.stdout), _drain(self.stderr))
        await self.wait()

    @property
    def ended(self) -> bool:
        """Whether everything inside is gone."""
        return self._finished.done()

    def death(self, code: int) -> str:
        """Why it ended, for a record: "", "memory", "cpu time", "file size", "signal 9", "exit 3"."""
        if code == 0:
            return ""
        if self._memory_death:
            return "memory"
        if code > 128:
            return _SIGNAL_WORDS.get(code - 128, f"signal {code - 128}")  # type: ignore[call-overload,no-any-return]
        return f"exit {code}"


def _end(process: Process) -> None:
    """SIGKILL without Process.kill(), which polls and so takes the exit code away from the child watcher."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


async def _drain(stream: asyncio.StreamReader | None) -> None:
    """Read a dead sandbox's output to its end; whoever reads it already does that too."""
    with contextlib.suppress(RuntimeError):
        while stream is not None and await stream.read(1 << 16):
            continue


async def _readable(fd: int) -> None:
    """Returns when ``fd`` (a pidfd) is readable: its process is dead."""
    if fd < 0:
        return
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if poll.poll(0):
        return
    copy = os.dup(fd)
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(copy, _settle, ready)
    try:
        await ready
    finally:
        loop.remove_reader(copy)
        os.close(copy)


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def start(
    spec: SandboxSpec,
    *,
    stdin: int | IO[Any] | None = DEVNULL,
    stdout: int | IO[Any] | None = DEVNULL,
    stderr: int | IO[Any] | None = DEVNULL,
    cgroup: Cgroup | None = None,
    line_limit: int = 2 << 20,
) -> Sandbox:
    """Starts ``spec`` and returns once the walls stand and the limits are set.

    Streams are as in asyncio; None means no stream (an inherited terminal would be a way out). ``cgroup`` stays the
    caller's; without one, a spec with a memory limit gets its own where the machine has cgroups. Raises SandboxError
    for uid 0, a thread other than the main one, an unsafe plan or a failed start. Cancelled, it leaves nothing behind.
    """
    _check_place()
    streams = [DEVNULL if stream is None else stream for stream in (stdin, stdout, stderr)]
    starting = asyncio.ensure_future(_start(spec, streams, cgroup, line_limit))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with contextlib.suppress(SandboxError):
            await (await starting).kill()
        raise


async def _start(
    spec: SandboxSpec, streams: Sequence[int | IO[Any]], cgroup: Cgroup | None, line_limit: int
) -> Sandbox:
    """Spawns, then bounds and releases; on any failure nothing of it is left."""
    try:
        plan, process = await _spawn(spec, streams, line_limit)
    except OSError as error:  # no descriptor, no memory, no process to be had
        raise SandboxError(f"the sandbox did not start: {error}", where=spec.profile) from error
    status, gate = _Status(plan.status), plan.gate
    try:
        async with asyncio.timeout(START_SECONDS):
            return await _release(spec, process, status, gate, cgroup)
    except BaseException as error:
        _end(process)
        status.close()
        await process.wait()
        if isinstance(error, (OSError, asyncio.TimeoutError)):
            raise SandboxError(f"the sandbox did not start: {error or 'too slow'}", where=spec.profile) from error
        raise
    finally:
        KEEPER.stands(process.pid)
        os.close(gate)


async def _spawn(spec: SandboxSpec, streams: Sequence[int | IO[Any]], line_limit: int) -> tuple[_Plan, Process]:
    """bubblewrap with its options, known to the keeper; of its descriptors its status and its gate are left."""
    with _descriptors() as fds:
        plan = _prepare(spec, fds)
        process = await asyncio.create_subprocess_exec(
            *plan.argv, env={}, pass_fds=plan.passed, start_new_session=True, limit=line_limit,
            stdin=streams[0], stdout=streams[1], stderr=streams[2],
        )  # fmt: skip
        KEEPER.spawned(process.pid)
        with contextlib.suppress(OSError):  # one that has ended says so in its status
            os.write(plan.options_write, plan.options)
        for kept in (plan.status, plan.gate):
            fds.remove(kept)
    return plan, process


def _check_place() -> None:
    if 0 in (os.getuid(), os.geteuid()):
        do = "Start the program through `python -P -m isolation.privilege`"
        raise SandboxError("a sandbox must not be started by root", where="sandbox", do=do)
    if threading.current_thread() is not threading.main_thread():
        raise SandboxError("a sandbox must be started from the main thread", where="sandbox")


@contextlib.contextmanager
def _descriptors() -> Iterator[list[int]]:
    """A list of descriptors that are closed at the end, come what may."""
    fds: list[int] = []
    try:
        yield fds
    finally:
        for fd in fds:
            os.close(fd)


def _memory_file(name: str, data: bytes, fds: list[int]) -> int:
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    fds.append(fd)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is spawned, what it inherits, and our ends: its status, the gate that holds its init, its options.

    The options are sent when the keeper knows the new process. Should we die before, it has none: an empty root, in
    which there is no command.
    """

    argv: list[str]
    passed: tuple[int, ...]
    options: bytes
    options_write: int
    status: int
    gate: int


def _prepare(spec: SandboxSpec, fds: list[int]) -> _Plan:
    """The plan of one start; all its descriptors are in ``fds``, too."""
    from isolation import bwrap, seccomp

    status, status_write = _pair(socket.SOCK_STREAM, fds)
    gate, block_read = _pair(socket.SOCK_DGRAM, fds)
    options_read, options_write = os.pipe()
    fds += [options_read, options_write]
    env = {**bwrap.BASE_ENV, **spec.env}
    given = bwrap.Descriptors(
        seccomp=_memory_file("seccomp", seccomp.program(accelerator=spec.accelerator), fds),
        status=status_write,
        block=block_read,
        etc={name: _memory_file("etc", data, fds) for name, data in bwrap.etc_files(env).items()},
    )
    options = b"".join(os.fsencode(word) + b"\0" for word in bwrap.arguments(spec, given))
    fcntl.fcntl(options_write, fcntl.F_SETPIPE_SZ, max(len(options), 1 << 16))  # so that one write takes them all
    argv = [str(bwrap.find_bwrap()), "--args", str(options_read), "--", *spec.argv]
    passed = (options_read, given.seccomp, status_write, block_read, *given.etc.values(), *spec.pass_fds)
    return _Plan(argv, passed, options, options_write, status, gate)


def _pair(kind: int, fds: list[int]) -> tuple[int, int]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    fds += [ours.detach(), theirs.detach()]
    return fds[-2], fds[-1]


async def _release(spec: SandboxSpec, process: Process, status: _Status, gate: int, cgroup: Cgroup | None) -> Sandbox:
    """Learns the init's pid, bounds it while it waits, then lets it run the command."""
    from isolation import limits

    inner = await status.child
    handle = os.pidfd_open(inner)
    group, own = cgroup, False
    try:
        if not _is_child(inner, process.pid):
            raise SandboxError("bubblewrap ended before the walls stood", where=spec.profile)
        KEEPER.born(process.pid, inner)  # it leaves bubblewrap's process group before it runs anything
        if group is None and spec.limits.memory is not None:
            group = limits.Cgroup.create(spec.profile, spec.limits)
            own = group is not None
        if group is not None:
            group.add(inner)
        limits.apply(inner, spec.limits, soft_memory=group is None and not spec.accelerator)
        os.write(gate, b"x")
        await _settled(inner, handle)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        await _readable(handle)
        os.close(handle)
        if own and group is not None:
            group.remove()
        raise
    sandbox = Sandbox(spec, process, status, handle, group)
    sandbox._own_group = own
    return sandbox


async def _settled(pid: int, handle: int) -> None:
    """Returns when the init has its command and waits for it: from then on it dies with bubblewrap, too, which dies
    with us."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    with contextlib.suppress(OSError):
        while not (poll.poll(0) or _waits_for_a_child(pid)):  # noqa: ASYNC110  (the kernel has no event for it)
            await asyncio.sleep(0.0005)


def _waits_for_a_child(pid: int) -> bool:
    """Whether ``pid`` sleeps and has a child. Raises OSError when it is gone or the kernel does not tell."""
    sleeps = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"
    return sleeps and bool(Path(f"/proc/{pid}/task/{pid}/children").read_bytes())


def _is_child(pid: int, parent: int) -> bool:
    """Whether ``pid`` is still the process that ``parent`` started, not a later one under the same number."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        stat = Path(f"/proc/{pid}/stat").read_text()
        return int(stat.rpartition(")")[2].split()[1]) == parent
    return False
