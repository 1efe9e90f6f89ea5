"""``runner matrix``: agents × tasks × scopes × seeds, each cell a normal run of ``runner``, one after another.

A cell is its resolved configuration: a run whose frozen digest is the cell's *is* the cell, so nothing else has to be
remembered and a matrix that was killed goes on with the same command. A lock, inherited by the run under way, keeps a
second matrix (or a resumed one) waiting until that run is over, even when the matrix itself was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Annotated, Literal

import tomli
from pydantic import Field, ValidationError

from runner.config import ConfigError
from runner.errors import RunStopped
from runner.record.journal import JournalError, load
from runner.record.liveness import Liveness, liveness
from runner.record.rundir import RunDir, list_runs
from tasks.spec import Frozen

PRESETS: dict[str, tuple[str, ...]] = {
    "ablation": ("data", "trainer", "harness", "data+trainer", "data+trainer+harness"),
}
LOCK = ".matrix.lock"
_WORDS = ("problems", "hidden", "model", "budget", "samples", "profile", "protocol", "policy")

Standing = Literal["done", "running", "to resume", "to start"]
Execute = Callable[[Sequence[str], int], int]  # (command, inherited lock) → exit code: the seam for other engines


class Common(Frozen):
    """The flags that all cells share, as on the command line."""

    problems: str | None = None
    hidden: str | None = None
    model: str | None = None
    budget: str | None = None
    samples: int | None = None
    profile: str | None = None
    protocol: str | None = None
    policy: str | None = None
    sources: tuple[str, ...] = ()
    allow_weak: tuple[str, ...] = ()
    set: tuple[str, ...] = ()


class Plan(Frozen):
    """A matrix as its TOML file says it. ``scopes`` None: each task's own."""

    agents: Annotated[tuple[str, ...], Field(min_length=1)] = ("scripted",)
    tasks: Annotated[tuple[str, ...], Field(min_length=1)] = ("aime",)
    scopes: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    seeds: Annotated[tuple[int, ...], Field(min_length=1)] = (0, 1, 2)
    run: Common = Common()


@dataclass(frozen=True, slots=True)
class Cell:
    """One run to be had: the arguments of ``runner`` and the digest of the configuration that they resolve to."""

    name: str
    arguments: tuple[str, ...]
    digest: str


def read_plan(file: Path | None, preset: str | None, seeds: int | None, budget: str | None) -> Plan:
    """The plan of a file, of a preset, or of both; ``seeds`` and ``budget`` of the command line win."""
    fields = _read(file) if file is not None else {}
    if preset is not None:
        if preset not in PRESETS:
            raise ConfigError(f"no preset {preset[:40]!r}", where="--preset", do=f"Known: {', '.join(PRESETS)}")
        fields.setdefault("scopes", PRESETS[preset])
    if seeds is not None:
        if not 1 <= seeds <= 1000:
            raise ConfigError("must be 1 to 1000", where="--seeds", do="Give how many seeds each cell gets")
        fields["seeds"] = tuple(range(seeds))
    try:
        plan = Plan.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        do = "Keys: agents, tasks, scopes, seeds, and [run] with flags of `runner`"
        raise ConfigError(f"{where}: {first['msg']}", where=str(file or "--preset"), do=do) from None
    return plan if budget is None else plan.model_copy(update={"run": plan.run.model_copy(update={"budget": budget})})


