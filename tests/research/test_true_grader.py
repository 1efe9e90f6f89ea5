"""The same research phase with the real grader, the tiny model, T0 and H0: nothing stands in for anything."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from phase_kit import Phase, config

from grader.client import GraderClient
from grader.errors import GraderError
from grader.ledger import Ledger
from grader.protocol import EngineConfig, GraderSetup
from isolation.privilege import bench_home
from runner.loop import hidden_test
from runner.opening import Run
from runner.record.events import BudgetLimits
from runner.record.journal import Journal
from runner.record.rundir import RunDir
from runner.research.budget import Budget
from runner.research.candidate import Registry, create_initial
from runner.research.desk import Desk
from runner.research.lab import Lab
from runner.research.lease import Lease
from runner.research.memory import machine_memory, plan_memory
from runner.research.validate import ValidationService
from runner.research.workspace import prepare, snapshot_initial, write_brief
from tasks.aime.layout import lay_out
from tasks.spec import Decoding, ProblemLimits

ROOT = Path(__file__).parents[2]
MODEL_ENV = bench_home(os.environ) / "model-env"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not (MODEL_ENV / "bin" / "python").exists(), reason="needs the model environment"),
]
SCRIPT = """
rows = open("/lab/data/train.jsonl").read().splitlines()[:64]
open("/lab/data/train.jsonl", "w").write("\\n".join(rows) + "\\n")
keep(train=ask("train", "-m", "less data"), metrics=len(open("/models/m01/train.jsonl").readlines()))
keep(validate=ask("validate"), feedback=len(os.listdir("/feedback/c01/trajectories")))
open("/lab/notes/p.jsonl", "w").write(json.dumps({"prompt": "How much is 2 + 2?"}) + "\\n")
keep(sample=ask("sample", "/lab/notes/p.jsonl", "-n", "2"))
keep(rows=open("/feedback/samples/s001.jsonl").read().count("\\n"))
ask("select", "c01")
ask("finish")
"""


def problems(path: Path, numbers: range) -> str:
    rows = [{"problem_idx": n, "problem": f"How much is {n} + {n}?", "answer": 2 * n} for n in numbers]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


async def test_train_validate_and_sample_through_the_real_grader(tmp_path: Path, short: Path) -> None:
    settings = config(
        base_dir=str(ROOT / "tasks" / "models" / "tiny"),
        model_env=str(MODEL_ENV),
        problems="aime",
        validation_file=problems(tmp_path / "v.jsonl", range(10, 18)),
        hidden_file=problems(tmp_path / "h.jsonl", range(30, 38)),
        decoding=Decoding(max_tokens=16),
        limits=ProblemLimits(think_s=60, wall_s=240),
        engine=EngineConfig(wave=8),
        budget=BudgetLimits(wall_s=300.0),
    )
    rundir = RunDir.create(tmp_path / "runs", "aime", datetime(2026, 11, 30))
    budget = Budget(settings.budget)
    journal = Journal.create(rundir.journal_file, budget.el)
    for name in ("g", "r", "r/control"):
        (short / name).mkdir(mode=0o700)
    grader = await GraderClient.start(rundir.log("grader"))
    lab = Lab(
        config=settings, rundir=rundir, journal=journal, grader=grader, budget=budget, lease=Lease(journal),
        runtime=short / "r", memory=replace(plan_memory(machine_memory(), 1 << 30), idle=False), problems=8,
    )  # fmt: skip
    try:
        prepare(lab, lambda workspace, sources: lay_out("mini", workspace, sources, ()))
        opened = await grader.call(setup(lab, short / "g"))
        assert opened.ok, opened.error
        await snapshot_initial(lab)
        registry = Registry.of(journal)
        first = await create_initial(lab, registry)
        await ValidationService(lab, registry).run(
            first, "j000", late=lambda: False, on_progress=lambda _: None, why_cancelled=lambda: "cancelled"
        )
        write_brief(lab, "Add.", seconds_per_validation=1.0)
        desk = Desk(lab, registry)
        await desk.serve(short / "r" / "control")
        budget.start()
        phase = Phase(lab, registry, desk, grader, rundir.sources, short / "r" / "control")  # type: ignore[arg-type]
        end = await phase.agent(SCRIPT)
        await desk.close()
        assert end.reason == "finished", rundir.log("agent").read_text()
        facts = phase.facts
        assert facts["train"]["model"] == "m01" and facts["train"]["format"] == "adapter" and facts["metrics"] > 0
        assert facts["validate"]["candidate"] == "c01" and facts["validate"]["score"]["n"] == 8
        assert set(facts["validate"]["components"]) == {"data"} and facts["feedback"] == 8
        assert facts["sample"]["ok"] and facts["rows"] >= 1
        assert registry.models["m01"].delta_norm > 0 and registry.selected == "c01"
        run = Run(settings, rundir, journal, budget, grader, lab, registry, short / "r")  # type: ignore[arg-type]
        weights = rundir.model("m01") / "adapter" / "adapter_model.safetensors"
        whole = weights.read_bytes()
        weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(GraderError, match="not what the gate let through"):
            await hidden_test(run, registry.candidates["c01"])
        weights.write_bytes(whole)
        await hidden_test(run, registry.candidates["c01"])
        assert [event.overlap for event in phase.kinds("hidden_finished")] == ["clean"]
        assert [entry.kind for entry in Ledger(rundir.sealed).read()] == ["claimed", "finished", "overlap"]
    finally:
        await grader.close()
        journal.close()


def setup(lab: Lab, runtime: Path) -> GraderSetup:
    settings = lab.config
    return GraderSetup(
        id="setup", task=settings.task, problems=settings.problems, validation=settings.validation_file,
        hidden=settings.hidden_file, samples=settings.samples, seed=settings.seed, decoding=settings.decoding,
        limits=settings.limits, engine=settings.engine, model_env=settings.model_env, base_dir=settings.base_dir,
        models_dir=str(lab.rundir.models), runtime_dir=str(runtime), log_dir=str(lab.rundir.logs), cgroup=None,
    )  # fmt: skip
