"""The real binaries of Claude Code and Codex in the research sandbox, against the stand-in: no internet, no real key.

Long: the binaries are 560 MB. `runner prepare --agent NAME` fetches them.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from gateway_kit import CANARY
from live_kit import PLAN, Live, counters, planned, results, shell_call, tools_of
from standin import Sent, StandIn, Turn

from runner import places
from runner.config import ConfigError
from runner.record.events import BudgetLimits
from runner.research.agents.base import SESSION, ResearchAgent
from runner.research.agents.claude_code import ClaudeCode
from runner.research.agents.codex import Codex
from runner.research.agents.install import installed
from runner.research.agents.mini_swe import MiniSweAgent
from runner.research.llm.local import served
from runner.research.llm.protocol import Limits
from runner.research.memory import Share

STYLES = {"claude-code": "anthropic", "codex": "openai"}
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
each = pytest.mark.parametrize("name", STYLES)


def agent(name: str) -> ResearchAgent:
    try:
        return ClaudeCode(installed(name)) if name == "claude-code" else Codex(installed(name))
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("claude-code", "model-1"), ("claude-code", "claude-opus-4-8"), ("claude-code", "claude-haiku-4-5"),
        ("codex", "model-1"), ("codex", "gpt-5.5"), ("codex", "gpt-6.2-astra"),
    ],
)  # fmt: skip
async def test_it_does_a_whole_phase_and_only_speaks_to_the_gateway(
    live: Any, standin: StandIn, name: str, model: str
) -> None:
    """Names of its own catalogue too: tools and their places in the request differ by model."""
    made = agent(name)
    one: Live = await live(STYLES[name], budget=BudgetLimits(wall_s=560.0), model=model)
    standin.plan = planned()
    end = await one.run(made)
    assert end.reason == "finished" and one.phase.registry.selected == "c02"
    assert len(one.phase.kinds("train_finished")) == 1 and len(one.phase.kinds("validation_finished")) >= 3
    await one.gateway.close()
    spent = one.phase.lab.budget.spent
    assert spent.llm is not None and spent.llm.refused == 0 and spent.llm.calls == len(standin.turns)
    assert spent.tokens == standin.used()["output"]
    assert [notice.what for notice in one.notices] == []
    started = one.phase.kinds("agent_started")[0]
    assert started.version and CANARY not in " ".join(started.argv) and "worthless" not in " ".join(started.argv)
    assert {turn.tool for turn in one.phase.kinds("agent_turn")} & {"Bash", "command_execution"}
    assert counters("".join(results(standin.sent[-1]))) == {"OutNoRoutes": 0, "OutDatagrams": 0}
    assert CANARY.encode() not in one.artefacts() and len(PLAN) <= len(standin.turns)


async def test_mini_swe_agent_does_a_whole_phase(live: Any, standin: StandIn) -> None:
    try:
        made = MiniSweAgent(installed("mini-swe-agent"))
    except ConfigError as error:
        pytest.skip(str(error))
    one: Live = await live("openai", budget=BudgetLimits(wall_s=560.0))

    def plan(sent: Sent) -> Turn:
        step = (len(sent.body["messages"]) - 2) // 2
        return Turn(text="No command." if step == 0 else f"Next.\n```bash\n{PLAN[min(step, len(PLAN)) - 1]}\n```")

    standin.plan = plan
    end = await one.run(made)
    assert end.reason == "finished" and one.phase.registry.selected == "c02"
    assert {turn.tool for turn in one.phase.kinds("agent_turn")} == {"bash"}
    await one.gateway.close()
    spent = one.phase.lab.budget.spent
    assert spent.llm is not None and spent.llm.calls == len(standin.turns) and spent.tokens == standin.used()["output"]


async def test_mini_swe_agent_on_the_programs_own_engine_goes_round_and_ends(
    phases: Any, standin: StandIn, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is tiny and writes no commands: the library asks it again and again, and then says why it ends."""
    monkeypatch.setenv("TEST_LLM_KEY", CANARY)
    try:
        made = MiniSweAgent(installed("mini-swe-agent"))
        env = places.model_env()
    except ConfigError as error:
        pytest.skip(str(error))
    phase = await phases(budget=BudgetLimits(wall_s=560.0), agent_resumes=0)
    tiny, share = places.model_dir("tiny"), Share(4 << 30, 8)
    async with served(tiny, env, short, short / "log", share=share, seed=1, on_notice=print) as socket:
        one = await Live.start(phase, standin, "openai", socket=str(socket))
        end = await one.run(made)
        await one.gateway.close()
    said = [turn.summary for turn in phase.kinds("agent_turn")]
    use = phase.lab.budget.spent.llm
    assert end.reason == "exited" and end.exit_code == 0 and said[-1] == "ended: RepeatedFormatError"
    assert use is not None and use.calls >= 10 and use.output > 0 and standin.sent == []


