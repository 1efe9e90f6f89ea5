"""Hostile workspaces, trainers and agents, through the real sandboxes."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from runner.record.events import BudgetLimits
from runner.research.workspace import prepare


async def test_special_files_are_refused_with_one_line(phases: Any) -> None:
    phase = await phases()
    await phase.agent("""
os.symlink("/etc/passwd", "/lab/harness/x")
keep(link=ask("validate"))
os.unlink("/lab/harness/x")
os.mkfifo("/lab/data/pipe\\x1b[2J")
keep(fifo=ask("train"))
""")
    facts = phase.facts
    assert facts["link"]["code"] == 1 and "/lab/harness was refused" in facts["link"]["error"]
    assert facts["fifo"]["code"] == 1 and "\x1b" not in facts["fifo"]["text"]
    refused = phase.kinds("edit_refused")
    assert [event.component for event in refused] == ["harness", "data"]
    state = phase.lab.journal.state
    assert [job.status for job in state.jobs.values()][1:] == ["refused", "refused"]
    assert not phase.kinds("train_started") and list(phase.registry.candidates) == ["c00"]


async def test_what_a_run_starts_with_is_there_whole_or_not_at_all(phases: Any) -> None:
    """A runner that died while the task wrote its files went on with half of them."""
    phase = await phases()
    workspace, sources = phase.lab.rundir.workspace, phase.lab.rundir.sources
    shutil.rmtree(workspace)
    workspace.mkdir()

    def half(at: Path, beside: Path) -> None:
        (at / "trainer").mkdir()
        (at / "data").mkdir()
        (beside / "problems.jsonl").write_text("[")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(phase.lab, half)
    assert not any(workspace.iterdir())

    def whole(at: Path, beside: Path) -> None:
        (at / "data").mkdir()
        (at / "data" / "train.jsonl").write_text("{}\n")
        (beside / "problems.jsonl").write_text("[]\n")

    prepare(phase.lab, whole)
    assert {path.name for path in workspace.iterdir()} == {"data", "trainer", "harness", "notes", "home"}
    assert (workspace / "data" / "train.jsonl").read_text() == "{}\n" and not any((workspace / "trainer").iterdir())
    assert [path.name for path in sources.iterdir()] == ["problems.jsonl"]
    prepare(phase.lab, half)
    assert (workspace / "data" / "train.jsonl").exists(), "a resume writes nothing again"
    assert not workspace.with_name(".layout").exists()


async def test_what_is_out_of_scope_cannot_be_edited_and_is_never_read(phases: Any) -> None:
    phase = await phases(scope=("harness",))
    await phase.agent("""
def attempt(what):
    try:
        what()
        return ""
    except OSError as error:
        return error.strerror
keep(data=attempt(lambda: open("/lab/data/train.jsonl", "a")), new=attempt(lambda: open("/lab/trainer/x", "w")),
     brief=attempt(lambda: open("/lab/README.md", "a")), lab=attempt(lambda: os.mkdir("/lab/more")),
     move=attempt(lambda: os.rename("/lab/harness", "/lab/h2")), sealed=os.path.exists("/sealed"))
keep(harness=attempt(lambda: open("/lab/harness/solves", "w").write("6")))
keep(train=ask("train"))
""")
    facts = phase.facts
    assert {facts[name] for name in ("data", "new", "brief", "lab")} == {"Read-only file system"}
    assert facts["move"] and facts["harness"] == "" and not facts["sealed"]
    (phase.lab.rundir.workspace / "data" / "train.jsonl").write_text("forged\n")
    made = phase.registry.models["m01"]
    assert made.data == phase.lab.initial["data"]
    assert (await _snapshot_id(phase, "data")) == phase.lab.initial["data"]


async def _snapshot_id(phase: Any, component: Any) -> str:
    from runner.research.workspace import snapshot

    return (await snapshot(phase.lab, component)).id


TRAIN = """
open("/lab/trainer/train.py", "w").write(TRAINER)
keep(answer=ask("train"))
"""


async def test_a_trainer_that_prints_without_end_fills_nothing(phases: Any) -> None:
    phase = await phases()
    await phase.agent(
        "TRAINER = '''import sys\nfor n in range(200): sys.stdout.write(\"y\" * 1_000_000)\n"
        + """
