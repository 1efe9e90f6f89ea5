"""What the checks of a run cost: each made again on what a finished run left, counted as often as the run made it.

    python scripts/bench_walls.py RUN_FOLDER

Prints seconds for: the probe of the walls; snapshots taken through intake; files compared with the graded problems;
checkpoints through the gate; the disk meter; and what sandboxes cost more than plain processes, one per problem and
sample, as if they were started one after the other. Then wall time / (wall time − checks): what a run with everything
on takes against one with everything off. As root, run it through ``python -P -m isolation.privilege --``.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from grader import gate
from grader.protocol import Gate, GraderSetup, ModelRef, ScanPart
from grader.scan import Scanner
from grader.vault_client import Vault
from isolation import intake, probe
from isolation.bwrap import base_python, python_mounts
from isolation.sandbox import start, use_pidfd_children
from isolation.spec import SandboxSpec
from runner.config import RunConfig
from runner.record.events import HiddenFinished, ModelCreated, TrainStarted, ValidationFinished, ValidationStarted
from runner.record.journal import load, read
from runner.record.rundir import RunDir
from runner.record.state import RunState
from runner.research.sandbox import capture, meter_spec
from tasks.spec import COMPONENTS

METER_S = 10.0
"""How often the disk meter looks."""


@dataclass
class Bench:
    """A finished run and what its checks took, by name."""

    run: RunDir
    config: RunConfig
    state: RunState
    seconds: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    async def clocked(self, name: str, work: Callable[[], Awaitable[object]], times: float = 1) -> None:
        """Does it once and counts it ``times`` over."""
        begun = time.monotonic()
        await work()
        self.seconds[name] = self.seconds.get(name, 0.0) + times * (time.monotonic() - begun)
        self.counts[name] = self.counts.get(name, 0) + round(times)

    def setup(self) -> GraderSetup:
        """What the vault needs to open the run's problems."""
        config, nowhere = self.config, str(self.run.path)
        return GraderSetup(
            id="setup", task=config.task, problems=config.problems, validation=config.validation_file,
            hidden=config.hidden_file, samples=config.samples, seed=config.seed, decoding=config.decoding,
            limits=config.limits, engine=config.engine, model_env=config.model_env, base_dir=config.base_dir,
            models_dir=str(self.run.models), runtime_dir=nowhere, log_dir=nowhere, cgroup=None,
        )  # fmt: skip


async def snapshots(bench: Bench) -> None:
    """Each training takes data and trainer, each validation its harness."""
    kinds = [event.payload for event in read(bench.run.journal_file)]
    trainings = sum(isinstance(kind, TrainStarted) for kind in kinds)
    validations = sum(isinstance(kind, ValidationStarted) for kind in kinds)
    for part in COMPONENTS:
        source = bench.run.workspace / part
        with tempfile.TemporaryDirectory() as store:
            times = validations if part == "harness" else trainings
            taking = partial(intake.snapshot, source, Path(store), max_bytes=1 << 30)
            await bench.clocked("snapshots", taking, times)


async def comparisons(bench: Bench) -> None:
    """Data and trainer of every training, the harness of every candidate, and the lineage after the hidden test."""
    initial = bench.state.candidates["c00"]
    own = {initial.data, initial.trainer, initial.harness}
    vault = await Vault.start(bench.setup())
    try:
        await vault.open()
        scanner = Scanner(vault)
        known = (*(str(bench.run.snapshot(name)) for name in sorted(own)), str(bench.run.path / "sources"))
        kinds = [event.payload for event in read(bench.run.journal_file)]
        wanted = [(kind.data, kind.trainer) for kind in kinds if isinstance(kind, TrainStarted)]
        wanted += [(one.harness,) for one in bench.state.candidates.values()]
        for names in wanted:
            parts = [ScanPart(name=name, folder=str(bench.run.snapshot(name))) for name in names if name not in own]
            parts = [part for part in parts if Path(part.folder).is_dir()]
            if parts:
                await bench.clocked("comparisons", partial(scanner.scan, "validation", parts, known, ()))
        if bench.state.selected is not None:
            await vault.unseal(bench.state.selected.candidate)
            every = [ScanPart(name=f.name, folder=str(f)) for f in sorted(bench.run.snapshots.iterdir())]
            await bench.clocked("comparisons", partial(scanner.scan, "hidden", every, known, ()))
    finally:
        await vault.close()