@each
async def test_it_is_resumed_in_its_own_session(live: Any, standin: StandIn, name: str) -> None:
    """It says that it is done after two steps; the same conversation goes on and finishes."""
    made = agent(name)
    one: Live = await live(STYLES[name], budget=BudgetLimits(wall_s=560.0), agent_resumes=2)
    commands = ("sleep 1.2", "vibe finish")
    answered = 0

    def plan(sent: Sent) -> Turn:
        nonlocal answered
        if not sent.body.get("tools"):
            return Turn(text="A title.")
        answered += 1
        return Turn(text="I am done.") if answered == 2 else planned(commands)(sent)

    standin.plan = plan
    end = await one.run(made)
    starts = one.phase.kinds("agent_started")
    assert end.reason == "finished" and [start.resumed for start in starts] == [False, True]
    assert SESSION.fullmatch(starts[1].session) and "Do well." in str(standin.sent[-1].body)
    assert "You stopped with" in str(standin.sent[-1].body)


@each
async def test_a_kill_in_mid_turn_is_gone_on_from(live: Any, standin: StandIn, name: str) -> None:
    made = agent(name)
    one: Live = await live(STYLES[name], budget=BudgetLimits(wall_s=560.0), agent_resumes=2)
    killed = False

    async def act(_request: Any, out: Any, events: list[bytes]) -> None:
        nonlocal killed
        for event in events[:2]:
            await out.write(event)
        if len(standin.turns) == 2 and not killed:
            killed = True
            os.kill(one.gateway.pid, signal.SIGKILL)
            return
        for event in events[2:]:
            await out.write(event)

    standin.plan = planned(("sleep 1.2", "vibe finish"))
    standin.act = act
    end = await one.run(made)
    assert end.reason == "finished" and killed
    assert [notice.what for notice in one.notices if notice.level == "integrity"] == []
    await one.gateway.close()
    use = one.phase.lab.budget.spent.llm
    assert use is not None and use.calls == len(standin.turns)


@each
async def test_its_own_death_is_gone_on_from(live: Any, standin: StandIn, name: str) -> None:
    """Every process of the sandbox killed from within while a tool runs: the same session goes on."""
    made = agent(name)
    one: Live = await live(STYLES[name], budget=BudgetLimits(wall_s=560.0), agent_resumes=2)
    commands = ["sleep 1.2; kill -9 -1", "vibe finish"]

    def plan(sent: Sent) -> Turn:
        if not tools_of(sent):
            return Turn(text="A title.")
        return Turn(tools=(shell_call(sent, commands.pop(0) if commands else "vibe finish"),))

    standin.plan = plan
    end = await one.run(made)
    starts = one.phase.kinds("agent_started")
    assert end.reason == "finished" and [start.resumed for start in starts] == [False, True]
    assert "Do well." in str(standin.sent[-1].body)
    await one.gateway.close()
    use = one.phase.lab.budget.spent.llm
    assert use is not None and use.calls == len(standin.turns)


@each
async def test_the_end_of_the_tokens_is_its_end(live: Any, standin: StandIn, name: str) -> None:
    made = agent(name)
    budget = BudgetLimits(wall_s=560.0, tokens=40)
    one: Live = await live(STYLES[name], budget=budget, limits=Limits(tokens=40), agent_resumes=3)
    standin.plan = lambda sent: planned(("vibe status",) * 100)(sent)
    end = await one.run(made)
    assert end.reason in ("deadline", "exited") and one.phase.lab.budget.exhausted() == "tokens"
    assert standin.used()["output"] <= 40 + 7 and len(one.phase.kinds("agent_started")) == 1
