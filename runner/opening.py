"""Everything a run holds while it lives: machine lock, walls, grader, workspace. Opened in order, closed whole."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from grader.errors import GraderError
from grader.protocol import GraderSetup, Noticed
from isolation import limits, probe
from isolation.bwrap import base_python, shown_to_all
from isolation.problem import SandboxError
from runner import protocols
from runner.config import RunConfig
from runner.plain import PlainPrinter
from runner.record.events import Integrity, IsolationChecked, PhaseChanged, RunStarted, TaskLoaded, Warned
from runner.record.journal import Journal
from runner.record.liveness import boot_id
from runner.record.rundir import RunDir
from runner.research import workspace
from runner.research.budget import Budget
from runner.research.candidate import Registry
from runner.research.lab import Lab
from runner.research.lease import Lease, machine_lock
from runner.research.memory import MemoryPlan, beside_memory, engine_memory, machine_memory, plan_memory
from runner.steady import SteadyGrader
from tasks import registry as tasks_registry
from tasks.spec import TaskError


@dataclass(slots=True)
class Run:
    """An open run. ``runtime`` is a short private folder for sockets; it is removed when the run is closed."""

    config: RunConfig
    rundir: RunDir
    journal: Journal
    budget: Budget
    grader: SteadyGrader
    lab: Lab
    registry: Registry
    runtime: Path
    resumed: bool = False
    stopping: asyncio.Event = field(default_factory=asyncio.Event)


def program_version() -> str:
    """Our distribution's version, as the journal records it."""
    try:
        return version("vibetraining-bench")
    except PackageNotFoundError:
        return "unknown"


def start_event(config: RunConfig, rundir: RunDir) -> RunStarted:
    """The first event of a run."""
    spec = tasks_registry.load_spec(config.task).sets[config.problems]
    # Problems from files are comparable with the benchmark only if they are the benchmark's: nobody here can know.
    comparable = spec.comparable and config.profile == "workstation"
    return RunStarted(
        run=rundir.name,
        task=config.task,
        problems=config.problems,
        model=config.model,
        agent=config.agent,
        scope=config.scope,
        seed=config.seed,
        samples=config.samples,
        profile=config.profile,
        protocol=config.protocol,
        budget=config.budget,
        config_digest=config.digest(),
        boot_id=boot_id(),
        version=program_version(),
        comparable=comparable,
        official_seed=config.official_seed,
        recipe_fields=config.recipe_fields,
        teacher=config.teacher_model,
    )


def budget_of(config: RunConfig) -> Budget:
    """The budget of a run, with what an hour of its accelerator costs."""
    price = config.llm.accelerator_hour_price if config.llm and config.engine.device == "cuda" else None
    return Budget(config.budget, accelerator_hour_price=price)


async def check_walls(journal: Journal, allowed: tuple[str, ...]) -> None:
    """Probe the walls of this machine and journal what is weak. Raises SandboxError for a missing one not allowed."""
    findings = await probe.probe()
    gone = [finding for finding in probe.missing(findings) if finding.name not in allowed]
    if gone:
        first = gone[0]
        do = first.do or f"`runner doctor` says more; --allow-weak {first.name} runs without it and is recorded"
        raise SandboxError(f"a wall is missing: {first.what}", where=first.name, do=do)
    weak = tuple(sorted(finding.name for finding in probe.weak(findings)))
    missing = tuple(sorted(finding.name for finding in probe.missing(findings)))
    event = IsolationChecked(weak=weak, allowed=missing)
    state = journal.state.head.isolation
    if state != event:
        journal.append(event, sync=True)


def check_places(config: RunConfig, rundir: RunDir) -> None:
    """Raises SandboxError where something secret lies in a folder that sandboxes are given for another reason."""
    pythons = (base_python(), Path(config.model_env) / "bin" / "python")
    secret = {
        "the run's folder": rundir.path,
        "the program itself": Path(__file__).parents[1] / "tasks",
        "the validation problems": config.validation_file,
        "the hidden problems": config.hidden_file,
        "the key of the research model": config.llm.key_file if config.llm else None,
        "the key of the teacher": config.teacher.key_file if config.teacher else None,
    }
    for what, place in secret.items():
        if place is None:
            continue
        folder = shown_to_all(Path(place), *pythons)
        if not folder and Path(place).resolve().is_relative_to(Path(config.base_dir).resolve()):
            folder = config.base_dir
        if folder:
            do = f"Move it out of {folder} (a program: into a virtual environment elsewhere)"
            raise SandboxError(f"{what} would be open to every sandbox", where=str(place), do=do)


def _make_runtime() -> Path:
    """A private folder with a short path: socket paths are limited to 108 bytes."""
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    parent = base if base and len(base) < 40 and os.access(base, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="vtb-", dir=parent))


