"""`vibe sample --teacher`: the gateway's second door, its price, and what the record keeps of it."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from gateway_kit import CANARY, MODEL, PRICE, request, split
from standin import Sent, StandIn, Turn

from runner import models, places
from runner.config import LlmConfig
from runner.opening import Run
from runner.record.events import BudgetLimits, SampleFinished, SampleStarted
from runner.record.journal import Journal
from runner.record.rundir import RunDir
from runner.research.agents.options import complete_agent
from runner.research.candidate import Registry
from runner.research.llm.account import totals
from runner.research.memory import GIB, beside_memory, plan_memory
from runner.research.replies import Replies, settle, taken
from runner.research.teacher import Lesson, Wanted, learn
from runner.resume import lost_jobs, open_jobs

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
    async def make(style: str, streams: int = 8, **changes: Any) -> AsyncIterator[Any]:
        prices = {MODEL: PRICE}
        where = LlmConfig(
            style=style, base_url=standin.url, key_env="TEST_LLM_KEY", prices=prices, streams=streams
        )  # fmt: skip
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


async def test_a_researcher_beside_a_teacher_that_answers_is_neither_refused_nor_cut(
    taught: Any, standin: StandIn
) -> None:
    """The teacher's eight open calls reserve all the money there is; nothing of it is spent yet."""
    where = LlmConfig(style="openai", base_url=standin.url, key_env="TEST_LLM_KEY", prices={MODEL: PRICE})
    eight, answer = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        if len(standin.sent) == 8:
            eight.set()
        await answer.wait()

    standin.refusals = [hold] * 8  # a stand-in's word for "act first"; the gateway tries such a call again
    limit = BudgetLimits(wall_s=120.0, money=8 * 4096 * 15.0 / 1e6 + 0.01)
    async with taught("openai", llm=where, agent_model=MODEL, budget=limit) as phase:
        lesson = Lesson()
        wanted = Wanted([b'{"prompt": "hi"}'], 8, None, None)
        learning = asyncio.create_task(learn(phase.lab.teacher, wanted, lesson, lambda _done, _of: None))
        await asyncio.wait_for(eight.wait(), 60)
        assert {sent.body["max_completion_tokens"] for sent in standin.sent} == {4096}
        said = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4096}
        reader, writer = await asyncio.open_unix_connection(phase.lab.runtime / "llm" / "llm.sock")
        writer.write(request("POST", "/v1/chat/completions", json.dumps(said).encode()))
        answer.set()
        assert split(await reader.read())[0] == 200
        writer.close()
        await learning
    asked = [sent.body["max_tokens"] for sent in standin.sent if "max_tokens" in sent.body]
    assert asked == [4096] and len(lesson.rows) == 8 and lesson.error == ""


@pytest.mark.parametrize(("asked", "sent"), [((), None), (("--temperature", "1.0"), 1.0), (("--temperature", "0"), 0)])
async def test_the_temperature_that_was_asked_for_is_the_one_that_is_sent(
    taught: Any, standin: StandIn, asked: tuple[str, ...], sent: float | None
) -> None:
    async with taught("openai") as phase:
        await phase.agent(ASK.replace('"-n", "2"', ", ".join(json.dumps(word) for word in ("-n", "2", *asked))))
    assert phase.facts["answer"]["replies"] == 4
    assert [one.body.get("temperature") for one in standin.sent] == [sent] * 4
    assert {one.body["max_completion_tokens"] for one in standin.sent} == {4096}


def killed(phase: Any, to: Path) -> tuple[RunDir, Journal, Registry]:
    """The run as a kill of the runner at this moment would leave it, opened again."""
    left = RunDir(Path(shutil.copytree(phase.lab.rundir.path, to / "left" / "aime" / phase.lab.rundir.name)))
    journal = Journal.reopen(left.journal_file, lambda: 0.0)
    return left, journal, Registry.of(journal)


async def test_a_runner_that_is_killed_in_a_sampling_keeps_what_was_paid_under_a_name_of_its_own(
    taught: Any, standin: StandIn, tmp_path: Path
) -> None:
    struck, rest = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        struck.set()
        await rest.wait()

    def plan(_sent: Sent) -> Turn:
        if len(standin.turns) == 4:
            standin.refusals.append(wait)
        return Turn(text=f"reply {len(standin.turns)}")

    standin.plan = plan
    async with taught("openai", streams=1) as phase:
        asking = asyncio.create_task(phase.agent(ASK.replace('"-n", "2"', '"-n", "4"')))
        await asyncio.wait_for(struck.wait(), 60)  # five replies have come, the sixth is being waited for
        try:
            left, journal, registry = killed(phase, tmp_path)
        finally:
            rest.set()
            await asking
    samples = left.feedback / "samples"
    assert [path.name for path in samples.iterdir()] == ["s001.partial.jsonl"]
    assert registry.next_id("s", 3) == "s002", "the name is taken before anything is asked"
    (lost,) = lost_jobs(journal.state, samples)
    assert isinstance(lost, SampleFinished)
    assert (lost.status, lost.model, lost.teacher, lost.sample, lost.replies) == ("lost", MODEL, True, "s001", 5)
    assert "partial: 5 of 8 replies are kept in s001" in lost.error
    journal.append(lost)
    assert registry.lessons == ["s001"] and open_jobs(journal.state) == []
    journal.close()
    assert [path.name for path in samples.iterdir()] == ["s001.jsonl"]
    rows = [json.loads(line) for line in (samples / "s001.jsonl").read_text().splitlines()]
    assert [(row["prompt"], row["sample"]) for row in rows] == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]
    assert [row["text"] for row in rows] == [f"reply {n}" for n in range(5)] and rows[0]["teacher"] == MODEL
    assert phase.facts["answer"]["replies"] == 8, "and the one that was not killed has them all"
    kept = phase.lab.samples
    assert [path.name for path in kept.iterdir()] == ["s001.jsonl"]
    assert len((kept / "s001.jsonl").read_text().splitlines()) == 8


