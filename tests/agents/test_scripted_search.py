"""The scripted agent's search, with a program in place of `vibe`: what it chooses, also when it is started again."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "runner" / "research" / "agents" / "scripted_agent"
OURS = ("arithmetic", "clock", "design", "evidence", "lab", "memory", "search", "stats")
GOOD = 3  # the validation that gains

DESK = """#!{python}
import json, pathlib, sys
here = pathlib.Path({here!r})
asked = here / "asked"
verb = sys.argv[1]
with asked.open("a") as file:
    file.write(verb + "\\n")
asks = asked.read_text().split()
if len(asks) == {last}:
    sys.exit(1)
made = {{"type": "answer", "ok": True, "job": f"j{{len(asks):03}}"}}
if verb == "train":
    made["model"] = f"m{{asks.count('train'):02}}"
    curve = here / "feedback" / "jobs" / made["job"] / "train.jsonl"
    curve.parent.mkdir(parents=True)
    curve.write_text('{{"loss": 0.9}}\\n')
if verb == "validate":
    number = asks.count("validate")
    made["candidate"] = f"c{{number:02}}"
    folder = here / "feedback" / made["candidate"]
    folder.mkdir()
    rewards = [int(number == {good} and n < 24) for n in range(40)]
    rows = [json.dumps({{"problem": str(n), "reward": reward}}) + "\\n" for n, reward in enumerate(rewards)]
    (folder / "problems.jsonl").write_text("".join(rows))
print(json.dumps(made))
"""


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A workspace, feedback of P0, and a way to put a stand-in for `vibe` on the path, gone at its ask ``last``."""
    monkeypatch.setenv("VIBE_FEEDBACK", str(tmp_path / "feedback"))
    monkeypatch.syspath_prepend(str(SOURCE))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in ("trainer", "harness"):
        shutil.copytree(ROOT / "tasks" / "aime" / "workspace" / name, tmp_path / name)
    for name in ("bin", "data", "home", "feedback", "feedback/c00"):
        (tmp_path / name).mkdir()
    row = {"prompt": "What is 2+2?\nReply.", "completion": "2+2 = 4"}
    (tmp_path / "data" / "train.jsonl").write_text((json.dumps(row) + "\n") * 400)
    zeros = [json.dumps({"problem": str(n), "reward": 0}) + "\n" for n in range(40)]
    (tmp_path / "feedback" / "c00" / "problems.jsonl").write_text("".join(zeros))

    def open_until(last: int) -> None:
        program = tmp_path / "bin" / "vibe"
        program.write_text(DESK.format(python=sys.executable, here=str(tmp_path), last=last, good=GOOD))
        program.chmod(0o755)

    yield open_until
    for name in OURS:
        sys.modules.pop(name, None)


def search_with(tmp_path, left, budget=600.0):
    """A search of the agent's own, with its memory, that is told ``left`` seconds."""
    import clock
    import lab
    import memory
    import search

    return search.Search(lab.Lab(root=tmp_path), clock.Clock(budget, left), memory.Memory(tmp_path / "memory"), seed=1)


def test_an_agent_that_is_started_again_late_still_knows_its_best(desk, tmp_path):
    """It took what it had found for too long to find again, and selected the initial system."""
    import lab

    desk(last=1000)
    assert search_with(tmp_path, lambda: 600.0).run().candidate == f"c{GOOD:02}"
    whole = (tmp_path / "asked").read_text().split()
    found = next(n for n, verb in enumerate(whole, 1) if verb == "select")

    for name in ("asked", "memory"):
        (tmp_path / name).unlink()
    for folder in (tmp_path / "feedback").glob("c0[1-9]"):
        shutil.rmtree(folder)
    shutil.rmtree(tmp_path / "feedback" / "jobs")
    desk(last=found + 1)  # after the gain, the runner dies
    with pytest.raises(lab.Unanswered):
        search_with(tmp_path, lambda: 600.0).run()
    desk(last=1000)
    assert search_with(tmp_path, lambda: 4.0).run().candidate == f"c{GOOD:02}"
    asked = (tmp_path / "asked").read_text().split()
    assert asked.count("validate") == GOOD, "nothing was asked twice, and nothing that does not fit"


@pytest.mark.parametrize("writable", [("harness",), ("data",), ("trainer",), ("data", "trainer", "harness")])
def test_a_short_budget_begins_with_what_belongs_together(desk, tmp_path, writable):
    import search

    desk(last=1000)
    for name in {"data", "trainer", "harness"} - set(writable):
        (tmp_path / name).chmod(0o555)
    ends = tmp_path / "feedback" / "c00" / "trajectories"
    ends.mkdir()
    (ends / "a.jsonl").write_text('{"kind": "end", "reply": "2+2 = 5\\\\boxed{5}", "reason": "wrong"}\n')
    first = search_with(tmp_path, lambda: 90.0, budget=90.0).propose()
    long = search_with(tmp_path, lambda: 900.0, budget=900.0).propose()
    together = {"data": {"calculator-data"}, "trainer": {"full-tuning", "higher-rate"}}
    expected = set().union(*(together.get(part, set()) for part in writable)) or {"calculator-tool"}
    assert search.names(first) == expected
    assert len(long) == 1, "with time enough, move by move"


def test_moves_that_do_not_go_together_are_tried_one_by_one(desk, tmp_path):
    """A bundle of nothing ended the agent where little time was left."""
    import design
    import search

    desk(last=1000)
    one = search_with(tmp_path, lambda: 1.0)
    full = design.Design(notation="calculator", tool=True, rows="bank", method="full", learning_rate=5.0)
    shutil.copytree(tmp_path / "feedback" / "c00", tmp_path / "feedback" / "c07")
    one.losses["m03"] = [0.9]
    one.clock.validated(3.0)
    one.follow((), search.Node(full, "c07", "m03", {}))
    leads = [lead for generation in one.standing.leads for lead in generation]
    assert {move.name for lead in leads for move in lead} == {"wild-rate", "epochs"}
    assert all(leads)
    assert one.propose() is None
