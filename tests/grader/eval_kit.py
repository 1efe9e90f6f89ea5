"""What the evaluation tests stand on: an engine that does sums, problems of sums, and harnesses as programs."""

from __future__ import annotations

import asyncio
import hashlib
import re
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grader.engines.base import Completed, Completion, EngineError, RequestRefused
from grader.evaluate import Bench, Evaluation, Rules, Split, Subject
from grader.protocol import EngineConfig, ModelRef, ScoreFile, SplitInfo
from isolation.bwrap import python_mounts
from isolation.sandbox import use_pidfd_children
from tasks.spec import Decoding, ProblemLimits, Public, Verdict

SUM = re.compile(r"(\d+)\+(\d+)")

CLIENT = """
import json, os, socket, sys

def say(message):
    sys.stdout.write(json.dumps(message) + "\\n")
    sys.stdout.flush()
    return json.loads(sys.stdin.readline())

def connect():
    s = socket.socket(socket.AF_UNIX)
    s.connect(os.environ["VIBE_MODEL_SOCKET"])
    return s

def send(s, path, fields, method="POST"):
    body = json.dumps(fields).encode() if fields is not None else b""
    s.sendall(f"{method} {path} HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n".encode() + body)

def receive(s):
    data = b""
    while b"\\r\\n\\r\\n" not in data:
        more = s.recv(65536)
        if not more:
            return 0, None
        data += more
    head, _, body = data.partition(b"\\r\\n\\r\\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\\r\\n")[0])
    while len(body) < length:
        body += s.recv(65536)
    return int(head.split()[1]), json.loads(body)

def post(path, fields, method="POST"):
    s = connect()
    send(s, path, fields, method)
    return receive(s)

def chat(text, **more):
    status, reply = post("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], **more})
    return reply["choices"][0]["message"]["content"] if status == 200 else f"{status} {reply['error']['message']}"

def finish(answer):
    return say({"op": "finish", "answer": answer})
"""

HONEST = """
task = say({"op": "task.get"})
finish(chat(task["instruction"]))
"""


class SumEngine:
    """Rounds as an engine has them; its model adds the two numbers of the last message. Records what it was asked.

    ``dies_in``: numbers of rounds (from 1) in which every request ends in an EngineError.
    """

    def __init__(self, dies_in: Sequence[int] = ()) -> None:
        self.open: set[str] = set()
        self.pending: dict[str, tuple[Completion, asyncio.Future[Completed]]] = {}
        self.rounds: list[list[str]] = []
        self.calls: list[tuple[str, Completion]] = []
        self.loaded: list[str] = []
        self.dies_in = set(dies_in)
        self.asked: asyncio.Queue[str] = asyncio.Queue()
        self.held = asyncio.Event()
        self.held.set()

    async def start(self) -> str:
        return "sums 1 cpu"

    async def load(self, model: ModelRef) -> None:
        self.loaded.append(model.id)

    async def sessions(self, opened: Sequence[str], closed: Sequence[str]) -> None:
        self.open |= set(opened)
        self.open -= set(closed)
        self._round()

    async def complete(self, session: str, call: Completion) -> Completed:
        assert session in self.open, "a call of a session that was never opened"
        assert session not in self.pending, "two calls of one session at once"
        self.calls.append((session, call))
        self.asked.put_nowait(session)
        await self.held.wait()
        future: asyncio.Future[Completed] = asyncio.get_running_loop().create_future()
        self.pending[session] = (call, future)
        self._round()
        try:
            return await future
        finally:
            self.pending.pop(session, None)

    def _round(self) -> None:
        if not self.pending or self.open - set(self.pending):
            return
        batch, self.pending = self.pending, {}
        self.rounds.append(sorted(batch))
        for call, future in batch.values():
            if len(self.rounds) in self.dies_in:
                future.set_exception(EngineError("died"))
                continue
            try:
                future.set_result(reply_to(call))
            except RequestRefused as refusal:
                future.set_exception(refusal)

    async def sleep(self) -> None: ...
    async def wake(self) -> None: ...
    async def stop(self) -> None: ...


