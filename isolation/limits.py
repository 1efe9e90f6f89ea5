"""What a sandbox may use: memory, processes, files; and which back end enforces it.

Back ends, best first: cgroup v2 (a subtree of our own: delegated by systemd, or prepared by a root start), cgroup v1
(prepared by a root start), resource limits alone (*weak*: per process, not per sandbox). Resource limits are set in
every case, on the sandbox's own init from outside, before its command runs: RLIMIT_NPROC then counts inside the
sandbox's user namespace.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from isolation.problem import SandboxError

if TYPE_CHECKING:
    from isolation.spec import Limits

CGROUP_VARIABLE = "VIBETRAINING_CGROUP"
"""Folders of the delegated cgroup(s), joined by ``:``; set by a root start."""

_V2_ROOT = Path("/sys/fs/cgroup")
_PREFIX = "vibetraining-"
_LABEL = re.compile(r"[a-z][a-z0-9-]{0,40}")
_counter = itertools.count()

Kind = Literal["cgroup2", "cgroup1", "rlimit"]


@dataclass(frozen=True, slots=True)
class Backend:
    """How limits are enforced on this machine; ``roots`` are the folders under which sandboxes get theirs."""

    kind: Kind
    roots: tuple[Path, ...] = ()

    @property
    def hard(self) -> bool:
        """Whether memory is bounded for a sandbox as a whole."""
        return self.kind != "rlimit"


class Cgroup:
    """One group of processes with its own bounds; made for a sandbox, removed after it."""

    def __init__(self, folders: tuple[Path, ...], version: Literal[1, 2]) -> None:
        self.folders = folders
        self.version = version

    @classmethod
    def create(cls, name: str, limits: Limits) -> Cgroup | None:
        """A new group under the delegated subtree with the bounds of ``limits``; None where there is no back end."""
        if not _LABEL.fullmatch(name):
            raise SandboxError("not a name for a cgroup", where=repr(name)[:80])
        found = backend()
        if not found.hard:
            return None
        label = f"{name}-{os.getpid()}-{next(_counter)}"
        folders = tuple(root / label for root in found.roots)
        group = cls(folders, 2 if found.kind == "cgroup2" else 1)
        try:
            for folder in folders:
                folder.mkdir()
            group._bound(limits)
        except BaseException:
            group.remove()
            raise
        return group

    def _bound(self, limits: Limits) -> None:
        """Raises SandboxError where memory is to be bounded and no folder has a file for it."""
        names = ("memory.max", "memory.limit_in_bytes")
        if limits.memory is not None and not any((folder / name).exists() for folder in self.folders for name in names):
            do = f"Unset {CGROUP_VARIABLE}, or delegate the memory controller"
            raise SandboxError("this control group does not bound memory", where=str(self.folders[0]), do=do)
        for folder in self.folders:
            if self.version == 2:
                _write(folder, "memory.max", limits.memory)
                _write(folder, "memory.swap.max", 0 if limits.memory else None)
                _write(folder, "pids.max", limits.pids + 8)
                _write(folder, "memory.oom.group", 1)
            elif (folder / "memory.limit_in_bytes").exists():
                _write(folder, "memory.limit_in_bytes", limits.memory)
                _write(folder, "memory.memsw.limit_in_bytes", limits.memory)
            else:
                _write(folder, "pids.max", limits.pids + 8)

    def add(self, pid: int) -> None:
        """Moves a process (not its children) into the group; raises OSError where the kernel refuses."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(f"{pid}\n")

    def oom_killed(self) -> bool:
        """Whether the kernel killed something in here for want of memory."""
        for folder in self.folders:
            for name in ("memory.events", "memory.oom_control"):
                for line in _lines(folder / name):
                    if line.startswith("oom_kill ") and line.split()[1] != "0":
                        return True
        return False

    def memory_peak(self) -> int:
        """The most bytes the group has held, 0 where the kernel does not say."""
        for folder in self.folders:
            for name in ("memory.peak", "memory.max_usage_in_bytes"):
                for line in _lines(folder / name):
                    return int(line)
        return 0

    def pids(self) -> set[int]:
        """The processes that are in the group now."""
        return {int(line) for folder in self.folders for line in _lines(folder / "cgroup.procs")}

    def kill(self) -> None:
        """Kills every process in the group."""
        if self.version == 2:
            with contextlib.suppress(OSError):
                (self.folders[0] / "cgroup.kill").write_text("1")
                return
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def remove(self) -> bool:
        """Removes the group; False while a process is still in it."""
        gone = True
        for folder in self.folders:
            gone = _remove_folder(folder) and gone
        return gone


def _write(folder: Path, name: str, value: int | None) -> None:
    """Sets a bound where the kernel has the file; a bound that exists and cannot be set is an error."""
    path = folder / name
    if value is not None and path.exists():
        path.write_text(f"{value}\n")


def _lines(path: Path) -> Iterator[str]:
    with contextlib.suppress(OSError):
        yield from path.read_text().splitlines()


def _remove_folder(folder: Path) -> bool:
    """rmdir, with a short patience: the kernel may still be taking dead processes out."""
    for attempt in range(20):
        try:
            folder.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            time.sleep(0.0005 * attempt)
        else:
            return True
    return False


@functools.cache
def backend() -> Backend:
    """The best back end that works here; found once. A v2 subtree gets its controllers switched on."""
    named = os.environ.get(CGROUP_VARIABLE, "")
    roots = tuple(Path(part) for part in named.split(":") if part)
    if roots and all(os.access(root, os.W_OK) for root in roots):
        return Backend("cgroup2" if (roots[0] / "cgroup.controllers").exists() else "cgroup1", roots)
    own = own_v2_folder()
    if own is not None and os.getuid() != 0 and _open_subtree(own, os.getpid()):
        return Backend("cgroup2", (own,))
    return Backend("rlimit")