def _setup(config: RunConfig, rundir: RunDir, runtime: Path, memory: int) -> GraderSetup:
    grader_runtime = runtime / "g"
    grader_runtime.mkdir(mode=0o700, exist_ok=True)
    (rundir.model("m00") / "weights").mkdir(parents=True, exist_ok=True)
    return GraderSetup(
        id="setup",
        task=config.task,
        problems=config.problems,
        validation=config.validation_file,
        hidden=config.hidden_file,
        samples=config.samples,
        seed=config.seed,
        hidden_seed=config.official_seed,
        decoding=config.decoding,
        limits=config.limits,
        engine=config.engine,
        engine_memory=memory,
        model_env=config.model_env,
        base_dir=config.base_dir,
        models_dir=str(rundir.models),
        runtime_dir=str(grader_runtime),
        log_dir=str(rundir.logs),
        cgroup=":".join(map(str, limits.backend().roots)) or None,
    )


async def _open_grader(run_journal: Journal, grader: SteadyGrader, protocol: str) -> int:
    """Start the grader, journal what it loaded, refuse splits that overlap; the number of validation problems."""
    loaded = await grader.start()
    if loaded.overlap and not (loaded.same and protocols.allows_same(protocol)):
        raise TaskError(
            "validation and hidden share a problem", where="the splits", do="Use two files without a common problem"
        )
    known = run_journal.state.head.isolation
    if set(loaded.weak) - set(known.weak if known else ()):  # what holds here need not hold in the grader's process
        run_journal.append(IsolationChecked(weak=loaded.weak, allowed=()), sync=True)
    event = TaskLoaded(validation=loaded.validation, hidden=loaded.hidden, engine=loaded.engine, same=loaded.same)
    before = run_journal.state.head.task
    if before is not None and (before.validation, before.hidden) != (event.validation, event.hidden):
        raise GraderError("the problems changed since the run began", where="the splits", do="Restore the files")
    if before != event:
        run_journal.append(event, sync=True)
    return loaded.validation.count


def shared_memory(config: RunConfig, total: int) -> tuple[int, MemoryPlan]:
    """The bytes of the grader's engine on a machine of ``total`` bytes, and everybody's share beside it.

    Raises ConfigError where a model that the agent asks does not fit beside it.
    """
    engine = config.engine_memory or engine_memory(config.engine, Path(config.base_dir), total)
    asked = (config.llm if config.agent_model else None, config.teacher if config.teacher_model else None)
    local = [llm.local for llm in asked if llm is not None and llm.local is not None]
    return engine, plan_memory(total, engine, beside_memory(local, total, engine))


@asynccontextmanager
async def opened(
    config: RunConfig, rundir: RunDir, journal: Journal, budget: Budget, *, wait: bool, resumed: bool
) -> AsyncIterator[Run]:
    """An open run around the block. Everything it started is dead, and the journal on the disk, when this returns."""

    def notice(seen: Noticed) -> None:
        if seen.level == "integrity":
            journal.append(Integrity(what=seen.what, where=seen.where, detail=seen.detail))
        else:
            journal.append(Warned(what=seen.what, where=seen.where, do=seen.detail))

    def waiting(who: str) -> None:
        journal.append(PhaseChanged(phase="waiting"))
        journal.append(Warned(what=f"waiting for this machine: {who} holds it", where="machine lock"))

    engine, memory = shared_memory(config, machine_memory())
    device = "gpu0" if config.engine.device == "cuda" else "cpu"
    machine = await machine_lock(device, wait=wait, on_wait=waiting, owner=f"run {rundir.name} (pid {os.getpid()})")
    runtime = _make_runtime()
    grader = SteadyGrader(_setup(config, rundir, runtime, engine), rundir.log("grader"), notice)
    try:
        check_places(config, rundir)
        await check_walls(journal, config.allow_weak)
        problems = await _open_grader(journal, grader, config.protocol)
        lab = Lab(
            config=config,
            rundir=rundir,
            journal=journal,
            grader=grader,
            budget=budget,
            lease=Lease(journal, lambda seconds: budget.charge(accelerator_s=seconds)),
            runtime=runtime,
            memory=memory,
            problems=problems,
            official_is_selection=journal.state.head.task is not None and journal.state.head.task.same,
        )
        workspace.prepare(lab, lambda folder, sources: _lay_out(config, folder, sources))
        yield Run(config, rundir, journal, budget, grader, lab, Registry.of(journal), runtime, resumed)
    finally:
        with suppress(GraderError):
            await grader.close()
        shutil.rmtree(runtime, ignore_errors=True)
        machine.release()


def _lay_out(config: RunConfig, folder: Path, sources: Path) -> None:
    from tasks.aime.layout import lay_out

    lay_out(config.problems, folder, sources, [Path(path) for path in config.source_files])


def printer(config: RunConfig, as_json: bool) -> PlainPrinter:
    """What the headless run prints to."""
    return PlainPrinter(sys.stdout, json_lines=as_json, attended=config.agent == "shell")
