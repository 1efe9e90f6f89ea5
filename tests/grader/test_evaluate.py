"""Waves, commits, resumes and cancels of a whole evaluation."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from eval_kit import HONEST, Kit, SumEngine

from grader.engines.base import EngineError
from grader.errors import GraderError
from grader.protocol import ScoreFile
from tasks.spec import Decoding, ProblemLimits

HALF = """
task = say({"op": "task.get"})
text = chat(task["instruction"])
finish(text if int(task["instruction"].split("+")[0].split()[-1]) % 2 else "no idea")
"""


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path)


def sandboxes() -> set[str]:
    """The harness sandboxes below this process, and those that lost their parent, as pids."""
    parents: dict[str, str] = {}
    harnesses: set[str] = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[folder.name] = (folder / "stat").read_text().rpartition(")")[2].split()[1]
                if b"/harness/main.py" in (folder / "cmdline").read_bytes() and folder.stat().st_uid == os.getuid():
                    harnesses.add(folder.name)
            except OSError:
                continue
    return {pid for pid in harnesses if _ours(pid, parents)}


def _ours(pid: str, parents: dict[str, str]) -> bool:
    if parents.get(pid) == "1":
        return True
    while pid in parents:
        if pid == str(os.getpid()):
            return True
        pid = parents[pid]
    return False


async def test_a_score_divides_by_what_was_scheduled(kit: Kit) -> None:
    kit.problems, kit.samples, kit.wave = 5, 2, 4
    score = await kit.run(HALF)
    assert (score.score.n, score.score.samples) == (5, 2)
    assert score.score.score == pytest.approx(0.4)
    assert score.reasons == {"match": 4, "mismatch": 6}
    assert [(row["problem"], row["sample"]) for row in kit.rows()] == [(f"p{i}", s) for i in range(5) for s in (0, 1)]
    assert [step["kind"] for step in kit.steps("p3")] == ["call", "end", "call", "end"]
    assert kit.progress[0] == (0, 10)
    assert kit.progress[-1] == (10, 10)
    assert (score.calls, score.reproducible, score.zero_call_solves) == (10, True, 0)
    assert ScoreFile.model_validate_json((kit.root / "out" / "score.json").read_bytes()) == score


async def test_waves_are_cut_by_index_and_share_rounds(kit: Kit) -> None:
    kit.problems, kit.wave = 5, 2
    await kit.run(HONEST)
    assert kit.engine.rounds == [["000000", "000001"], ["000002", "000003"], ["000004"]]
    assert kit.engine.open == set()
    assert sorted(path.name for path in (kit.root / "out" / "waves").iterdir()) == [
        "000.jsonl",
        "001.jsonl",
        "002.jsonl",
    ]


async def test_the_same_conditions_give_the_same_files(kit: Kit) -> None:
    kit.problems, kit.samples, kit.decoding = 4, 2, Decoding(temperature=1.0)
    first = await kit.run(HONEST, "one")
    second = await kit.run(HONEST, "two")
    assert first.digest == second.digest
    assert first.score == second.score
    for problem in ("p0", "p3"):
        one, two = (
            [{k: v for k, v in step.items() if k != "seconds"} for step in kit.steps(problem, out)]
            for out in ("one", "two")
        )
        assert one == two
    assert len({step["reply"] for step in kit.steps("p0", "one") if step["kind"] == "call"}) == 2


async def test_answers_without_a_model_call_are_counted(kit: Kit) -> None:
    score = await kit.run("""
        task = say({"op": "task.get"})
        finish("\\\\boxed{%d}" % (int(task["instruction"].split("+")[0].split()[-1]) + 1))
    """)
    assert (score.score.score, score.zero_call_solves) == (1.0, 3)


async def test_an_engine_that_dies_gives_no_score_and_a_resume_keeps_committed_waves(kit: Kit) -> None:
    kit.problems, kit.wave = 6, 2
    kit.engine = SumEngine(dies_in=[2])
    with pytest.raises(EngineError):
        await kit.run(HONEST)
    assert not (kit.root / "out" / "score.json").exists()
    assert sandboxes() == set()
    assert kit.engine.open == set()
    kit.engine = SumEngine()
    score = await kit.run(HONEST)
    assert score.score.score == 1.0
    assert kit.engine.rounds == [["000002", "000003"], ["000004", "000005"]]
    assert (2, 6) in kit.progress
    assert len(kit.rows()) == 6
    assert [problem for problem, _ in kit.judged].count("p0") == 1


async def test_a_finished_evaluation_is_not_run_again(kit: Kit) -> None:
    first = await kit.run(HONEST)
    kit.engine = SumEngine()
    assert await kit.run(HONEST) == first
    assert kit.engine.loaded == []


async def test_a_crash_before_the_score_is_published_costs_nothing(kit: Kit) -> None:
    first = await kit.run(HONEST)
    (kit.root / "out" / "score.json").unlink()
    (kit.root / "out" / "problems.jsonl").write_text("torn")
    kit.engine = SumEngine()
    assert await kit.run(HONEST) == first
    assert kit.engine.calls == []
    assert len(kit.rows()) == 3


@pytest.mark.parametrize("change", ["identity", "seed", "limits"])
async def test_results_of_other_conditions_are_refused(kit: Kit, change: str) -> None:
    await kit.run(HONEST)
    (kit.root / "out" / "score.json").unlink()
    if change == "limits":
        kit.limits = ProblemLimits(calls_per_problem=1)
    if change == "seed":
        kit.decoding = Decoding(temperature=0.5)
    with pytest.raises(GraderError, match="other conditions"):
        await kit.evaluation(HONEST, identity="other" if change == "identity" else "same").run()


async def test_a_candidate_that_cannot_be_served_keeps_what_it_had(kit: Kit) -> None:
    kit.problems, kit.wave = 4, 2
    kit.engine = SumEngine(dies_in=[2])
    evaluation = kit.evaluation(HONEST)
    with pytest.raises(EngineError):
        await evaluation.run()
    score = await kit.evaluation(HONEST).give_up("candidate_crash")
    assert score.reasons == {"candidate_crash": 2, "match": 2}
    assert score.score.score == 0.5


async def test_a_cancel_leaves_nothing(kit: Kit) -> None:
    kit.problems, kit.wave = 6, 3
    kit.engine.held.clear()
    running = asyncio.create_task(kit.run(HONEST))
    for _ in range(3):
        await kit.engine.asked.get()
    assert len(sandboxes()) >= 3
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sandboxes() == set()
    assert list((kit.root / "s").iterdir()) == []
    assert not (kit.root / "out" / "waves").exists()
    assert kit.engine.open == set()
    kit.engine.held.set()
    assert (await kit.run(HONEST)).score.score == 1.0


async def test_a_cancel_at_any_moment_leaves_nothing(kit: Kit) -> None:
    kit.problems, kit.wave = 4, 4
    for delay in (0.0, 0.005, 0.02, 0.05, 0.1, 0.2):
        running = asyncio.create_task(kit.run(HONEST, f"out{delay}"))
        await asyncio.wait({running}, timeout=delay)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert sandboxes() == set()
        assert not (kit.root / "s").exists() or list((kit.root / "s").iterdir()) == []
        assert kit.engine.open == set()
        kit.engine.pending.clear()


async def test_a_failure_of_the_judge_is_no_score(kit: Kit) -> None:
    async def broken(problem: str, answer: str) -> None:
        raise GraderError("the vault is gone")

    kit.judge = broken  # type: ignore[method-assign,assignment]
    with pytest.raises(GraderError, match="the vault is gone"):
        await kit.run(HONEST)
    assert sandboxes() == set()


async def test_no_gold_answer_and_no_host_path_in_any_file(kit: Kit) -> None:
    await kit.run(HONEST)
    for path in (kit.root / "out").rglob("*.json*"):
        assert str(kit.root) not in path.read_text()
        for line in path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]:
            json.loads(line)


async def test_time_is_linear_in_the_number_of_problems(kit: Kit) -> None:
    """Rounds, calls and files grow by one wave at a time; nothing looks back at what was done."""
    kit.problems, kit.wave = 48, 16
    await kit.run(HONEST)
    assert [len(round_) for round_ in kit.engine.rounds] == [16, 16, 16]
    assert len(list((kit.root / "out" / "trajectories").iterdir())) == 48
