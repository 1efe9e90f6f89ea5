"""A research phase in small: real folders, journal, sandboxes, desk and client; a grader that scores what it reads."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from grader.intervals import rewards_of, score_of
from grader.protocol import (
    Cancel,
    EngineConfig,
    Evaluate,
    Gate,
    GateResult,
    Generate,
    ProblemRow,
    Progress,
    Reply,
    Request,
    ScoreFile,
)
from isolation.sandbox import use_pidfd_children
from runner.config import IntakeSizes, RunConfig
from runner.record.events import AgentEnded, AgentTurn, BudgetLimits, Event
from runner.record.journal import Journal, read
from runner.record.rundir import RunDir
from runner.research.agent_process import AgentProcess
from runner.research.agents.base import AgentContext, AgentLaunch
from runner.research.budget import Budget
from runner.research.candidate import Registry, create_initial
from runner.research.desk import Desk
from runner.research.lab import Lab
from runner.research.lease import Lease
from runner.research.memory import plan_memory
from runner.research.validate import ValidationService
from runner.research.workspace import prepare, snapshot_initial, write_brief
from tasks.spec import Decoding, ProblemLimits

PROBLEMS = 20

TRAINER = """
import json, os, sys, tomllib
args = dict(zip(sys.argv[1::2], sys.argv[2::2]))
rows = open(args["--data"] + "/train.jsonl").read().splitlines()
with os.fdopen(int(os.environ["VIBE_METRICS"]), "w") as metrics:
    for step in range(1, 4):
        metrics.write(json.dumps({"step": step, "steps": 3, "loss": 1 / step}) + "\\n")