print("\\\\x1b[31mlast words")
sys.exit(3)
\'\'\'"""
        + TRAIN
    )
    answer = phase.facts["answer"]
    assert answer["code"] == 1 and "exit 3" in answer["error"] and "last words" in answer["text"]
    assert "\x1b" not in answer["text"]
    log = phase.lab.rundir.feedback / "jobs" / phase.kinds("train_started")[0].job / "train.log"
    assert log.stat().st_size < 5 << 20
    assert list(phase.registry.models) == ["m00"] and not (phase.lab.rundir.models / "m01").exists()


async def test_a_pickle_is_refused_by_the_gate_and_noted(phases: Any) -> None:
    phase = await phases()
    await phase.agent(
        """
TRAINER = '''import pickle, sys
out = sys.argv[sys.argv.index("--out") + 1]
pickle.dump({"w": 1}, open(out + "/pytorch_model.bin", "wb"))
'''"""
        + TRAIN
    )
    assert "refused" in phase.facts["answer"]["error"]
    assert phase.kinds("train_finished")[0].status == "refused"
    assert [event.what for event in phase.kinds("integrity")] == ["checkpoint refused"]
    assert not list(phase.lab.scratch.iterdir())


async def test_a_trainer_sees_no_feedback_no_sockets_and_no_other_model(phases: Any) -> None:
    phase = await phases()
    await phase.agent(
        """
TRAINER = '''import os, sys
print(sorted(os.listdir("/")), sorted(os.listdir("/in")), os.path.exists("/run"), sorted(os.environ))
for path in ("/in/data/x", "/in/trainer/x", "/in/base/x"):
    try:
        open(path, "w")
    except OSError as error:
        print(error.strerror)
for name in ("tasks", "runner", "grader", "isolation"):
    try:
        __import__(name)
    except ImportError as error:
        print(error)
sys.exit(1)
'''"""
        + TRAIN
    )
    text = phase.facts["answer"]["text"]
    assert all(f"No module named '{name}'" in text for name in ("tasks", "runner", "grader", "isolation"))
    assert "['base', 'data', 'trainer'] False" in text and text.count("Read-only file system") == 3
    assert "'feedback'" not in text and "'lab'" not in text and "VIBE_CONTROL" not in text


async def test_parents_are_given_as_the_files_of_each_model(phases: Any) -> None:
    phase = await phases()
    await phase.agent("""
ask("train")
TRAINER = '''import os, sys
print(sys.argv[1:], os.listdir("/in/m01"), os.listdir("/in/m00"))
sys.exit(1)
'''
open("/lab/trainer/train.py", "w").write(TRAINER)
keep(answer=ask("train", "--from", "m01,m00"))
""")
    text = phase.facts["answer"]["text"]
    assert "'--parent', '/in/m01', '--parent', '/in/m00', '--out', '/out'" in text
    assert "['model.safetensors'] ['config.json']" in text


async def test_forged_and_broken_metrics_are_claims_of_bounded_size(phases: Any) -> None:
    phase = await phases()
    await phase.agent(
        """
TRAINER = '''import json, os, sys
out = sys.argv[sys.argv.index("--out") + 1]
metrics = os.fdopen(int(os.environ["VIBE_METRICS"]), "wb", buffering=0)
for line in (b"nonsense", b'{"step": NaN}', b'{"step": 1e999}', b'{"step": "1"}', b'[1]', b'{"step": -5}',
             b'{"step": 7, "steps": 9, "loss": 0.5, "evil": {"a": 1}}'):
    metrics.write(line + bytes([10]))
try:
    while True:
        metrics.write(b"x" * 100000)
except BrokenPipeError:
    pass
open(out + "/model.safetensors", "w").write("w")
'''"""
        + TRAIN
    )
    assert phase.facts["answer"]["ok"]
    rows = (phase.lab.rundir.models / "m01" / "train.jsonl").read_text().splitlines()
    assert len(rows) == 1 and '"step":7' in rows[0] and "evil" not in rows[0]
    assert [event.step for event in phase.kinds("train_progress")] == [7]