async def test_a_sampling_that_is_killed_before_its_first_reply_leaves_nothing_but_its_name(
    taught: Any, standin: StandIn, tmp_path: Path
) -> None:
    struck, rest = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        struck.set()
        await rest.wait()

    standin.refusals = [wait]
    async with taught("openai", streams=1) as phase:
        asking = asyncio.create_task(phase.agent(ASK))
        await asyncio.wait_for(struck.wait(), 60)
        try:
            left, journal, registry = killed(phase, tmp_path)
        finally:
            rest.set()
            await asking
    (lost,) = lost_jobs(journal.state, left.feedback / "samples")
    journal.append(lost)
    journal.close()
    assert (lost.sample, lost.replies) == ("", 0) and registry.lessons == []
    assert list((left.feedback / "samples").iterdir()) == [] and registry.next_id("s", 3) == "s002"


@pytest.mark.parametrize("torn", [b"", b'{"prompt": 1, "sam', b'{"prompt": 1, "sam\n', b"\0" * 40])
def test_replies_survive_a_crash_wherever_it_strikes(tmp_path: Path, torn: bytes) -> None:
    replies = Replies(tmp_path, "s003")
    for prompt, sample in ((1, 0), (0, 1), (0, 0)):
        replies.add({"prompt": prompt, "sample": sample, "text": "\ud800 four"})
    with (tmp_path / "s003.partial.jsonl").open("ab") as file:
        file.write(torn)
    (tmp_path / "s003.jsonl").write_text("{}\n")  # the end had written the whole file and not yet taken the part away
    for _ in range(2):
        assert settle(tmp_path, "s003") == 3
        rows = [json.loads(line) for line in (tmp_path / "s003.jsonl").read_text().splitlines()]
        assert [(row["prompt"], row["sample"]) for row in rows] == [(0, 0), (0, 1), (1, 0)]
    assert taken(tmp_path, "s003") and not taken(tmp_path, "s004") and settle(tmp_path, "s004") == 0


async def test_a_file_that_a_crash_kept_out_of_the_record_keeps_its_name(taught: Any, standin: StandIn) -> None:
    async with taught("openai") as phase:
        phase.lab.samples.mkdir()
        (phase.lab.samples / "s001.jsonl").write_text("older\n")
        await phase.agent(ASK + 'keep(own=ask("sample", "--model", "m00", "/lab/notes/p.jsonl"))')
    assert phase.facts["answer"]["path"].endswith("/s002.jsonl") and phase.facts["own"]["path"].endswith("/s003.jsonl")
    assert (phase.lab.samples / "s001.jsonl").read_text() == "older\n"


def test_a_sampling_of_an_older_record_is_lost_as_it_was(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "journal.jsonl", lambda: 0.0)
    old = {"kind": "sample_started", "job": "j001", "model": MODEL, "prompts": 2, "n": 3}
    journal.append(SampleStarted.model_validate(old))
    (lost,) = lost_jobs(journal.state, tmp_path)
    journal.close()
    assert isinstance(lost, SampleFinished) and (lost.model, lost.sample, lost.replies) == (MODEL, "", 0)


@pytest.mark.long
async def test_a_teacher_that_this_machine_serves_answers_at_the_temperature_that_was_asked_for(phases: Any) -> None:
    values: dict[str, Any] = {"agent": "scripted", "teacher_model": "local:tiny"}
    complete_agent(values)
    where = LlmConfig.model_validate(values["teacher"])
    assert where.local is not None
    phase = await phases(teacher=where, teacher_model="local:tiny", model_env=str(places.model_env()))
    lab = phase.lab
    lab.memory = plan_memory(16 * GIB, 4 * GIB, beside_memory([where.local], 16 * GIB, 4 * GIB))
    run = Run(lab.config, lab.rundir, lab.journal, lab.budget, phase.grader, lab, phase.registry, lab.runtime)
    async with models.serving(run) as served:
        assert served is not None
        lab.teacher = served.teacher
        words = ', "--temperature", "0", "--max-tokens", "12"'
        await phase.agent(ASK.replace('"-n", "2"', '"-n", "3"' + words))
    rows = phase.facts["rows"]
    assert len(rows) == 6 and {row["teacher"] for row in rows} == {"local:tiny"}
    assert all(len({row["text"] for row in rows if row["prompt"] == prompt}) == 1 for prompt in (0, 1)), "greedy"
    assert max(row["tokens_out"] for row in rows) <= 12


async def test_a_reply_that_is_none_costs_one_row_and_no_more(taught: Any, standin: StandIn) -> None:
    def plan(sent: Sent) -> Turn:
        return Turn(text=None if "3+3" in str(sent.body) else "\x1b[31m four")  # type: ignore[arg-type]

    standin.plan = plan
    async with taught("openai") as phase:
        await phase.agent(ASK)
    facts = phase.facts
    assert facts["answer"]["ok"] and "2 of 4 replies" in facts["answer"]["text"]
    assert "a reply without a text" in facts["answer"]["text"] and {row["prompt"] for row in facts["rows"]} == {0}