def _read(file: Path) -> dict[str, object]:
    try:
        return dict(tomli.loads(file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("cannot be read", where=str(file), do="Name a TOML file, or use --preset") from error
    except tomli.TOMLDecodeError as error:
        raise ConfigError(f"is not TOML: {error}", where=str(file), do="Mend the file") from None


def cells(plan: Plan, digest: Callable[[Sequence[str]], str]) -> list[Cell]:
    """Every cell, seeds outermost so that early results hold all systems. ``digest`` resolves a cell's arguments.

    Raises ConfigError for a cell that cannot run, before any has begun, and for cells that are the same run twice.
    """
    found: dict[str, Cell] = {}
    for seed, task, agent, scope in product(plan.seeds, plan.tasks, plan.agents, plan.scopes or (None,)):
        arguments = [
            "--task",
            task,
            "--agent",
            agent,
            "--seed",
            str(seed),
            *([] if scope is None else ["--scope", scope]),
        ]
        arguments += _common(plan.run)
        name = f"{task} · {agent} · {scope or 'default scope'} · seed {seed}"
        cell = Cell(name, tuple(arguments), digest(arguments))
        if cell.digest in found:
            do = "Name each agent, task, scope and seed once"
            raise ConfigError(f"{name} is the same run as {found[cell.digest].name}", where="the matrix", do=do)
        found[cell.digest] = cell
    return list(found.values())


def _common(run: Common) -> Iterator[str]:
    for word in _WORDS:
        if (value := getattr(run, word)) is not None:
            yield from (f"--{word}", str(value))
    for flag, values in (("--sources", run.sources), ("--allow-weak", run.allow_weak), ("--set", run.set)):
        for value in values:
            yield from (flag, value)


def standing(cell: Cell, runs: Sequence[RunDir]) -> tuple[Standing, RunDir | None]:
    """Where a cell stands, by the runs of its digest, newest first."""
    unfinished: RunDir | None = None
    for run in runs:
        if digest_of(run) != cell.digest or not run.journal_file.exists():
            continue
        state = load(run.journal_file)
        if state.finished is not None and state.finished.status in ("ok", "no_score"):
            return "done", run
        if liveness(run, state) in (Liveness.LIVE, Liveness.QUIET):
            return "running", run
        unfinished = unfinished or run
    return ("to resume", unfinished) if unfinished is not None else ("to start", None)


def digest_of(run: RunDir) -> str:
    """The digest of the frozen configuration of a run; empty where it has none."""
    try:
        return run.read_config()[1]
    except JournalError:
        return ""


@contextlib.contextmanager
def locked(root: Path, *, wait: bool, say: Callable[[str], None]) -> Iterator[int]:
    """Hold the matrix lock of a folder of runs; yields its descriptor, which runs inherit."""
    root.mkdir(parents=True, exist_ok=True)
    handle = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                do = "Wait, or use another --runs folder"
                raise ConfigError(
                    "another matrix, or a run that it started, is at work", where=str(root), do=do
                ) from None
            say("another matrix, or a run that it started, is at work here: waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def run_matrix(plan: Sequence[Cell], root: Path, lock: int, execute: Execute, say: Callable[[str], None]) -> list[str]:
    """Bring every cell to its end, in order; returns what did not get there. Raises RunStopped when a person stops.

    A cell that fails is tried once a call: its run is resumed where there is one.
    """
    open_cells: list[str] = []
    for n, cell in enumerate(plan, 1):
        how, run = standing(cell, list_runs(root))
        say(f"cell {n} of {len(plan)}: {cell.name}: {how}" + (f" ({run.name})" if run else ""))
        if how == "done":
            continue
        if how == "running":
            open_cells.append(f"{cell.name}: run {run.name if run else ''} is at work outside this matrix")
            continue
        command = ["resume", str(run.path)] if run is not None else list(cell.arguments)
        code = execute([*command, "--runs", str(root)], lock)
        if code == 130:
            raise RunStopped("stopped", where=cell.name, do="The same command goes on")
        if standing(cell, list_runs(root))[0] != "done":
            open_cells.append(f"{cell.name}: exit code {code}")
    return open_cells


def here(arguments: Sequence[str], lock: int, program: Sequence[str] = ()) -> int:
    """Run one command of ``runner`` on this machine, to its end. Signals to us go on to it, once each."""
    argv = [*(program or (sys.executable, "-P", "-m", "runner")), *arguments]
    sys.stdout.flush()
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, pass_fds=(lock,), process_group=0) as child:

        def forward(number: int, _: FrameType | None) -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, number)

        before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        try:
            return child.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