print("trained on", len(rows), "rows")
open(args["--out"] + "/model.safetensors", "w").write(f"weights of {len(rows)} rows")
"""


class EchoGrader:
    """The client's interface over the simplest rules: a harness solves as many problems as its file ``solves`` says; a
    checkpoint is accepted when it holds model.safetensors alone. ``gate`` closed holds evaluations back."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.open = asyncio.Event()
        self.open.set()
        self.running = asyncio.Event()
        self.failures = 0
        self._cancelled: dict[str, asyncio.Event] = {}

    async def call(self, request: Request, on_progress: Callable[[Progress], None] | None = None) -> Reply:
        self.requests.append(request)
        match request:
            case Evaluate() | Generate():
                return await self._slow(request, on_progress)
            case Gate():
                return Reply(id=request.id, ok=True, result=self._gate(request).model_dump())
            case Cancel(target=target):
                if target in self._cancelled:
                    self._cancelled[target].set()
        return Reply(id=request.id, ok=True)

    async def _slow(self, request: Evaluate | Generate, on_progress: Callable[[Progress], None] | None) -> Reply:
        stop = self._cancelled[request.id] = asyncio.Event()
        self.running.set()
        waits = [asyncio.create_task(self.open.wait()), asyncio.create_task(stop.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in waits:
            task.cancel()
        self.running.clear()
        if stop.is_set():
            return Reply(id=request.id, ok=False, cancelled=True)
        if self.failures:
            self.failures -= 1
            return Reply(id=request.id, ok=False, error="the engine died")
        if on_progress is not None:
            on_progress(Progress(id=request.id, done=PROBLEMS, total=PROBLEMS))
        if isinstance(request, Generate):
            return self._sample(request)
        return Reply(id=request.id, ok=True, result=self._evaluate(request).model_dump())

    def _sample(self, request: Generate) -> Reply:
        lines = Path(request.prompts_file).read_text().splitlines()
        replies = [{"prompt": json.loads(line), "replies": ["ok"] * request.n} for line in lines]
        Path(request.out_file).write_text("".join(json.dumps(row) + "\n" for row in replies))
        return Reply(id=request.id, ok=True)

    def _evaluate(self, request: Evaluate) -> ScoreFile:
        solves = int((Path(request.harness_dir) / "solves").read_text())
        rows = [row(f"p{number:02d}", float(number < solves)) for number in range(PROBLEMS)]
        out = Path(request.out_dir)
        (out / "trajectories").mkdir(exist_ok=True)
        (out / "problems.jsonl").write_text("".join(one.model_dump_json() + "\n" for one in rows))
        (out / "trajectories" / "p00.jsonl").write_text("{}\n")
        score = ScoreFile(
            candidate=request.candidate,
            eval=request.eval,
            split="validation",
            score=score_of(rewards_of(rows, [one.problem for one in rows]), 1),
            reasons={},
            zero_call_solves=0,
            overwritten={},
            calls=0,
            tokens_in=0,
            tokens_out=0,
            seconds=0.0,
            reproducible=True,
            digest="0",
        )
        (out / "score.json").write_text(score.model_dump_json())
        return score

    def _gate(self, request: Gate) -> GateResult:
        names = sorted(path.name for path in Path(request.out_dir).iterdir())
        if names != ["model.safetensors"]:
            return GateResult(accepted=False, refused=f"only safetensors are allowed, not {names}")
        weights = Path(request.model_dir) / "weights"
        weights.mkdir()
        shutil.copy(Path(request.out_dir) / names[0], weights / names[0])
        return GateResult(accepted=True, sha256="0" * 64, bytes=1, delta_norm=0.5)


def row(problem: str, reward: float) -> ProblemRow:
    return ProblemRow(
        problem=problem,
        sample=0,
        reward=reward,
        reason="match" if reward else "mismatch",
        calls=1,
        parse_errors=0,
        tokens_in=1,
        tokens_out=1,
        seconds=0.1,
    )


def lay_out(workspace: Path) -> None:
    for name in ("data", "trainer", "harness"):
        (workspace / name).mkdir()
    (workspace / "data" / "train.jsonl").write_text('{"prompt": "1+1", "completion": "2"}\n')
    (workspace / "trainer" / "train.py").write_text(TRAINER)
    (workspace / "harness" / "main.py").write_text("print('hello')\n")
    (workspace / "harness" / "solves").write_text("5")


@dataclass
class ScriptAgent:
    """A research agent whose whole program is a Python script, sent on stdin. Lines {"say": ...} are its turns."""

    script: str
    name: str = "script"
    launches: list[AgentContext] = field(default_factory=list)

    def launch(self, context: AgentContext) -> AgentLaunch:
        self.launches.append(context)
        return AgentLaunch(argv=(context.python, "-I", "-S", "-"), stdin=(PRELUDE + self.script).encode(), session="s1")

    def turns(self, line: str) -> AgentTurn | None:
        try:
            said = json.loads(line)
        except ValueError:
            return None
        return AgentTurn(n=0, summary=str(said["say"])) if isinstance(said, dict) and "say" in said else None


PRELUDE = """
import json, os, subprocess, sys, time, socket, signal
def vibe(*words, **options):
    done = subprocess.run(["vibe", *words], capture_output=True, text=True, **options)
    return done.returncode, done.stdout, done.stderr
def ask(verb, *words):
    code, out, err = vibe(verb, "--json", *words)
    answer = json.loads(out.splitlines()[-1]) if out else {}
    return {"code": code, "err": err, **answer}
def keep(**facts):
    path = "/lab/notes/facts.json"
    old = json.load(open(path)) if os.path.exists(path) else {}
    json.dump({**old, **facts}, open(path, "w"))
def raw(data, wait=True):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(os.environ["VIBE_CONTROL"])
        try:
            s.sendall(data)
        except OSError:
            pass
        s.settimeout(20)
        got = b""
        while wait:
            try:
                chunk = s.recv(65536)
            except OSError:
                break
            if not chunk:
                break
            got += chunk
        return got.decode()
"""


@dataclass
class Phase:
    """A research phase that tests drive. ``facts`` is what a script kept."""

    lab: Lab
    registry: Registry
    desk: Desk
    grader: EchoGrader
    sources: Path
    control: Path

    async def agent(self, script: str) -> AgentEnded:
        """Run a script as the agent in the research sandbox, to its end."""
        return await self.process(script).run(self.desk.finished)

    def process(self, script: str) -> AgentProcess:
        return AgentProcess(self.lab, ScriptAgent(script), brief="do well", sources=self.sources, control=self.control)

    async def said(self, text: str) -> None:
        """Wait until the agent's output holds a turn with ``text``."""
        heard = asyncio.Event()

        def listen(event: Event, _state: object) -> None:
            if isinstance(event.payload, AgentTurn) and event.payload.summary == text:
                heard.set()

        self.lab.journal.subscribe(listen)
        if not any(turn.summary == text for turn in self.kinds("agent_turn")):
            await heard.wait()

    async def until(self, kind: str, count: int) -> None:
        """Wait until the journal holds ``count`` events of ``kind``."""
        heard = asyncio.Event()

        def listen(_event: Event, _state: object) -> None:
            if len(self.kinds(kind)) >= count:
                heard.set()

        self.lab.journal.subscribe(listen)
        if len(self.kinds(kind)) < count:
            await heard.wait()

    @property
    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.lab.rundir.workspace / "notes" / "facts.json").read_text())
        return found

    @property
    def events(self) -> list[Event]:
        return list(read(self.lab.journal.path))

    def kinds(self, kind: str) -> list[Any]:
        return [event.payload for event in self.events if event.payload.kind == kind]