def reply_to(call: Completion) -> Completed:
    """The sum in \\boxed{}; at a temperature, a digest of the seed in its place; cut to max_tokens words."""
    prompt = call.messages[-1][1] if call.messages else call.prompt or ""
    if len(prompt) > 20_000:
        raise RequestRefused("the prompt is longer than the model's context")
    found = SUM.search(prompt)
    total = str(int(found[1]) + int(found[2])) if found else "nothing"
    draw = hashlib.sha256(str(call.seed).encode()).hexdigest()[:8] if call.temperature else ""
    words = f"The answer is \\boxed{{{total}}} {draw}".split()[: call.max_tokens]
    text = " ".join(words)
    for stop in call.stop:
        if stop in text:
            text = text[: text.index(stop) + len(stop)]
    return Completed(text, "stop", len(prompt.split()), len(words), 0.0)


@dataclass
class Kit:
    """One evaluation's surroundings below ``root``."""

    root: Path
    engine: SumEngine = field(default_factory=SumEngine)
    problems: int = 3
    samples: int = 1
    wave: int = 8
    limits: ProblemLimits = field(default_factory=lambda: ProblemLimits(think_s=3.0, wall_s=10.0))
    decoding: Decoding = field(default_factory=Decoding)
    progress: list[tuple[int, int]] = field(default_factory=list)
    attempts: list[tuple[str, str]] = field(default_factory=list)
    judged: list[tuple[str, str]] = field(default_factory=list)
    extra_files: dict[str, str] = field(default_factory=dict)

    def harness(self, program: str, name: str = "h") -> Path:
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        (folder / "main.py").write_text(CLIENT + textwrap.dedent(program))
        for file, text in self.extra_files.items():
            (folder / file).write_text(text)
        return folder

    def split(self) -> Split:
        ids = tuple(f"p{i}" for i in range(self.problems))
        return Split("validation", SplitInfo(count=len(ids), sha256="0" * 64), ids, self.public, self.judge)

    async def public(self, problem: str) -> Public:
        return Public(id=problem, instruction=f"How much is {problem[1:]}+1 ?")

    async def judge(self, problem: str, answer: str) -> Verdict:
        self.judged.append((problem, answer))
        right = f"\\boxed{{{int(problem[1:]) + 1}}}" in answer
        return Verdict(reward=float(right), reason="match" if right else "mismatch")

    def __post_init__(self) -> None:
        if sys.version_info < (3, 12) and not isinstance(asyncio.get_child_watcher(), asyncio.PidfdChildWatcher):
            use_pidfd_children()  # once: a running loop keeps the watcher it has

    def evaluation(self, program: str, out: str = "out", identity: str = "same") -> Evaluation:
        python = Path(sys.executable)
        bench = Bench(self.engine, "sums 1 cpu", python, python_mounts(python), self.root / "s")
        rules = Rules(self.decoding, self.limits, self.samples, 7, EngineConfig(wave=self.wave))
        subject = Subject(
            "c01", "e001", ModelRef(id="m00", format="base"), identity, self.harness(program), self.root / out
        )
        return Evaluation(
            bench,
            rules,
            self.split(),
            subject,
            on_progress=lambda done, total: self.progress.append((done, total)),
            on_attempt=lambda what, where: self.attempts.append((what, where)),
        )

    async def run(self, program: str, out: str = "out") -> ScoreFile:
        return await self.evaluation(program, out).run()

    def rows(self, out: str = "out") -> list[dict[str, object]]:
        return read_lines(self.root / out / "problems.jsonl")

    def steps(self, problem: str = "p0", out: str = "out") -> list[dict[str, object]]:
        return read_lines(self.root / out / "trajectories" / f"{problem}.jsonl")


def read_lines(path: Path) -> list[dict[str, object]]:
    import json

    return [json.loads(line) for line in path.read_text().splitlines()]