async def gates(bench: Bench) -> None:
    """Every model that was made, through the gate once more."""
    made = [event.payload for event in read(bench.run.journal_file) if isinstance(event.payload, ModelCreated)]
    formats = {model.model: model.format for model in made}
    for model in made:
        if model.format == "base":
            continue
        out = bench.run.model(model.model) / gate.FOLDERS[model.format]
        parents = tuple(ModelRef(id=parent, format=formats[parent]) for parent in model.parents)
        with tempfile.TemporaryDirectory() as place:
            asked = Gate(id="g", out_dir=str(out), model_dir=place, model=model.model, parents=parents)
            await bench.clocked("gate", partial(checked, bench, asked))


async def checked(bench: Bench, asked: Gate) -> None:
    """One checkpoint; the parents lie where the run left them."""
    python = Path(bench.config.model_env) / "bin" / "python"
    base = Path(bench.config.base_dir)
    result = await gate.check(asked, base_dir=base, models_dir=bench.run.models, python=python)
    if not result.accepted:
        raise SystemExit(f"{asked.model} does not pass the gate: {result.refused}")


async def sandboxes(bench: Bench) -> None:
    """What a sandbox costs more than a process, for each problem and sample of all evaluations."""
    kinds = [event.payload for event in read(bench.run.journal_file)]
    validations = [kind for kind in kinds if isinstance(kind, ValidationFinished) and kind.score is not None]
    tests = [kind for kind in kinds if isinstance(kind, HiddenFinished)]
    sessions = sum(one.score.n * one.score.samples for one in validations if one.score is not None)
    sessions += sum(one.initial.n * one.initial.samples + one.selected.n * one.selected.samples for one in tests)
    python = base_python()
    argv = (str(python), "-I", "-S", "-c", "pass")

    async def boxed() -> None:
        box = await start(SandboxSpec("harness", argv, mounts=python_mounts(python)))
        await box.wait()

    async def plain() -> None:
        process = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.DEVNULL)
        await process.wait()

    costs = []
    for work in (boxed, plain):
        took = []
        for _ in range(40):
            begun = time.monotonic()
            await work()
            took.append(time.monotonic() - begun)
        costs.append(statistics.median(took))
    bench.seconds["sandboxes"] = max(0.0, costs[0] - costs[1]) * sessions
    bench.counts["sandboxes"] = sessions


async def measure(bench: Bench, wall: float) -> None:
    """All of them."""
    await bench.clocked("probe", probe.probe)
    await snapshots(bench)
    await comparisons(bench)
    await gates(bench)
    folders = {part: bench.run.workspace / part for part in COMPONENTS}
    metering = partial(capture, meter_spec(folders), b"", limit=1 << 20, timeout_s=60)
    await bench.clocked("disk meter", metering, wall / METER_S)
    await sandboxes(bench)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("run", type=Path)
    run = RunDir(parser.parse_args().run.resolve())
    text, _ = run.read_config()
    config = RunConfig.from_toml(text, "run.toml")
    events = list(read(run.journal_file))
    wall = events[-1].t - events[0].t
    bench = Bench(run, config, load(run.journal_file))
    use_pidfd_children()
    asyncio.run(measure(bench, wall))
    for name, seconds in bench.seconds.items():
        print(f"{name:12} {bench.counts[name]:6}  {seconds:7.2f} s")
    checks = sum(bench.seconds.values())
    print(
        f"{'all checks':12} {'':6}  {checks:7.2f} s of {wall:.0f} s: {wall / (wall - checks):.3f} times a run without"
    )


if __name__ == "__main__":
    main()