def config(**changes: Any) -> RunConfig:
    """A configuration for the product's own interpreter: no test here needs a model."""
    fields: dict[str, Any] = {
        "task": "aime",
        "problems": "mini",
        "validation_file": None,
        "hidden_file": None,
        "model": "none",
        "base_dir": "",
        "model_env": sys.prefix,
        "agent": "script",
        "scope": ("data", "trainer", "harness"),
        "seed": 0,
        "samples": 1,
        "decoding": Decoding(max_tokens=64),
        "limits": ProblemLimits(),
        "engine": EngineConfig(),
        "budget": BudgetLimits(wall_s=120.0),
        "profile": "laptop",
        "intake": IntakeSizes(data=32 << 20),
        "disk_reserve": 1 << 20,
        "agent_resumes": 0,
        **changes,
    }
    return RunConfig(**fields)


@pytest.fixture(scope="session", autouse=True)
def _children() -> None:
    use_pidfd_children()


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="vt-") as folder:
        yield Path(folder)


Maker = Callable[..., Any]


@pytest.fixture
async def phases(tmp_path: Path, short: Path) -> AsyncIterator[Maker]:
    """Makes a started research phase; everything is closed at the end."""
    made: list[Phase] = []

    async def make(
        grader: EchoGrader | None = None,
        task_files: Callable[[Path], None] = lambda _workspace: None,
        official_is_selection: bool = False,
        **changes: Any,
    ) -> Phase:
        base = tmp_path / "base"
        base.mkdir()
        (base / "config.json").write_text("{}")
        control = short / "control"
        control.mkdir(mode=0o700)
        settings = config(base_dir=str(base), **changes)
        rundir = RunDir.create(tmp_path / "runs", "aime", datetime(2026, 11, 30))
        budget = Budget(settings.budget)
        journal = Journal.create(rundir.journal_file, budget.el)
        grader = grader or EchoGrader()
        lab = Lab(
            config=settings,
            rundir=rundir,
            journal=journal,
            grader=grader,
            budget=budget,
            lease=Lease(journal),
            runtime=short,
            memory=replace(plan_memory(8 << 30, 1 << 30), idle=False),
            problems=PROBLEMS,
            official_is_selection=official_is_selection,
        )

        def task_lays_out(workspace: Path, _sources: Path) -> None:
            lay_out(workspace)
            task_files(workspace)

        prepare(lab, task_lays_out)
        await snapshot_initial(lab)
        registry = Registry.of(journal)
        first = await create_initial(lab, registry)
        await ValidationService(lab, registry).run(
            first, "j000", late=lambda: False, on_progress=lambda _: None, why_cancelled=lambda: "cancelled"
        )
        write_brief(lab, "Solve sums.", seconds_per_validation=1.0)
        desk = Desk(lab, registry)
        await desk.serve(control)
        budget.start()
        made.append(Phase(lab, registry, desk, grader, rundir.sources, control))
        return made[-1]

    yield make
    for phase in made:
        phase.grader.open.set()
        await phase.desk.close()
        phase.lab.journal.close()