async def test_a_training_that_never_ends_is_cut_at_the_deadline(phases: Any) -> None:
    phase = await phases(budget=BudgetLimits(wall_s=8.0))
    end = await phase.agent(
        """
TRAINER = '''import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
while True:
    time.sleep(1)
'''"""
        + TRAIN
    )
    assert end.reason == "deadline"
    await asyncio.wait_for(phase.desk.close(deadline=True), 10)
    assert phase.kinds("train_finished")[0].status == "cut"
    assert phase.lab.budget.split().train > 1


async def test_a_validation_that_ends_after_the_deadline_is_late_and_not_usable(phases: Any) -> None:
    phase = await phases(budget=BudgetLimits(wall_s=5.0))
    phase.grader.open.clear()
    await phase.agent("""
open("/lab/harness/solves", "w").write("20")
vibe("validate", "--detach")
vibe("train", "--detach")
vibe("wait", "j001")
""")
    closing = asyncio.create_task(phase.desk.close(deadline=True))
    await asyncio.sleep(0)
    phase.grader.open.set()
    await closing
    assert [event.status for event in phase.kinds("validation_finished")][-1] == "late"
    assert phase.kinds("train_finished")[0].status == "cut"
    best = phase.registry.best()
    assert best is not None and best.id == "c00" and not (phase.lab.rundir.feedback / "c01").exists()


async def test_a_failed_evaluation_is_retried_once_and_never_scored_zero(phases: Any) -> None:
    phase = await phases()
    phase.grader.failures = 3
    await phase.agent("""
open("/lab/harness/solves", "w").write("8")
keep(broken=ask("validate"), mended=ask("validate"))
""")
    facts = phase.facts
    assert facts["broken"]["code"] == 1 and "no score" in facts["broken"]["error"]
    assert facts["mended"]["score"]["score"] == 0.4 and facts["mended"]["candidate"] == "c01"
    assert [event.status for event in phase.kinds("validation_finished")] == ["ok", "failed", "ok"]


async def test_queued_validation_takes_the_model_of_the_training_ahead(phases: Any) -> None:
    phase = await phases()
    await phase.agent("""
vibe("train", "--detach")
keep(after=ask("validate"))
open("/lab/trainer/train.py", "w").write("raise SystemExit(1)")
vibe("train", "--detach")
keep(orphan=ask("validate"))
""")
    assert phase.facts["after"]["model"] == "m01"
    assert phase.facts["orphan"]["code"] == 1 and "made no model" in phase.facts["orphan"]["error"]


async def test_cancel_ends_a_job_and_keeps_its_time(phases: Any) -> None:
    phase = await phases()
    phase.grader.open.clear()
    await phase.agent("""
open("/lab/harness/solves", "w").write("8")
vibe("validate", "--detach")
vibe("train", "--detach")
time.sleep(1)
keep(second=ask("cancel", "j002"), first=ask("cancel", "j001"), end=ask("wait", "j001"), wait=ask("wait", "j002"))
""")
    facts = phase.facts
    assert facts["first"]["ok"] and facts["second"]["ok"]
    assert "j001 was cancelled" in facts["end"]["text"] and "j002 was cancelled" in facts["wait"]["text"]
    assert [event.status for event in phase.kinds("validation_finished")][-1] == "cancelled"
    assert phase.kinds("train_finished")[0].status == "cancelled"
