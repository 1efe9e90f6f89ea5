"""The index of candidates survives a restart; diffs are made in a sandbox and bounded."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.record.journal import Journal
from runner.research.candidate import Registry
from runner.research.train import parse_metric
from runner.research.workspace import materialised, prepare

SCRIPT = """
open("/lab/harness/solves", "w").write("9")
ask("validate", "-m", "first")
ask("train")
ask("validate")
ask("select", "c01")
"""


async def test_a_reopened_journal_gives_the_same_index(phases: Any) -> None:
    phase = await phases()
    await phase.agent(SCRIPT)
    phase.lab.journal.close()
    journal = Journal.reopen(phase.lab.rundir.journal_file, lambda: 0.0)
    again = Registry.of(journal)
    assert again.candidates == phase.registry.candidates and again.models == phase.registry.models
    assert again.selected == "c01" and again.last_validated == phase.registry.last_validated == "c02"
    assert [again.next_id("c", 2), again.next_id("m", 2), again.next_id("e", 3)] == ["c03", "m02", "e004"]
    assert again.next_id("j", 3) == phase.registry.next_id("j", 3)


def _cut(path: Path) -> None:
    path.write_bytes(b"")


def _changed(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def _linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _added(path: Path) -> None:
    path.with_name("sitecustomize.py").write_text("raise SystemExit")


@pytest.mark.parametrize("harm", [_cut, _changed, Path.unlink, _linked, _added])
async def test_what_lies_under_a_snapshots_name_is_that_snapshot_or_is_made_anew(phases: Any, harm: Any) -> None:
    """A machine that loses its power leaves names without contents; a resumed run would have graded those."""
    phase = await phases()
    lab = phase.lab
    harness = lab.initial["harness"]
    main = await materialised(lab, harness) / "main.py"
    whole = main.read_bytes()
    harm(main)
    resumed = dataclasses.replace(lab, laid_out=set())
    assert await materialised(resumed, harness) == main.parent
    assert not main.is_symlink() and main.read_bytes() == whole
    assert sorted(path.name for path in main.parent.iterdir()) == ["main.py", "solves"]
    assert [event.where for event in phase.kinds("warning")] == [harness]
    assert await materialised(dataclasses.replace(lab, laid_out=set()), harness) == main.parent
    assert len(phase.kinds("warning")) == 1


async def test_what_a_crash_left_half_made_does_not_stop_the_next_training(phases: Any) -> None:
    phase = await phases()
    (phase.lab.rundir.models / "m01" / "weights").mkdir(parents=True)
    (phase.lab.scratch / "j900" / "out").mkdir(parents=True)
    await phase.agent('keep(train=ask("train"))')
    assert phase.facts["train"]["model"] == "m01"
    assert not list(phase.lab.scratch.iterdir())


async def test_a_copy_that_a_crash_cut_short_does_not_stay_on_the_disk(phases: Any) -> None:
    phase = await phases()
    store, snapshots = phase.lab.rundir.store, phase.lab.rundir.snapshots
    kept = {*store.rglob("*"), *snapshots.rglob("*")}
    (store / "staging-x1" / "out").mkdir(parents=True)
    (store / "staging-x1" / "out" / "0").write_bytes(bytes(1000))
    (snapshots / ".0123456789abcdef.x2" / "deep").mkdir(parents=True)
    workspace = sorted(phase.lab.rundir.workspace.rglob("*"))
    prepare(phase.lab, lambda _folder: pytest.fail("laid out twice"))
    assert {*store.rglob("*"), *snapshots.rglob("*")} == kept
    assert sorted(phase.lab.rundir.workspace.rglob("*")) == workspace


async def test_diffs_say_what_moved(phases: Any) -> None:
    phase = await phases()
    await phase.agent("""
rows = [{"prompt": "1+1", "completion": "= 2"}]
rows += [{"prompt": f"{n}+{n}", "completion": str(2 * n)} for n in range(2, 50)]
open("/lab/data/train.jsonl", "w").write("".join(json.dumps(row) + "\\n" for row in rows))
open("/lab/harness/blob", "wb").write(bytes(range(256)) * 2000)
open("/lab/harness/main.py", "a").write("# \\x1b[31mred\\n" * 3)
ask("train")
keep(answer=ask("validate"))
""")
    assert phase.facts["answer"]["components"] == ["data", "harness"]
    created = phase.kinds("candidate_created")[-1]
    assert (created.diff["data"].added, created.diff["data"].removed) == (49, 1)
    assert created.diff["harness"].files == 2
    folder: Path = phase.lab.rundir.candidate("c01") / "diffs"
    data = json.loads((folder / "data.json").read_text())
    assert data["changed"] == 1 and data["rows_after"] == 49 and len(data["samples"]["added"]) == 10
    patch = (folder / "harness.patch").read_text()
    assert patch.count("\n+# ") == 3 and "blob: not shown" in patch
    manifest = json.loads((folder.parent / "manifest.json").read_text())
    assert manifest["candidate"] == "c01" and manifest["parent"] == "c00"


@given(st.binary(max_size=300))
@settings(database=None, deadline=None)
def test_any_bytes_are_a_metric_or_none(line: bytes) -> None:
    row = parse_metric(line)
    if row is not None:
        assert row.step >= 0 and all(math.isfinite(value) for value in row.model_dump().values() if value is not None)


def test_metrics_keep_known_finite_numbers_alone() -> None:
    good = parse_metric(b'{"step": 3, "steps": 10, "loss": 0.25, "lr": 1e-4, "note": "x"}')
    assert good is not None and (good.step, good.steps, good.loss) == (3, 10, 0.25)
    for bad in (b'{"step": true}', b'{"step": 1e30}', b'{"loss": 1}', b'{"step": 1, "loss": -1e300}', b"", b"null"):
        assert parse_metric(bad) is None, bad
