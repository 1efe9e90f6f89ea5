"""`vibe sample --teacher`: the gateway's second door, its price, and what the record keeps of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from gateway_kit import CANARY, MODEL, PRICE, request, split
from standin import Sent, StandIn, Turn

from runner import models
from runner.config import LlmConfig
from runner.opening import Run
from runner.record.events import BudgetLimits
from runner.research.llm.account import totals
from runner.research.teacher import Lesson, Wanted, learn

CALL = (60 * 3.0 + 40 * 0.3 + 7 * 15.0) / 1e6  # a stand-in turn at the test's price

ASK = """
with open("/lab/notes/p.jsonl", "w") as f:
    f.write(json.dumps({"prompt": "What is 2+2?"}) + "\\n")
    f.write(json.dumps({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "3+3"}]}))
answer = ask("sample", "--teacher", "/lab/notes/p.jsonl", "-n", "2")
rows = [json.loads(line) for line in open(answer["path"])] if answer.get("path") else []
keep(answer=answer, rows=rows, status=ask("status"))
"""
TRAIN = """
with open("/lab/data/train.jsonl", "w") as f:
    for text in (rows[0]["text"] + "\\n", "my own", rows[0]["text"] + " and more"):
        f.write(json.dumps({"prompt": "What is 2+2?", "completion": text}) + "\\n")
keep(train=ask("train"), sockets=os.listdir("/run"))
"""


@pytest.fixture
def taught(phases: Callable[..., Any], standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A research phase with a teacher of a style behind the real gateway, as the loop opens it."""
    monkeypatch.setenv("TEST_LLM_KEY", CANARY)

    @asynccontextmanager
    async def make(style: str, **changes: Any) -> AsyncIterator[Any]:
        where = LlmConfig(style=style, base_url=standin.url, key_env="TEST_LLM_KEY", prices={MODEL: PRICE})
        phase = await phases(teacher=where, teacher_model=MODEL, **{"budget": BudgetLimits(wall_s=120.0), **changes})
        lab = phase.lab
        run = Run(
            lab.config, lab.rundir, lab.journal, lab.budget, phase.grader, lab, phase.registry, lab.runtime
        )  # fmt: skip
        async with models.serving(run) as served:
            assert served is not None
            lab.teacher = served.teacher
            yield phase

    return make


@pytest.mark.parametrize("style", ["openai", "anthropic"])
async def test_a_teacher_answers_is_charged_and_is_named(taught: Any, standin: StandIn, style: str) -> None:
    standin.plan = lambda sent: Turn(text=f"four, said for {len(sent.body['messages'])}")
    async with taught(style) as phase:
        await phase.agent(ASK + TRAIN)
    facts = phase.facts
    assert facts["answer"]["ok"] and facts["answer"]["replies"] == 4
    assert [(row["prompt"], row["sample"]) for row in facts["rows"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert {row["teacher"] for row in facts["rows"]} == {MODEL} and facts["rows"][0]["text"].startswith("four")
    spoken = [sent.body for sent in standin.sent]
    assert len(spoken) == 4 and not any(body["stream"] for body in spoken)
    if style == "anthropic":
        assert sum(body.get("system") == "Be brief." for body in spoken) == 2
    budget = phase.lab.budget
    assert budget.money() == pytest.approx(4 * CALL) and budget.tick().tokens == 0
    assert budget.tick().teacher.calls == 4 and budget.tick().llm is None
    assert totals(phase.lab.rundir.logs / "llm.jsonl")["teacher"].calls == 4
    (sampled,) = phase.kinds("sample_finished")
    assert sampled.teacher and (sampled.model, sampled.sample, sampled.replies) == (MODEL, "s001", 4)
    made = phase.kinds("model_created")[-1]
    assert made.taught.model_dump() == {"teacher": MODEL, "samples": ("s001",), "rows": 1, "of": 3}
    kept = json.loads((phase.lab.rundir.model(made.model) / "manifest.json").read_text())
    assert kept["taught"]["teacher"] == MODEL
    assert "teacher" not in facts["sockets"] and "llm" not in facts["sockets"], "the sandbox has no way to the teacher"
    held = [event.holder for event in phase.kinds("lease_changed") if event.job == sampled.job]
    assert held == [], "a teacher needs no accelerator"


async def test_at_the_limit_nothing_more_is_asked_and_what_came_is_kept(taught: Any, standin: StandIn) -> None:
    async with taught("openai", budget=BudgetLimits(wall_s=120.0, money=2.5 * CALL)) as phase:
        await phase.agent(ASK.replace('"-n", "2"', '"-n", "64"'))
    (sampled,) = phase.kinds("sample_finished")
    assert sampled.status == "failed" and "money budget" in sampled.error
    assert 2 <= sampled.replies == len(standin.sent) <= 4
    kept = phase.lab.rundir.feedback / "samples" / "s001.jsonl"
    assert len(kept.read_text().splitlines()) == sampled.replies
    assert phase.lab.budget.exhausted() == "money"


async def test_one_limit_on_money_holds_for_researcher_and_teacher_together(taught: Any, standin: StandIn) -> None:
    where = LlmConfig(style="openai", base_url=standin.url, key_env="TEST_LLM_KEY", prices={MODEL: PRICE})
    limit = BudgetLimits(wall_s=120.0, money=1.5 * CALL)
    async with taught("openai", llm=where, agent_model=MODEL, budget=limit) as phase:
        said = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
        door = phase.lab.runtime / "llm" / "llm.sock"
        for _ in range(2):
            reader, writer = await asyncio.open_unix_connection(door)
            writer.write(request("POST", "/v1/chat/completions", json.dumps(said).encode()))
            assert split(await reader.read())[0] == 200
            writer.close()
        lesson = Lesson()
        await learn(phase.lab.teacher, Wanted([b'{"prompt": "hi"}'], 3, None, 1.0), lesson, lambda _done, _of: None)
    assert lesson.spent and "money budget" in lesson.error and lesson.rows == {}
    assert len(standin.sent) == 2 and phase.lab.budget.exhausted() == "money"


async def test_a_reply_that_is_none_costs_one_row_and_no_more(taught: Any, standin: StandIn) -> None:
    def plan(sent: Sent) -> Turn:
        return Turn(text=None if "3+3" in str(sent.body) else "\x1b[31m four")  # type: ignore[arg-type]

    standin.plan = plan
    async with taught("openai") as phase:
        await phase.agent(ASK)
    facts = phase.facts
    assert facts["answer"]["ok"] and "2 of 4 replies" in facts["answer"]["text"]
    assert "a reply without a text" in facts["answer"]["text"] and {row["prompt"] for row in facts["rows"]} == {0}
