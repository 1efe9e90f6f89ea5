"""The grader as the runner has it: its own process, the real engine on the tiny model, the real vault and walls."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from eval_kit import CLIENT, HONEST

from grader.client import GraderClient
from grader.errors import GraderError
from grader.protocol import (
    EngineConfig,
    Evaluate,
    Generate,
    GraderSetup,
    HiddenResult,
    HiddenTest,
    ModelRef,
    Noticed,
    Progress,
    Reply,
    Rest,
    ScoreFile,
)
from isolation.sandbox import use_pidfd_children
from tasks.spec import Decoding, ProblemLimits

ROOT = Path(__file__).resolve().parents[2]
HOME = Path(os.environ.get("VIBETRAINING_HOME") or Path.home() / ".cache" / "vibetraining-bench")
MODEL_ENV = HOME / "model-env"
TINY = ROOT / "tasks" / "models" / "tiny"
BASE = ModelRef(id="m00", format="base")
HANGING = """
task = say({"op": "task.get"})
if "10 + 10" in task["instruction"]:
    finish("")
import time
time.sleep(99)
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not (MODEL_ENV / "bin" / "python").exists(), reason="needs the model environment"),
]


class Place:
    """A run folder, as far as a grader sees one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("models/m00/weights", "evals", "logs"):
            (root / name).mkdir(parents=True)
        self.runtime = Path("/tmp") / f"vt-{os.getpid()}-{root.name[-12:]}"
        self.runtime.mkdir(mode=0o700)
        self.notices: list[Noticed] = []

    def harness(self, name: str, program: str) -> Path:
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        (folder / "main.py").write_text(CLIENT + program)
        return folder

    def problems(self, name: str, numbers: range) -> str:
        rows = [{"problem_idx": n, "problem": f"How much is {n} + {n}?", "answer": 2 * n} for n in numbers]
        path = self.root / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    def setup(self, request: str) -> GraderSetup:
        return GraderSetup(
            id=request, task="aime", problems="aime", validation=self.problems("v", range(10, 22)),
            hidden=self.problems("h", range(30, 42)), samples=1, seed=3,
            decoding=Decoding(max_tokens=4), limits=ProblemLimits(think_s=20), engine=EngineConfig(wave=8),
            model_env=str(MODEL_ENV), base_dir=str(TINY), models_dir=str(self.root / "models"),
            runtime_dir=str(self.runtime), log_dir=str(self.root / "logs"), cgroup=None,
        )  # fmt: skip

    def evaluate(self, request: str, harness: Path, name: str) -> Evaluate:
        where = {"harness_dir": str(harness), "out_dir": str(self.root / "evals" / name)}
        return Evaluate(id=request, eval=name, candidate="c00", model=BASE, **where)


@pytest.fixture(scope="module", autouse=True)
def _children() -> None:
    use_pidfd_children()


@pytest.fixture
def place(tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path)
    yield place  # type: ignore[misc]
    shutil.rmtree(place.runtime, ignore_errors=True)


@asynccontextmanager
async def grading(place: Place) -> AsyncIterator[GraderClient]:
    client = await GraderClient.start(place.root / "logs" / "grader.log", on_notice=place.notices.append)
    try:
        reply = await client.call(place.setup(client.new_id()))
        assert reply.ok, reply.error + (place.root / "logs" / "engine.log").read_text()
        yield client
    finally:
        await client.close()
        assert not client.alive


def descendants(pid: int) -> set[int]:
    """All processes below ``pid`` now."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    children: dict[int, list[int]] = {}
    for line in listed.splitlines():
        child, parent = map(int, line.split())
        children.setdefault(parent, []).append(child)
    found: set[int] = set()
    queue = [pid]
    while queue:
        below = children.get(queue.pop(), [])
        found.update(below)
        queue += below
    return found


async def gone(pids: set[int]) -> None:
    """Returns when none of ``pids`` is alive; raises TimeoutError after ten seconds."""
    async with asyncio.timeout(10):
        for pid in pids:
            try:
                handle = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            ended = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().add_reader(handle, lambda ended=ended: ended.done() or ended.set_result(None))
            await ended
            asyncio.get_running_loop().remove_reader(handle)
            os.close(handle)


