"""The grader's requests, end to end but for the model: the real vault, real sandboxes, an engine that does sums."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from eval_kit import CLIENT, HONEST, SumEngine
from test_evaluate import sandboxes

from grader.engines.base import EngineError
from grader.protocol import EngineConfig, GraderSetup, HiddenResult, ModelRef, ScoreFile
from grader.server import Reporter, Server
from grader.service import Service
from isolation.sandbox import use_pidfd_children
from tasks.spec import Decoding, ProblemLimits

DUMB = """
task = say({"op": "task.get"})
text = chat(task["instruction"])
finish(text if "What is 1" in task["instruction"] else "no idea")
"""


class FailingStart(SumEngine):
    async def load(self, model: ModelRef) -> None:
        raise EngineError(f"{model.id} cannot be served")


@dataclass
class Desk:
    """A server in this process; ``engines`` are handed out one by one, then plain ones."""

    root: Path
    engines: list[SumEngine] = field(default_factory=list)
    made: list[SumEngine] = field(default_factory=list)
    sent: list[dict[str, Any]] = field(default_factory=list)
    waiting: dict[str, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)
    stdin: asyncio.StreamReader = field(default_factory=asyncio.StreamReader)

    def write(self, line: str) -> None:
        message = json.loads(line)
        self.sent.append(message)
        if message["kind"] == "reply":
            self.future(message["id"]).set_result(message)

    def future(self, request: str) -> asyncio.Future[dict[str, Any]]:
        return self.waiting.setdefault(request, asyncio.get_running_loop().create_future())

    def post(self, **request: Any) -> asyncio.Future[dict[str, Any]]:
        request.setdefault("id", f"r{len(self.waiting)}")
        self.stdin.feed_data(json.dumps(request).encode() + b"\n")
        return self.future(request["id"])

    def service(self, setup: GraderSetup, notice: Any) -> Service:
        return Service(setup, notice, engines=self.engine)

    def engine(self, setup: GraderSetup, notice: Any) -> SumEngine:
        self.made.append(self.engines.pop(0) if self.engines else SumEngine())
        return self.made[-1]

    def harness(self, name: str, program: str) -> str:
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        (folder / "main.py").write_text(CLIENT + program)
        return str(folder)

    def problems(self, name: str, numbers: range) -> str:
        path = self.root / f"{name}.jsonl"
        rows = [{"problem_idx": n, "problem": f"What is {n}+{n} ?", "answer": 2 * n} for n in numbers]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    def setup(self, wave: int = 8) -> GraderSetup:
        return GraderSetup(
            id="setup", task="aime", problems="aime", validation=self.problems("v", range(10, 14)),
            hidden=self.problems("h", range(20, 24)), samples=1, seed=3, decoding=Decoding(max_tokens=64),
            limits=ProblemLimits(think_s=10, wall_s=20), engine=EngineConfig(wave=wave),
            model_env=str(Path(sys.executable).parents[1]), base_dir=str(self.folder("base")),
            models_dir=str(self.folder("models")), runtime_dir=str(self.folder("r")), log_dir=str(self.folder("logs")),
            cgroup=None,
        )  # fmt: skip

    def folder(self, name: str) -> Path:
        (self.root / name).mkdir(exist_ok=True)
        return self.root / name

    def evaluate(self, harness: str, out: str = "e001", **more: Any) -> asyncio.Future[dict[str, Any]]:
        model = {"id": "m00", "format": "base"}
        where = {"harness_dir": harness, "out_dir": str(self.root / out)}
        return self.post(op="evaluate", eval=out, candidate="c01", model=model, **where, **more)

    def hidden(self, candidate: str, harness: str, initial: str) -> asyncio.Future[dict[str, Any]]:
        return self.post(
            op="hidden", run="run1", candidate=candidate, model={"id": "m00", "format": "base"}, harness_dir=harness,
            initial_harness_dir=initial, sealed_dir=str(self.root / "sealed"),
        )  # fmt: skip

    def notices(self) -> list[str]:
        return [message["what"] for message in self.sent if message["kind"] == "noticed"]


@pytest.fixture(scope="module", autouse=True)
def _children() -> None:
    use_pidfd_children()


@asynccontextmanager
async def serving(root: Path, *engines: SumEngine, wave: int = 8, kind: type[Desk] = Desk) -> AsyncIterator[Desk]:
    """A grader that was set up; at the end its stdin closes and it must be gone."""
    desk = kind(root, list(engines))
    server = asyncio.create_task(Server(desk.write, desk.service).serve(desk.stdin))
    try:
        reply = await desk.post(**desk.setup(wave).model_dump())
        assert reply["ok"], reply["error"]
        yield desk
    finally:
        if not server.done():
            desk.stdin.feed_eof()
        await server
        assert sandboxes() == set()


async def test_setup_says_what_the_splits_are(tmp_path: Path) -> None:
    async with serving(tmp_path) as desk:
        (reply,) = [message for message in desk.sent if message["kind"] == "reply"]
        result = reply["result"]
        assert (result["validation"]["count"], result["hidden"]["count"]) == (4, 4)
        assert (result["overlap"], result["engine"]) == (False, "sums 1 cpu")
        again = await desk.post(**{**desk.setup().model_dump(), "id": "second"})
        assert "already" in again["error"]


async def test_an_evaluation_answers_with_progress_and_a_score(tmp_path: Path) -> None:
    async with serving(tmp_path) as desk:
        reply = await desk.evaluate(desk.harness("h", HONEST))
        score = ScoreFile.model_validate(reply["result"])
        assert (score.score.score, score.split) == (1.0, "validation")
        progress = [message for message in desk.sent if message["kind"] == "progress"]
        assert (progress[0]["done"], progress[-1]["done"], progress[-1]["total"]) == (0, 4, 4)
        assert not (tmp_path / "sealed").exists()


async def test_an_engine_that_dies_is_replaced_once(tmp_path: Path) -> None:
    async with serving(tmp_path, SumEngine(dies_in=[1])) as desk:
        reply = await desk.evaluate(desk.harness("h", HONEST))
        assert reply["result"]["score"]["score"] == 1.0
        assert len(desk.made) == 2
        assert desk.notices() == ["infrastructure failed, trying once more"]


async def test_a_broken_infrastructure_is_no_score(tmp_path: Path) -> None:
    async with serving(tmp_path, SumEngine(dies_in=[1]), SumEngine(dies_in=[1])) as desk:
        reply = await desk.evaluate(desk.harness("h", HONEST))
        assert (reply["ok"], reply["result"], reply["error"]) == (False, {}, "died")
        assert not (tmp_path / "e001" / "score.json").exists()
        assert (await desk.evaluate(desk.harness("h", HONEST), "e002"))["ok"]


async def test_a_cancel_is_answered_and_leaves_nothing(tmp_path: Path) -> None:
    engine = SumEngine()
    async with serving(tmp_path, engine) as desk:
        engine.held.clear()
        running = desk.evaluate(desk.harness("h", HONEST), id="long")
        for _ in range(4):
            await engine.asked.get()
        queued = desk.evaluate(desk.harness("h", HONEST), "e002", id="queued")
        assert (await desk.post(op="cancel", target="queued"))["result"] == {"found": True}
        assert (await queued)["cancelled"]
        assert (await desk.post(op="cancel", target="long"))["ok"]
        assert (await running)["cancelled"]
        assert sandboxes() == set()
        assert (await desk.post(op="cancel", target="no such"))["result"] == {"found": False}
        engine.held.set()
        assert (await desk.evaluate(desk.harness("h", HONEST)))["ok"]


async def test_nonsense_on_stdin_is_passed_over(tmp_path: Path) -> None:
    async with serving(tmp_path) as desk:
        desk.stdin.feed_data(b"hello\n{}\n[1]\n" + b'{"op": "unseal", "id": "x"}\n')
        assert (await desk.evaluate(desk.harness("h", HONEST)))["ok"]


async def test_a_request_before_setup_is_refused(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    server = asyncio.create_task(Server(desk.write, desk.service).serve(desk.stdin))
    reply = await desk.evaluate("/nowhere")
    assert "setup comes first" in reply["error"]
    assert (await desk.post(op="shutdown"))["ok"]
    await server


async def test_the_end_of_stdin_ends_a_running_evaluation(tmp_path: Path) -> None:
    engine = SumEngine()
    async with serving(tmp_path, engine) as desk:
        engine.held.clear()
        running = desk.evaluate(desk.harness("h", HONEST))
        for _ in range(4):
            await engine.asked.get()
        desk.stdin.feed_eof()
        assert (await running)["cancelled"]


async def test_the_hidden_test_is_two_evaluations_and_their_difference(tmp_path: Path) -> None:
    async with serving(tmp_path) as desk:
        reply = await desk.hidden("c07", desk.harness("h", HONEST), desk.harness("h0", DUMB))
        result = HiddenResult.model_validate(reply["result"])
        assert (result.selected.score.score, result.initial.score.score) == (1.0, 0.0)
        assert result.delta.value == 1.0
        assert result.status == "ok"
        assert [message["note"] for message in desk.sent if message["kind"] == "progress"][-1] == "P0 hidden"
        assert len(desk.made) == 2  # a fresh engine
        lines = (tmp_path / "sealed" / "ledger.jsonl").read_text().splitlines()
        assert [json.loads(line)["kind"] for line in lines] == ["claimed", "finished"]
        assert (tmp_path / "sealed").stat().st_mode & 0o077 == 0

        other = await desk.hidden("c08", desk.harness("h", HONEST), desk.harness("h0", DUMB))
        assert "c07" in other["error"]
        again = await desk.hidden("c07", desk.harness("h", HONEST), desk.harness("h0", DUMB))
        assert again["result"] == reply["result"]
        assert len((tmp_path / "sealed" / "ledger.jsonl").read_text().splitlines()) == 2


async def test_selecting_the_initial_system_costs_one_evaluation(tmp_path: Path) -> None:
    async with serving(tmp_path) as desk:
        reply = await desk.hidden("c00", desk.harness("h", HONEST), desk.harness("h0", HONEST))
        result = HiddenResult.model_validate(reply["result"])
        assert result.delta.model_dump() == {"value": 0.0, "low": 0.0, "high": 0.0}
        assert result.initial == result.selected
        assert len(desk.made[-1].calls) == 4


async def test_a_hidden_test_goes_on_after_a_crash(tmp_path: Path) -> None:
    """The grader dies in the middle; the next one judges only what was not committed."""
    first = SumEngine()
    second = SumEngine(dies_in=[2])
    async with serving(tmp_path, first, second, wave=2) as desk:
        second.held.clear()
        desk.hidden("c07", desk.harness("h", HONEST), desk.harness("h0", DUMB))
        for _ in range(2):
            await second.asked.get()
        second.held.set()
        await second.asked.get()
        second.held.clear()
        desk.stdin.feed_eof()
    assert (tmp_path / "sealed" / "hidden" / "selected" / "waves" / "000.jsonl").exists()
    async with serving(tmp_path, wave=2) as desk:
        reply = await desk.hidden("c07", desk.harness("h", HONEST), desk.harness("h0", DUMB))
        assert reply["result"]["selected"]["score"]["score"] == 1.0
        assert len(desk.made[-1].calls) == 2 + 4


async def test_a_candidate_that_kills_two_engines_scores_zero_for_what_is_open(tmp_path: Path) -> None:
    engines = (SumEngine(), SumEngine(dies_in=[2]), SumEngine(dies_in=[1]))
    async with serving(tmp_path, *engines, wave=2) as desk:
        reply = await desk.hidden("c07", desk.harness("h", HONEST), desk.harness("h0", DUMB))
        result = HiddenResult.model_validate(reply["result"])
        assert result.status == "candidate_crash"
        assert result.selected.reasons == {"candidate_crash": 2, "match": 2}
        assert (result.selected.score.score, result.initial.score.score) == (0.5, 0.0)
        again = await desk.hidden("c07", desk.harness("h", HONEST), desk.harness("h0", DUMB))
        assert again["result"] == reply["result"]


async def test_an_engine_that_fails_on_both_leaves_the_claim_open(tmp_path: Path) -> None:
    engines = (SumEngine(), FailingStart(), FailingStart(), FailingStart())
    async with serving(tmp_path, *engines) as desk:
        reply = await desk.hidden("c07", desk.harness("h", HONEST), desk.harness("h0", DUMB))
        assert not reply["ok"]
        assert "fails on P0" in reply["error"]
        assert not (tmp_path / "sealed" / "hidden" / "selected" / "score.json").exists()
        resumed = await desk.hidden("c07", desk.harness("h", HONEST), desk.harness("h0", DUMB))
        assert resumed["result"]["selected"]["score"]["score"] == 1.0


async def test_sampling_answers_the_agents_own_prompts(tmp_path: Path) -> None:
    async with serving(tmp_path, wave=3) as desk:
        prompts = tmp_path / "prompts.jsonl"
        prompts.write_text('{"prompt": "1+2"}\n\n{"messages": [{"role": "user", "content": "3+4"}]}\n')
        request = {
            "op": "sample", "model": {"id": "m00", "format": "base"}, "prompts_file": str(prompts),
            "out_file": str(tmp_path / "out.jsonl"), "n": 2, "max_tokens": 20, "temperature": 1.0, "seed": 5,
        }  # fmt: skip
        reply = await desk.post(**request)
        assert reply["result"] == {"prompts": 2, "replies": 4, "refused": 0, "tokens_out": 20}
        lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        assert [(line["prompt"], line["sample"]) for line in lines] == [(0, 0), (0, 1), (1, 0), (1, 1)]
        assert len({line["text"] for line in lines}) == 4
        await desk.post(**{**request, "out_file": str(tmp_path / "again.jsonl")})
        assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()


@pytest.mark.parametrize(
    "text", ["", "hello\n", '{"prompt": 7}\n', '{"prompt": "a", "messages": []}\n', '{"messages": [{"role": []}]}\n']
)
async def test_bad_prompts_are_one_line_to_the_agent(tmp_path: Path, text: str) -> None:
    async with serving(tmp_path) as desk:
        (tmp_path / "p.jsonl").write_text(text)
        reply = await desk.post(
            op="sample", model={"id": "m00", "format": "base"}, prompts_file=str(tmp_path / "p.jsonl"),
            out_file=str(tmp_path / "out"), n=1, max_tokens=5, temperature=0.0, seed=0,
        )  # fmt: skip
        assert reply["error"].startswith("p.jsonl")
        assert "\n" not in reply["error"]
        assert not (tmp_path / "out").exists()


async def test_progress_is_throttled_but_ends_are_not() -> None:
    sent: list[Any] = []
    with Reporter("r", sent.append) as report:
        for done in range(1001):
            report(done, 1000)
    assert len(sent) <= 4
    assert (sent[0].done, sent[-1].done) == (0, 1000)


async def test_what_was_held_back_is_told_when_its_turn_comes_and_never_after_the_reply() -> None:
    """Two of twelve are done in one moment and the rest takes long: a person sees 2, not 0."""
    told: asyncio.Queue[Any] = asyncio.Queue()
    with Reporter("r", told.put_nowait) as report:
        for done in range(3):
            report(done, 12)
        assert (await told.get()).done == 0
        assert (await told.get()).done == 2
        report(3, 12)
    assert told.empty()
