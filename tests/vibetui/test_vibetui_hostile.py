"""A hostile run in a real terminal: no control byte of a stranger reaches it, on any screen."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from terminal import Terminal

from runner.record import events as ev
from runner.record.journal import Journal
from runner.record.rundir import RunDir

HOSTILE = (
    "\x1b]52;c;ZXZpbA==\x07\x1b]0;pwned\x07\x1b]8;;http://evil\x1b\\link\x1b[6n\x1b[5m\x1b[?1049l\x1bc\x9b31m"
    "\x9d52;c;ZXZpbA==\x9c"
    "\x1bP+q544e\x1b\\[bold][/][@click=app.quit]x[/] [[[ "
    "\u202eright\u2066to left\u200b\x00\x7f\x08\x0e\ttab\r\nline {x} \\"
)
LONG = "x\x1b[31m" * 150_000
ALLOWED = re.compile(
    rb"\x1b\[[0-9;]*m"  # colours
    rb"|\x1b\[[0-9;]*[HJK]|\x1b\[\?[0-9;]+[hl]|\x1b\[\?[0-9]+\$p|\x1b\[[<>=][0-9;]*u|\x1b\[[0-9;]*[tn]"
    rb"|\x1b\[\?[0-9;]*[u$c]|\x1b\[c|\x1b\[[0-9 ]*q|\x1b[78=>]|\r|\n|\x1b\]22;[a-z-]+\x07"
)
SCREENS = (
    ("2", "events"),
    ("2", "candidates of"),
    ("d", "1 Data"),
    ("2", "2 Trainer"),
    ("3", "3 Harness"),
    ("4", "problems, against"),
    ("5", "loss by step"),
    ("t", "problems, against"),
    ("j\r", "step 1 of"),
    ("\x1b[C", "step 2 of"),
    ("l", "the journal in words"),
    ("2", "logs/agent.log"),
    ("3", "train.log"),
    ("4", "logs/grader.log"),
    ("\x1b", "step 2 of"),
    ("c", "against"),
    ("2", "data"),
    ("3", "trainer"),
    ("4", "harness"),
    ("?", "help: compare"),
    ("r", "runs in"),
)


@pytest.fixture
def hostile(tmp_path: Path) -> RunDir:
    """A run in which every text that others write is hostile."""
    run = RunDir(tmp_path / "runs" / "aime" / "2026-11-30T12-00-00-7f3a")
    write_journal(run)
    write_files(run)
    return run


def write_journal(run: RunDir) -> None:
    (run.path / "control").mkdir(parents=True)
    journal = Journal.create(run.journal_file, lambda: 10.0)
    score = ev.Score(score=0.5, low=0.4, high=0.6, n=2, samples=1)
    said = [
        ev.RunStarted(
            run=HOSTILE, task=HOSTILE, problems=HOSTILE, model=HOSTILE, agent=HOSTILE, scope=("data",), seed=0,
            samples=1, profile=HOSTILE, protocol=HOSTILE, budget=ev.BudgetLimits(wall_s=1200.0), config_digest="d",
            boot_id=HOSTILE, version=HOSTILE, comparable=False,
        ),
        ev.IsolationChecked(weak=(HOSTILE, LONG), allowed=(HOSTILE,)),
        ev.ModelCreated(
            model="m01", job="j1", format="adapter", parents=(HOSTILE,), data="d1", trainer="t1", sha256="s", bytes=1
        ),
        ev.CandidateCreated(candidate="c00", parent=None, model="m00", data="d0", trainer="t0", harness="h0"),
        ev.ValidationFinished(job="j0", candidate="c00", eval="e001", status="ok", seconds=1.0, score=score),
        ev.AgentTurn(n=1, summary=HOSTILE, tool=HOSTILE),
        ev.AgentTurn(n=2, summary=LONG),
        ev.TrainFinished(job=HOSTILE, status="failed", seconds=1.0, error=HOSTILE),
        ev.EditRefused(component="data", where=HOSTILE, reason=HOSTILE),
        ev.Integrity(what=HOSTILE, where=HOSTILE, detail=LONG),
        ev.Warned(what=HOSTILE, where=HOSTILE, do=HOSTILE),
        ev.CandidateCreated(candidate=HOSTILE, parent="../..", model="../..", data="..", trainer="..", harness=".."),
        ev.CandidateCreated(
            candidate="c01", parent="c00", model="m01", data="d1", trainer="t1", harness="h1",
            components=("data", "trainer", "harness"), diff={"data": ev.DiffSize(added=1)}, hypothesis=HOSTILE + LONG,
        ),
        ev.ValidationFinished(job="j1", candidate="c01", eval="e002", status="ok", seconds=1.0, score=score),
        ev.ValidationStarted(job=HOSTILE, candidate=HOSTILE, eval=HOSTILE, problems=10, samples=1),
    ]  # fmt: skip
    for payload in said:
        journal.append(payload)
    journal.close()


def write_files(run: RunDir) -> None:
    """Everything beside the journal."""
    raw = HOSTILE.encode("utf-8", "surrogatepass") + b"\xff\xfe\xc0" + LONG.encode()
    patch = b"--- a/x\n+++ b/recipe.toml\n@@ -1 +1 @@\n-lr = " + HOSTILE.encode() + b"\n+lr = 2" + raw
    row = {"sample": 0, "calls": 1, "parse_errors": 0, "tokens_in": 1, "tokens_out": 1, "seconds": 1.0}
    rows = [{"problem": name, "reward": 1.0, "reason": HOSTILE, **row} for name in ("v1", HOSTILE)]
    step = {"problem": "v1", "sample": 0}
    call = {**step, "step": 0, "kind": "call", "prompt": HOSTILE, "reply": LONG + HOSTILE, "overwritten": [HOSTILE]}
    end = {**step, "step": 1, "kind": "end", "reply": HOSTILE, "reason": HOSTILE, "reward": 0.0, "log": HOSTILE}
    steps = [call, end]
    lines = {
        "problems.jsonl": "\n".join(map(json.dumps, rows)).encode(),
        "trajectories/v1.jsonl": "\n".join(map(json.dumps, steps)).encode(),
    }
    sha = "a" * 64
    manifest = json.dumps({"bytes": 1, "files": [[HOSTILE, sha, 1], ["x\x1b[31m.py", "b" * 64, 1]]}).encode()
    samples = [HOSTILE, json.dumps({HOSTILE: HOSTILE}), LONG]
    data = json.dumps({"added": 1, "rows_before": HOSTILE, "samples": {"added": samples}})
    files = {
        "candidates/c01/diffs/data.json": data.encode(),
        "candidates/c01/diffs/trainer.patch": patch,
        "candidates/c01/diffs/harness.patch": patch,
        "models/m01/train.log": raw,
        "models/m01/train.jsonl": b'{"step": 1, "steps": 2, "loss": 1.5}\n' + raw + b'\n{"step": 2, "loss": 1e999}\n',
        "logs/agent.log": raw + b"\n" + raw,
        "logs/grader.log": b"\x00" * 100_000 + raw,
        f"store/objects/aa/{sha}": raw,
        f"store/objects/bb/{'b' * 64}": HOSTILE.encode(),
        **{f"store/manifests/{name}.json": manifest for name in ("d1", "t1", "h1")},
        **{f"store/manifests/{name}.json": b'{"files": []}' for name in ("d0", "t0", "h0")},
        **{f"evals/{evaluation}/{name}": text for evaluation in ("e001", "e002") for name, text in lines.items()},
    }
    for name, content in files.items():
        path = run.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    os.mkfifo(run.path / "logs" / "engine.log")


def test_nothing_foreign_controls_the_terminal_on_any_screen(hostile: RunDir, tmp_path: Path) -> None:
    with Terminal([str(hostile.path)], tmp_path) as terminal:
        terminal.until(" valid of")
        terminal.press("j" * 5 + "k" * 4)
        for key, text in SCREENS:
            terminal.press(key)
            terminal.until(text)
        terminal.press("q")
        assert terminal.ended() == 0
        raw = terminal.everything
    left = ALLOWED.sub(b"", raw).decode("utf-8", "replace")
    strange = sorted({repr(found) for found in re.findall("[\x00-\x1f\x7f-\x9f].{0,12}", left)})
    assert strange == []
    assert not re.findall("[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]", left)
    for trace in (b"]52;", b"ZXZpbA", b"\x1b]0", b"\x1b]8", b"\x1bP", b"\x1bc", b"\x1b[5m", b"pwned\x07"):
        assert trace not in raw
    assert raw.count(b"\x1b[?1049l") == 1
