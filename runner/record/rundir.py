"""The run folder: where everything of a run lies, its lock, its frozen configuration, requests from people.

A viewer may only *query* the lock (:func:`holder_alive`): taking even a shared one would make a starting run fail.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from isolation.files import write_atomic
from runner.record.error import JournalError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_RUN_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-[0-9a-f]{4,8}")
_FLOCK = "hhqqi4x"  # struct flock of 64-bit Linux: type, whence, start, len, pid
_DIGEST_LINE = re.compile(r'digest = "([0-9a-f]{1,128})"\n')
# sealed is made apart
_FOLDERS = ("workspace", "store", "snapshots", "candidates", "models", "evals", "feedback", "logs", "control", "report")

Request = Literal["stop", "kill"]


class RunLocked(JournalError):
    """Another process holds the run."""


class RunLock:
    """The writer's lock of a run, held until :meth:`release` or the end of the process, however it ends."""

    def __init__(self, fd: int) -> None:
        """Holds the descriptor as a number, so that losing this object does not lose the lock."""
        self._fd = fd

    def release(self) -> None:
        """Let the run go; harmless when released."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@dataclass(frozen=True, slots=True)
class RunDir:
    """The paths of one run folder. Nothing here checks that they exist, but for :meth:`create`."""

    path: Path

    @classmethod
    def create(cls, root: Path, task: str, now: datetime) -> RunDir:
        """Make ``root/task/2026-11-30T12-00-00-7f3a`` with its folders, mode 0700; never an existing one."""
        parent = root / checked_name(task)
        try:
            parent.mkdir(parents=True, exist_ok=True)
            run = _fresh(parent, now)
            for name in _FOLDERS:
                (run.path / name).mkdir()
            run.sealed.mkdir(mode=0o700)
        except OSError as error:
            do = "give a folder that can be written"
            raise JournalError((error.strerror or "cannot be made").lower(), where=str(parent), do=do) from error
        return run

    @property
    def name(self) -> str:
        """The run's name, its folder's last part."""
        return self.path.name

    @property
    def task(self) -> str:
        """The task's name, from the folder above."""
        return self.path.parent.name

    @property
    def config_file(self) -> Path:
        """run.toml: the frozen configuration."""
        return self.path / "run.toml"

    @property
    def lock_file(self) -> Path:
        """The file that carries the writer's lock."""
        return self.path / "lock"

    @property
    def journal_file(self) -> Path:
        """journal.jsonl: the truth."""
        return self.path / "journal.jsonl"

    @property
    def workspace(self) -> Path:
        """What the agent edits: data, trainer, harness, notes, home."""
        return self.path / "workspace"

    @property
    def sources(self) -> Path:
        """What the agent may make data from, mounted at /sources."""
        return self.path / "sources"

    @property
    def store(self) -> Path:
        """Content-addressed snapshots: objects/ and manifests/."""
        return self.path / "store"

    @property
    def snapshots(self) -> Path:
        """Materialised read-only trees of snapshots, by id."""
        return self.path / "snapshots"

    @property
    def candidates(self) -> Path:
        """cNN/ manifest.json and diffs/."""
        return self.path / "candidates"

    @property
    def models(self) -> Path:
        """mNN/ manifest.json, train.jsonl, adapter/ or weights/."""
        return self.path / "models"

    @property
    def evals(self) -> Path:
        """eNNN/ score.json, problems.jsonl, trajectories/, waves/."""
        return self.path / "evals"

    @property
    def feedback(self) -> Path:
        """cNN/: what the agent may read of an evaluation (hard links)."""
        return self.path / "feedback"

    @property
    def logs(self) -> Path:
        """runner, agent, grader, engine, train logs and llm.jsonl."""
        return self.path / "logs"

    @property
    def control(self) -> Path:
        """Requests from people."""
        return self.path / "control"

    @property
    def sealed(self) -> Path:
        """The ledger and the hidden results; 0700, mounted nowhere."""
        return self.path / "sealed"

    @property
    def ledger_file(self) -> Path:
        """The grader's record of the one hidden test."""
        return self.sealed / "ledger.jsonl"

    @property
    def hidden(self) -> Path:
        """Hidden evaluations: initial/ and selected/."""
        return self.sealed / "hidden"

    @property
    def shared_cache(self) -> Path:
        """Beside the runs of all tasks: evaluations of initial systems, which other runs may use again."""
        return self.path.parent.parent / ".initial"

    @property
    def report(self) -> Path:
        """report.md, report.html, report.json, figures/."""
        return self.path / "report"

    def candidate(self, candidate: str) -> Path:
        """The folder of one candidate; the id comes from a journal, so it is checked."""
        return self.candidates / checked_name(candidate)

    def model(self, model: str) -> Path:
        """The folder of one model."""
        return self.models / checked_name(model)

    def evaluation(self, evaluation: str) -> Path:
        """The folder of one evaluation."""
        return self.evals / checked_name(evaluation)

    def feedback_of(self, candidate: str) -> Path:
        """The feedback folder of one candidate."""
        return self.feedback / checked_name(candidate)

    def snapshot(self, snapshot: str) -> Path:
        """The materialised tree of one snapshot."""
        return self.snapshots / checked_name(snapshot)

    def log(self, name: str) -> Path:
        """The file of one log: runner, agent, grader, engine, train."""
        return self.logs / f"{checked_name(name)}.log"

    # -- configuration

    def write_config(self, text: str, digest: str) -> None:
        """Write run.toml: one line with the digest, then ``text``, atomically."""
        write_atomic(self.config_file, f'digest = "{digest}"\n{text}'.encode())

    def read_config(self) -> tuple[str, str]:
        """The text and the digest of run.toml."""
        try:
            whole = self.config_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise JournalError("cannot be read", where=str(self.config_file), do="name a run folder") from error
        first = _DIGEST_LINE.match(whole)
        if first is None:
            raise JournalError("has no digest", where=str(self.config_file), do="start a new run")
        return whole[first.end() :], first[1]

    # -- lock

    def acquire(self) -> RunLock:
        """Take the writer's lock, at once or not at all: raises RunLocked when another process holds it."""
        try:
            fd = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise JournalError((error.strerror or "cannot be opened").lower(), where=str(self.lock_file)) from error
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _flock(fcntl.F_WRLCK))
        except (BlockingIOError, PermissionError):
            os.close(fd)
            do = "watch it with `runner watch`, or wait until it ends"
            raise RunLocked("another process holds this run", where=str(self.path), do=do) from None
        except OSError as error:
            os.close(fd)
            do = "use a file system with locks"
            raise JournalError((error.strerror or "no lock").lower(), where=str(self.lock_file), do=do) from error
        return RunLock(fd)

    # -- requests from people

    def request(self, what: Request) -> None:
        """Ask the runner of this run to stop, so that `runner resume` can go on, or to die at once."""
        try:
            write_atomic(self.control / what, b"")
        except OSError as error:
            raise JournalError((error.strerror or "cannot be written").lower(), where=str(self.control)) from error

    def request_stop(self) -> None:
        """Ask the runner to stop."""
        self.request("stop")

    def requested(self) -> Request | None:
        """The strongest request that waits, if any."""
        for what in ("kill", "stop"):
            if (self.control / what).exists():
                return "kill" if what == "kill" else "stop"
        return None

    def stop_requested(self) -> bool:
        """Does any request wait?"""
        return self.requested() is not None

    def clear_requests(self) -> None:
        """Forget requests: they were honoured, or they were meant for the process before."""
        for what in ("kill", "stop"):
            with contextlib.suppress(OSError):
                (self.control / what).unlink()