def scope_command() -> tuple[str, ...]:
    """Words to put before a command that should get a cgroup of its own from systemd; () where none are needed or work.

    For an ordinary user: the program then finds itself in a delegated subtree and :func:`backend` divides it.
    """
    program = shutil.which("systemd-run")
    if os.getuid() == 0 or program is None or backend().hard:
        return ()
    words = (program, "--user", "--scope", "--quiet", "--property=Delegate=yes", "--")
    try:
        done = subprocess.run([*words, "true"], stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return ()
    return words if done.returncode == 0 else ()


def own_v2_folder() -> Path | None:
    """The cgroup v2 folder of this process, if we own it (delegation) and it is not the hierarchy's root."""
    for line in _lines(Path("/proc/self/cgroup")):
        if line.startswith("0::"):
            relative = line[3:].strip("/")
            folder = _V2_ROOT / relative
            if relative and os.access(folder, os.W_OK) and os.access(folder / "cgroup.subtree_control", os.W_OK):
                return folder
    return None


def _open_subtree(folder: Path, pid: int) -> bool:
    """Moves ``pid`` into a leaf and hands memory and pids to the children of ``folder``."""
    leaf = folder / "runner"
    try:
        leaf.mkdir(exist_ok=True)
        (leaf / "cgroup.procs").write_text(f"{pid}\n")
        (folder / "cgroup.subtree_control").write_text("+memory +pids\n")
    except OSError:
        return False
    return True


def prepare_delegated(uid: int, gid: int) -> str:
    """As root: makes a subtree that ``uid`` owns; returns its folders joined by ``:``, "" where none can be made."""
    for make in (_delegated_v2, _delegated_v1):
        folders = make()
        if folders:
            for folder in folders:
                os.chown(folder, uid, gid)
                for name in ("cgroup.procs", "cgroup.subtree_control", "cgroup.threads", "tasks"):
                    if (folder / name).exists():
                        os.chown(folder / name, uid, gid)
            return ":".join(str(folder) for folder in folders)
    return ""


def _delegated_v2() -> list[Path]:
    """A child of the nearest ancestor group whose children have memory and pids; never at the root."""
    relative = next((line[3:].strip("/") for line in _lines(Path("/proc/self/cgroup")) if line.startswith("0::")), "")
    here = _V2_ROOT / relative
    while relative and here != _V2_ROOT:
        given = (here / "cgroup.subtree_control").read_text().split() if here.is_dir() else []
        if {"memory", "pids"} <= set(given):
            return _make(here)
        here = here.parent
    return []


def _delegated_v1() -> list[Path]:
    """Children of our own memory and pids groups; a hierarchy whose root we are in is left alone."""
    found: list[Path] = []
    for line in _lines(Path("/proc/self/cgroup")):
        _, controllers, place = line.split(":", 2)
        for name in ("memory", "pids"):
            folder = _V2_ROOT / name / place.strip("/")
            if name in controllers.split(",") and place != "/" and folder.is_dir():
                found += _make(folder)
    return found if any((folder / "memory.limit_in_bytes").exists() for folder in found) else _undo(found)


def _make(parent: Path) -> list[Path]:
    """One folder of ours under ``parent``; leftovers of dead supervisors are removed on the way."""
    for left in parent.glob(f"{_PREFIX}[0-9]*"):
        if not Path(f"/proc/{left.name.removeprefix(_PREFIX)}").exists():
            _remove_tree(left)
    folder = parent / f"{_PREFIX}{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        return []
    return [folder]


def _undo(folders: list[Path]) -> list[Path]:
    for folder in folders:
        _remove_tree(folder)
    return []


def _remove_tree(folder: Path) -> None:
    for child in (*folder.glob("*/"), folder):
        _remove_folder(child)


def join_delegated(group: str, pid: int) -> None:
    """As root: moves ``pid`` into the subtree. v2 asks for it; on v1 it is how leftovers are found."""
    for folder in (Path(part) for part in group.split(":") if part):
        if not (folder / "cgroup.controllers").exists():
            (folder / "cgroup.procs").write_text(f"{pid}\n")
            continue
        _open_subtree(folder, pid)
        info = folder.stat()
        for path in (folder / "runner", folder / "runner" / "cgroup.procs"):
            os.chown(path, info.st_uid, info.st_gid)


def remove_delegated(group: str) -> None:
    """As root: kills what is left in the subtree and removes it."""
    for folder in (Path(part) for part in group.split(":") if part):
        for inner in (*folder.glob("*/"), folder):
            Cgroup((inner,), 1).kill()
        _remove_tree(folder)


def apply(pid: int, limits: Limits, *, soft_memory: bool) -> None:
    """Sets resource limits, scheduling and the OOM score of a sandbox's init, which its command inherits.

    ``soft_memory``: bound each process's data segment too, because no cgroup bounds the whole.
    """
    both = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: limits.pids,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_CPU: limits.cpu_seconds,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_MEMLOCK: 8 << 20,
        resource.RLIMIT_MSGQUEUE: 0,
        # Desktops give their users real-time priority for sound: with it, one process inside stops everybody else.
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_DATA: limits.memory if soft_memory else None,
    }
    for which, value in both.items():
        if value is not None:
            slack = 1 if which == resource.RLIMIT_CPU else 0  # SIGXCPU first, which says why
            resource.prlimit(pid, which, (value, value + slack))
    if limits.idle:
        os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
    if limits.oom_score_adj > 0:
        Path(f"/proc/{pid}/oom_score_adj").write_text(f"{limits.oom_score_adj}\n")