async def test_a_validation_is_the_same_in_another_grader(place: Place) -> None:
    harness = place.harness("h", HONEST)
    progress: list[Progress] = []
    scores = []
    for name in ("e001", "e002"):
        async with grading(place) as client:
            reply = await client.call(place.evaluate(client.new_id(), harness, name), progress.append)
            assert reply.ok, reply.error
            scores.append(ScoreFile.model_validate(reply.result))
    one, two = scores
    assert one.digest == two.digest
    assert one.score == two.score
    assert (one.score.n, one.calls, one.reproducible) == (12, 12, True)
    assert one.tokens_out > 12
    assert (progress[-1].done, progress[-1].total) == (12, 12)
    texts = [
        [
            path.read_text().split('"seconds"')[0]
            for path in sorted((place.root / "evals" / name / "trajectories").iterdir())
        ]
        for name in ("e001", "e002")
    ]
    assert texts[0] == texts[1]
    print(f"12 problems: {one.seconds:.1f} s and {two.seconds:.1f} s, score {one.score.score:.3f}")


async def test_one_grader_does_everything_in_turn(place: Place) -> None:
    harness, initial = place.harness("h", HONEST), place.harness("h0", "finish('')\n")
    prompts = place.root / "prompts.jsonl"
    prompts.write_text('{"prompt": "How much is 3 + 4?"}\n' * 3)
    async with grading(place) as client:
        sampled = await client.call(
            Generate(
                id=client.new_id(), model=BASE, prompts_file=str(prompts), out_file=str(place.root / "out.jsonl"), n=2,
                max_tokens=4, temperature=1.0, seed=1,
            )
        )  # fmt: skip
        assert sampled.result["replies"] == 6
        for op in ("sleep", "wake"):
            assert (await client.call(Rest(op=op, id=client.new_id()))).ok  # type: ignore[arg-type]
        reply = await client.call(
            HiddenTest(
                id=client.new_id(), run="r", candidate="c01", model=BASE, harness_dir=str(harness),
                initial_harness_dir=str(initial), sealed_dir=str(place.root / "sealed"),
            )
        )  # fmt: skip
        assert reply.ok, reply.error
        result = HiddenResult.model_validate(reply.result)
        assert (result.selected.score.n, result.initial.calls) == (12, 0)
        refused = await client.call(
            HiddenTest(
                id=client.new_id(), run="r", candidate="c02", model=BASE, harness_dir=str(initial),
                initial_harness_dir=str(initial), sealed_dir=str(place.root / "sealed"),
            )
        )  # fmt: skip
        assert not refused.ok


async def _hanging(place: Place, client: GraderClient) -> tuple[asyncio.Task[Reply], str]:
    """An evaluation that is under way: one session has ended, so all sandboxes of its wave stand."""
    started = asyncio.Event()

    def on_progress(progress: Progress) -> None:
        if progress.done:
            started.set()

    request = place.evaluate(client.new_id(), place.harness("h", HANGING), "e001")
    task = asyncio.create_task(client.call(request, on_progress))
    await started.wait()
    return task, request.id


async def test_a_cancel_through_the_client(place: Place) -> None:
    async with grading(place) as client:
        task, request = await _hanging(place, client)
        await client.cancel(request)
        assert (await task).cancelled
        assert (await client.call(place.evaluate(client.new_id(), place.harness("q", "finish('')\n"), "e002"))).ok


async def test_nothing_outlives_the_grader(place: Place) -> None:
    async with grading(place) as client:
        task, _ = await _hanging(place, client)
        below = descendants(client.pid)
        assert len(below) >= 4
        os.kill(client.pid, signal.SIGKILL)
        with pytest.raises(GraderError, match="the grader has died"):
            await task
        await gone(below)
        with pytest.raises(GraderError):
            await client.call(Rest(op="sleep", id="x"))


async def test_the_grader_does_not_outlive_its_parent(place: Place) -> None:
    """A runner that is killed takes the grader, the engine, the vault and the harnesses with it."""
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from grader.client import GraderClient\n"
        "from grader.protocol import GraderSetup\n"
        "from isolation.sandbox import use_pidfd_children\n"
        "async def main():\n"
        "    client = await GraderClient.start(Path(sys.argv[2]))\n"
        "    await client.call(GraderSetup.model_validate_json(sys.argv[1]))\n"
        "    print(client.pid, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "use_pidfd_children()\n"
        "asyncio.run(main())\n"
    )
    setup = place.setup("s").model_dump_json()
    runner = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", program, setup, str(place.root / "logs" / "grader.log"), stdout=subprocess.PIPE
    )
    assert runner.stdout is not None
    grader = int(await runner.stdout.readline())
    below = {grader} | descendants(grader)
    assert len(below) >= 4
    runner.kill()
    await runner.wait()
    await gone(below)
