"""Agents in the real research sandbox: a program of one's own with a model, a person's shell, and how they end."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from gateway_kit import CANARY
from live_kit import PLAN, Live
from standin import Sent, StandIn, Turn

from runner.record.events import BudgetLimits
from runner.research.agent_process import AgentProcess
from runner.research.agents.command import CommandAgent
from runner.research.agents.shell import ShellAgent
from runner.research.llm.protocol import Limits

DOCS = Path(__file__).parents[3] / "docs" / "agents.md"


def command(script: Path) -> CommandAgent:
    return CommandAgent.of(f"command:python {script}", (str(script),), ())


def example(folder: Path) -> Path:
    """The agent of docs/agents.md, as a file."""
    found = re.search(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None and len(found[1].splitlines()) <= 32
    script = folder / "my_agent.py"
    script.write_text(found[1])
    return script


def by_the_plan(sent: Sent) -> Turn:
    return Turn(text=PLAN[(len(sent.body["messages"]) - 2) // 2])


async def test_the_agent_of_the_documentation_does_a_whole_phase(live: Any, standin: StandIn, tmp_path: Path) -> None:
    one: Live = await live("openai")
    standin.plan = by_the_plan
    end = await one.run(command(example(tmp_path)))
    assert end.reason == "finished" and one.phase.registry.selected == "c02"
    assert one.phase.kinds("agent_turn")[0].summary == "vibe status"
    await one.gateway.close()
    spent = one.phase.lab.budget.spent
    assert spent.llm is not None and spent.llm.calls == len(PLAN)
    assert spent.tokens == standin.used()["output"] and spent.money == pytest.approx(
        sum((60 * 3 + 40 * 0.3 + 7 * 15) / 1e6 for _ in PLAN)
    )
    assert CANARY.encode() not in one.artefacts()


async def test_the_end_of_the_tokens_ends_the_agent(live: Any, standin: StandIn, tmp_path: Path) -> None:
    one: Live = await live("openai", limits=Limits(tokens=20), budget=BudgetLimits(wall_s=600.0, tokens=20))
    standin.plan = lambda sent: Turn(text="vibe status", output=sent.body["max_tokens"] // 2 + 1)
    end = await one.run(command(example(tmp_path)))
    assert end.reason == "deadline" or (end.reason == "exited" and end.exit_code == 1)
    assert one.phase.lab.budget.exhausted() == "tokens"
    assert len(one.phase.kinds("agent_started")) == 1


async def test_the_model_is_all_that_an_agent_can_reach(live: Any, standin: StandIn, tmp_path: Path) -> None:
    one: Live = await live("openai")
    script = tmp_path / "probe.py"
    script.write_text("""
import json, os, socket, urllib.request
facts = {"key": [name for name in os.environ if "KEY" in name], "run": sorted(os.listdir("/run"))}
try:
    socket.create_connection(("1.1.1.1", 443), timeout=5)
    facts["net"] = "open"
except OSError as error:
    facts["net"] = error.strerror
facts["models"] = json.load(urllib.request.urlopen(os.environ["OPENAI_BASE_URL"] + "/models"))["data"][0]["id"]
try:
    urllib.request.urlopen("http://127.0.0.1:8080/v1/files")
except urllib.error.HTTPError as error:
    facts["files"] = error.code
facts["token"] = os.environ["OPENAI_API_KEY"]
json.dump(facts, open("/lab/notes/facts.json", "w"))
""")
    await one.run(command(script))
    facts = one.phase.facts
    assert facts["models"] == "model-1" and facts["files"] == 404 and facts["net"] != "open"
    assert facts["token"] == "worthless" and facts["run"] == ["llm", "vibe-control"]
    assert [notice.what for notice in one.notices] == ["LLM request: path"] and standin.sent == []


TYPED = b"""vibe status
echo 11 > harness/solves
vibe validate -m 'by hand'
vibe select c01
vibe finish
"""


@pytest.mark.parametrize("terminal", [False, True])
async def test_a_person_does_the_research_by_hand(phases: Any, terminal: bool) -> None:
    """Typed into a pipe, and into a terminal whose settings are as before afterwards."""
    phase = await phases()
    ours, theirs = os.openpty() if terminal else reversed(os.pipe())
    kept = os.dup(0)
    os.dup2(theirs, 0)
    try:
        os.write(ours, TYPED)
        process = AgentProcess(phase.lab, ShellAgent(), brief="", sources=phase.sources, control=phase.control)
        end = await process.run(phase.desk.finished)
    finally:
        os.dup2(kept, 0)
        for descriptor in (kept, ours, theirs):
            os.close(descriptor)
    assert end.reason == "finished" and phase.registry.selected == "c01"
    log = phase.lab.rundir.log("agent").read_text(errors="replace")
    assert "/lab/README.md" in log and "best: c01" not in log and "selected c01" in log


async def test_leaving_the_shell_is_the_end(phases: Any) -> None:
    phase = await phases(agent_resumes=3)
    ours, theirs = os.pipe()
    kept = os.dup(0)
    os.dup2(ours, 0)
    try:
        os.write(theirs, b"sleep 1.2; exit 3\n")
        os.close(theirs)
        process = AgentProcess(phase.lab, ShellAgent(), brief="", sources=phase.sources, control=phase.control)
        end = await process.run(phase.desk.finished)
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(ours)
    assert (end.reason, end.exit_code) == ("exited", 3) and len(phase.kinds("agent_started")) == 1
