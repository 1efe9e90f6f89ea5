"""Hidden problems in what a candidate came from: compared after the test, sealed, reported, and never told before."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from attack_kit import open_vault

sys.path.append(str(Path(__file__).parents[1] / "grader"))
from eval_kit import HONEST
from test_server import DUMB, Desk, serving

from grader.errors import GraderError
from grader.protocol import GraderSetup, HiddenResult, Overlap, ScanResult
from runner.research.contamination import record_hidden
from tasks.aime.task import AimeTask

HIDDEN = 4


def seeds(root: Path) -> dict[str, Any]:
    """Two small splits of the mini set."""
    files = {}
    for split in ("validation", "hidden"):
        files[split] = root / f"{split}.toml"
        files[split].write_text(f'seed = "attack/{split}"\nproblems = {HIDDEN}\n')
    return files


class MiniDesk(Desk):
    """The grader's requests over a small mini set."""

    def setup(self, wave: int = 8) -> GraderSetup:
        files = {split: str(path) for split, path in seeds(self.root).items()}
        return super().setup(wave).model_copy(update={"problems": "mini", **files})


async def test_hidden_problems_in_the_lineage_are_sealed_evidence_without_their_text(tmp_path: Path) -> None:
    one = AimeTask().load("mini", "hidden", seeds(tmp_path))[2]
    data = tmp_path / "snapshot"
    data.mkdir()
    (data / "train.jsonl").write_text('{"prompt": "clean"}\n' + json.dumps({"prompt": one.question}) + "\n")
    async with serving(tmp_path, kind=MiniDesk) as desk:
        asked = {
            "run": "run1", "candidate": "c07", "model": {"id": "m00", "format": "base"}, "known": [],
            "harness_dir": desk.harness("h", HONEST), "initial_harness_dir": desk.harness("h0", DUMB),
            "sealed_dir": str(tmp_path / "sealed"), "lineage": [{"name": "m01 data", "folder": str(data)}],
        }  # fmt: skip
        reply = await desk.post(op="hidden", **asked)
        assert reply["ok"], reply["error"]
        found = HiddenResult.model_validate(reply["result"]).overlap
        again = HiddenResult.model_validate((await desk.post(op="hidden", **asked))["result"])
    expected = Overlap(part="m01 data", path="train.jsonl", line=2, problem=one.id, how="question")
    assert (found.status, found.overlaps) == ("found", (expected,))
    assert again.overlap == found
    lines = [json.loads(line) for line in (tmp_path / "sealed" / "ledger.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["claimed", "finished", "overlap"]
    assert one.question not in json.dumps(lines) and one.question not in json.dumps(desk.sent)


async def test_the_hidden_split_is_not_compared_before_the_claim(tmp_path: Path) -> None:
    vault = await open_vault(**{name: str(path) for name, path in seeds(tmp_path).items()})
    try:
        with pytest.raises(GraderError, match="sealed"):
            await vault.index("hidden")
        await vault.unseal("c01")
        assert not await vault.index("hidden")
    finally:
        await vault.close()


async def test_what_was_found_is_in_the_journal_and_what_was_not_checked_is_said(phases: Any) -> None:
    phase = await phases()
    found = Overlap(part="m01 data", path="train.jsonl", line=2, problem="h003", how="question", via="base64")
    record_hidden(phase.lab, ScanResult(status="found", overlaps=(found,), more=3))
    record_hidden(phase.lab, ScanResult(status="not_checked", unchecked=("m01 data/x.zst: zstd",)))
    record_hidden(phase.lab, ScanResult(status="clean"))
    events = phase.kinds("integrity")
    assert [event.what for event in events] == ["hidden problems in the selected candidate"] * 2
    assert (events[0].where, events[0].detail) == ("m01 data/train.jsonl", "line 2 (h003; question in base64)")
    assert ["zstd" in event.what for event in phase.kinds("warning")] == [True]


async def test_no_word_of_a_hidden_problem_lies_outside_the_sealed_folder(tmp_path: Path) -> None:
    """Of a run with a hidden test: not in what it writes, not in what it says, and nothing before the claim."""
    hidden = AimeTask().load("mini", "hidden", seeds(tmp_path))
    async with serving(tmp_path, kind=MiniDesk) as desk:
        assert (await desk.evaluate(desk.harness("h", HONEST)))["ok"]
        before = {path for path in tmp_path.rglob("*") if path.is_file()}
        assert not (tmp_path / "sealed").exists()
        reply = await desk.hidden("c07", desk.harness("h", HONEST), desk.harness("h0", DUMB))
        assert reply["ok"], reply["error"]
    sealed = tmp_path / "sealed"
    assert sealed.stat().st_mode & 0o777 == 0o700
    inside = b"".join(path.read_bytes() for path in sealed.rglob("*.jsonl"))
    assert all(json.dumps(one.question)[1:-1].encode() in inside for one in hidden), "they were asked"
    outside = [path for path in tmp_path.rglob("*") if path.is_file() and sealed not in path.parents]
    said = json.dumps(desk.sent).encode() + b"".join(path.read_bytes() for path in outside)
    assert before <= set(outside) and not any(json.dumps(one.question)[1:-1].encode() in said for one in hidden)
    assert not any(one.question.encode() in said for one in hidden)
