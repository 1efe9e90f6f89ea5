"""Is CUDA there inside the sandboxes of a run, and what does the whole stack do on it? Called by scripts/gpu_check.

1. engine and training profile: cuInit, a matrix product checked against the CPU's, the device's name and free memory.
2. the stack: P0 of `mini` evaluated, T0 trained for 20 steps, gated, served and evaluated again, by the code of a run.

``--device cpu`` does the second part without a GPU (``--model tiny`` in a minute): the same code, no CUDA figure.
Exit codes: 0 all passed, 1 something failed, 3 CUDA is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from isolation.bwrap import python_mounts
from isolation.problem import BenchError
from isolation.sandbox import start, use_pidfd_children
from isolation.spec import SandboxSpec
from runner.config import RunConfig
from runner.loop import baseline, evaluate
from runner.opening import Run, opened, start_event
from runner.places import model_env
from runner.record.format import score_text
from runner.record.journal import Journal
from runner.record.rundir import RunDir
from runner.research import workspace
from runner.research.budget import Budget
from runner.research.candidate import INITIAL, create
from runner.research.sandbox import training_spec
from runner.research.train import TrainingService, TrainJob
from runner.resolve import Flags, resolve
from tasks.spec import TaskError

PROBE = """
import ctypes, json
cuda = ctypes.CDLL("libcuda.so.1")
said = {"cuInit": cuda.cuInit(0)}
import torch
a = torch.arange(4096.0).reshape(64, 64) / 4096
said["torch"] = torch.__version__
said["device"] = torch.cuda.get_device_name(0)
said["free GiB"] = round(torch.cuda.mem_get_info()[0] / 2**30, 1)
said["kernel right"] = bool(torch.allclose((a.cuda() @ a.cuda().T).cpu(), a @ a.T, rtol=1e-2))
print(json.dumps(said))
"""
STEPS = 20


async def probe(spec: SandboxSpec) -> bool:
    """cuInit and one kernel in the place of ``spec``'s own program; prints what came of it."""
    python = str(model_env() / "bin" / "python")
    box = await start(
        replace(spec, argv=(python, "-c", PROBE)), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert box.stdout is not None and box.stderr is not None
    out, err = await asyncio.gather(box.stdout.read(), box.stderr.read())
    code = await box.wait()
    await box.kill()
    lines = (err or b"?").decode(errors="replace").strip().splitlines() or ["no output"]
    said = json.loads(out) if code == 0 and out else {"failed": lines[-1][:300]}
    print(f"{spec.profile} profile: {json.dumps(said)}", flush=True)
    return code == 0 and said.get("cuInit") == 0 and said.get("kernel right") is True


def engine_like(device: str) -> SandboxSpec:
    """The engine's profile with nothing but the model environment in it."""
    from isolation.spec import Limits

    mounts = python_mounts(model_env() / "bin" / "python")
    return SandboxSpec("engine", ("true",), mounts=mounts, limits=Limits(pids=1024), accelerator=device == "cuda")


async def stack(run: Run) -> None:
    """P0, T0 for 20 steps, the gate, and the trained model on the same harness; prints the figures."""
    await baseline(run)
    state = run.journal.state
    first = state.candidates[INITIAL]
    print(f"P0 on validation: {score_text(first.validation)}; {rate(run, first.eval)}", flush=True)
    recipe = run.rundir.workspace / "trainer" / "recipe.toml"
    text = recipe.read_text()
    recipe.write_text(text.replace("\nmax_steps = 0", f"\nmax_steps = {STEPS}", 1))
    data, trainer = await workspace.snapshot(run.lab, "data"), await workspace.snapshot(run.lab, "trainer")
    began = time.monotonic()
    job = TrainJob("j001", (), data, trainer, "20 steps", lambda _: None)
    made = await TrainingService(run.lab, run.registry).run(job, lambda: "cut")
    rows = [json.loads(line) for line in (run.rundir.model(made.model) / "train.jsonl").read_text().splitlines()]
    last = rows[-1]
    speed = f"{last['tokens'] / last['seconds']:.0f} tokens/s" if last.get("seconds") else "no speed"
    print(
        f"T0, {last['step']} steps: loss {rows[0]['loss']:.3f} → {last['loss']:.3f}, {speed}, "
        f"{time.monotonic() - began:.1f} s with start and gate",
        flush=True,
    )
    harness = state.candidates[INITIAL].harness
    candidate = await create(
        run.lab, run.registry, model=made.model, harness=harness, parent=INITIAL, hypothesis="20 steps of T0"
    )
    await evaluate(run, candidate, "j002")
    done = run.journal.state.candidates[candidate.id]
    print(f"trained: {score_text(done.validation)}; {rate(run, done.eval)}", flush=True)


def rate(run: Run, evaluation: str) -> str:
    """Problems a minute and tokens a second of one evaluation."""
    score = json.loads((run.rundir.evaluation(evaluation) / "score.json").read_text())
    samples = score["score"]["n"] * score["score"]["samples"]
    per_second = score["tokens_out"] / score["seconds"]
    return f"{60 * samples / score['seconds']:.0f} problems/min, {per_second:.0f} tokens/s out"


async def main(args: argparse.Namespace) -> int:
    config = configuration(args)
    work = Path(args.work).absolute()
    rundir = RunDir.create(work, config.task, datetime.now())
    lock = rundir.acquire()
    budget = Budget(config.budget)
    journal = Journal.create(rundir.journal_file, budget.el)
    try:
        if args.device == "cuda":
            passed = await probe(engine_like("cuda"))
            if not passed:
                print("CUDA is missing or does not work in the sandbox: GPU not measured", flush=True)
                return 3
        journal.append(start_event(config, rundir))
        async with opened(config, rundir, journal, budget, wait=True, resumed=False) as run:
            if args.device == "cuda":
                place = run.rundir.workspace / "trainer"
                out = work / "out"
                out.mkdir()
                spec = training_spec(run.lab, data=place, trainer=place, parents=(), out=out, metrics_fd=2)
                if not await probe(replace(spec, pass_fds=())):
                    return 1
            await stack(run)
    finally:
        journal.close()
        lock.release()
    print(f"gpu_check passed on {args.device} ({journal.state.head.task.engine if journal.state.head.task else '?'})")
    return 0


def configuration(args: argparse.Namespace) -> RunConfig:
    sets = (f"engine.device={json.dumps(args.device)}", "budget.wall_s=3600.0")
    return resolve(Flags(task="aime", problems="mini", model=args.model, profile="laptop", sets=sets))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    use_pidfd_children()
    try:
        sys.exit(asyncio.run(main(parser.parse_args())))
    except (BenchError, TaskError) as error:
        print(f"gpu_check: {error}", file=sys.stderr)
        sys.exit(1)