def checked_name(name: str) -> str:
    """``name`` if it is one plain path part; raises JournalError otherwise."""
    if not _NAME.fullmatch(name):
        raise JournalError(f"{name[:80]!a} is not a name", do="use letters, digits, '.', '_' and '-'")
    return name


def _fresh(parent: Path, now: datetime) -> RunDir:
    for size in (2, 2, 2, 2, 4, 4, 4, 4):
        path = parent / f"{now:%Y-%m-%dT%H-%M-%S}-{os.urandom(size).hex()}"
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
            return RunDir(path)
    raise JournalError("no free run name", where=str(parent), do="try again")


def _flock(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)


def holder_alive(path: Path) -> bool:
    """Does a process hold the lock file at ``path``? Asks with F_OFD_GETLK and takes nothing."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _flock(fcntl.F_WRLCK))
    except OSError:
        return False
    finally:
        os.close(fd)
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)


def list_runs(root: Path) -> list[RunDir]:
    """Every run below ``root`` (root/task/run), newest first."""
    try:
        found = [path for path in root.glob("*/*") if _RUN_NAME.fullmatch(path.name) and path.is_dir()]
    except OSError:
        found = []
    return [RunDir(path) for path in sorted(found, key=lambda path: (path.name, path.parent.name), reverse=True)]


def find(root: Path, name: str = "latest") -> RunDir:
    """The run that ``name`` means: ``latest``, a path, a run's name or a part of it that fits only one."""
    if name != "latest" and (Path(name) / "journal.jsonl").exists():
        return RunDir(Path(name).resolve())
    runs = list_runs(root)
    if not runs:
        raise JournalError("no runs here", where=str(root), do="start one with `runner --task aime`")
    if name == "latest":
        return runs[0]
    fits = [run for run in runs if run.name == name] or [run for run in runs if name and name in run.name]
    if len(fits) == 1:
        return fits[0]
    what = f"{len(fits)} runs fit {name[:80]!a}" if fits else f"no run is called {name[:80]!a}"
    raise JournalError(what, where=str(root), do="list them with `runner ls`")
