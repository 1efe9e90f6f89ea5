"""A whole `runner --task aime` with a real coding agent and a stand-in model; the runner is killed in mid-turn."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from gateway_kit import CANARY, MODEL
from live_kit import counters, results, shell_call, tools_of
from standin import Sent, StandIn, Turn

from runner.config import ConfigError
from runner.record.journal import load, read
from runner.record.rundir import list_runs
from runner.research.agents.install import installed
from runner.research.llm.account import totals

pytestmark = [pytest.mark.long, pytest.mark.timeout(3000)]

FEW = "head -n 48 /lab/data/train.jsonl > /tmp/few && cp /tmp/few /lab/data/train.jsonl"
WAIT = "vibe wait {} --timeout 25"
STEPS = (
    "vibe status",
    f"{FEW} && vibe train --detach -m 'less is enough'",
    WAIT.format("j001"),
    "echo '# read again' >> /lab/harness/main.py && vibe validate --detach -m 'with a note'",
    WAIT.format("j002"),
    "vibe history && vibe select c01 && cat /proc/net/snmp",
    "vibe finish",
)


class Researcher:
    """The stand-in's plan: a step a turn; a job that goes on is waited for again. It kills the runner once."""

    def __init__(self) -> None:
        self.step = 0
        self.runner = 0
        self.killed = False
        self.seen: list[str] = []

    def plan(self, sent: Sent) -> Turn:
        if not tools_of(sent):
            return Turn(text="A title.")
        self.seen += results(sent)[-1:]
        waits = self.step > 0 and STEPS[self.step - 1].startswith("vibe wait")
        if waits and self.seen and "goes on: vibe wait" in self.seen[-1]:
            self.step -= 1
        command = STEPS[min(self.step, len(STEPS) - 1)]
        self.step += 1
        return Turn(text=f"Step {self.step}.", tools=(shell_call(sent, command),))

    async def act(self, _request: Any, out: Any, events: list[bytes]) -> None:
        if self.step == 2 and not self.killed:
            for event in events[:2]:
                await out.write(event)
            self.killed, self.step = True, 1
            os.kill(self.runner, signal.SIGKILL)
            return
        for event in events:
            await out.write(event)


async def run(researcher: Researcher, runs: Path, *words: str) -> int:
    """One `runner` command to its end; its output in output.log."""
    with (runs / "output.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "runner", *words, "--runs", str(runs), stdout=log, stderr=log, cwd=runs
        )
    researcher.runner = process.pid
    return await process.wait()


@pytest.mark.parametrize(("name", "key"), [("codex", "OPENAI_API_KEY"), ("claude-code", "ANTHROPIC_API_KEY")])
async def test_a_real_agent_does_a_whole_run(
    standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, key: str
) -> None:
    try:
        installed(name)
    except ConfigError as error:
        pytest.skip(str(error))
    monkeypatch.setenv(key, CANARY)
    researcher = Researcher()
    standin.plan, standin.act = researcher.plan, researcher.act
    sets = [f"llm.base_url={standin.url}", f"llm.key_env={key}", "budget.tokens=100000"]
    for split in ("validation", "hidden"):
        file = tmp_path / f"{split}.toml"
        file.write_text(f'seed = "test-{split}"\nproblems = 24\n')
        sets.append(f"{split}_file={file}")
    words = ["--task", "aime", "--profile", "laptop", "--agent", name, "--agent-model", MODEL, "--budget", "40m"]
    words += [word for one in sets for word in ("--set", one)]
    assert await run(researcher, tmp_path, *words) == -signal.SIGKILL
    code = await run(researcher, tmp_path, "resume")
    printed = (tmp_path / "output.log").read_text()
    assert code == 0 and researcher.killed, printed[-3000:]

    folder = list_runs(tmp_path)[0]
    state = load(folder.journal_file)
    assert state.finished is not None and state.finished.status == "ok" and state.hidden is not None
    assert state.selected is not None and state.selected.candidate == "c01" and state.selected.by == "agent"
    starts = [event.payload for event in read(folder.journal_file) if event.payload.kind == "agent_started"]
    sessions = [event.payload for event in read(folder.journal_file) if getattr(event.payload, "session", "")]
    assert len(starts) == 2 and starts[1].resumed and {one.session for one in sessions} == {starts[1].session}
    counted = totals(folder.logs / "llm.jsonl")["researcher"]
    assert counted.calls == len(standin.turns) and counted.estimated == 1
    assert state.budget.llm is not None and state.budget.llm.output == counted.tokens.output == state.budget.tokens
    assert counters("".join(researcher.seen)) == {"OutNoRoutes": 0, "OutDatagrams": 0}
    for path in tmp_path.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert CANARY.encode() not in path.read_bytes(), path
    print(json.dumps({"agent": name, "requests": len(standin.sent), "calls": counted.calls}))
