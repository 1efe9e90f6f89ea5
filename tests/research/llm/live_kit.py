"""An agent in the research sandbox, its model behind the gateway: a research phase whose upstream is a stand-in."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gateway_kit import MODEL, PRICE
from standin import Sent, StandIn, Turn

from runner.record.events import AgentEnded, LlmUse
from runner.research.agent_process import AgentProcess
from runner.research.agents.base import LlmAccess, ResearchAgent
from runner.research.llm.client import LlmGateway
from runner.research.llm.protocol import Door, Limits, Notice, Style, Totals, Upstream

PLAN = (
    "vibe status",
    "echo 11 > /lab/harness/solves && vibe validate -m 'a better harness'",
    """echo '{"prompt": "2+2", "completion": "4"}' >> /lab/data/train.jsonl && vibe train -m 'more data'""",
    "vibe validate -m 'both'",
    "vibe history && vibe select c02 && cat /proc/net/snmp",
    "vibe finish",
)
"""A fixed research plan, one shell command a turn."""


@dataclass
class Live:
    """A phase with a model: run agents in it."""

    phase: Any
    standin: StandIn
    gateway: LlmGateway
    access: LlmAccess
    notices: list[Notice]

    @classmethod
    async def start(
        cls,
        phase: Any,
        standin: StandIn,
        style: Style,
        *,
        limits: Limits | None = None,
        model: str = MODEL,
        socket: str | None = None,
    ) -> Live:
        folder = phase.lab.runtime / "llm"
        folder.mkdir(mode=0o700)
        door = Door(
            role="researcher", socket=str(folder / "llm.sock"), models=(model,), price=PRICE,
            upstream=Upstream(style=style, base_url=standin.url, key_env="TEST_LLM_KEY", socket=socket),
            limits=limits or Limits(),
        )  # fmt: skip
        notices: list[Notice] = []

        def used(totals: Totals) -> None:
            use = LlmUse(calls=totals.calls, refused=totals.refused, **totals.tokens.model_dump())
            phase.lab.budget.account(use, totals.money)

        logs = phase.lab.rundir.logs
        gateway = LlmGateway((door,), logs / "llm.jsonl", logs / "llm.log", notices.append, used)
        await gateway.start()
        return cls(phase, standin, gateway, LlmAccess(folder, style, model, "worthless"), notices)

    def process(self, agent: ResearchAgent, brief: str = "Do well.") -> AgentProcess:
        phase = self.phase
        return AgentProcess(
            phase.lab, agent, brief=brief, sources=phase.sources, control=phase.control, llm=self.access,
            running=lambda: [f"{job.id} {job.verb} {job.state}" for job in phase.desk.jobs.active],
        )  # fmt: skip

    async def run(self, agent: ResearchAgent) -> AgentEnded:
        return await self.process(agent).run(self.phase.desk.finished)

    def artefacts(self) -> bytes:
        """Everything that the run has written anywhere."""
        root = self.phase.lab.rundir.path
        return b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())


def results(sent: Sent) -> list[str]:
    """The outputs of tools that a request carries, in any of the three APIs."""
    if sent.api == "responses":
        kinds = ("function_call_output", "custom_tool_call_output")
        return [json.dumps(item["output"]) for item in sent.body["input"] if item.get("type") in kinds]
    found = []
    for message in sent.body["messages"]:
        if message["role"] == "tool":
            found.append(str(message["content"]))
        elif isinstance(message["content"], list):
            found += [json.dumps(part) for part in message["content"] if part.get("type") == "tool_result"]
    return found


def tools_of(sent: Sent) -> list[dict[str, Any]]:
    """Every tool that a request offers, namespaces and additional tools included."""
    tools = list(sent.body.get("tools", ()))
    if sent.api == "responses" and isinstance(sent.body["input"], list):
        for item in sent.body["input"]:
            tools += item.get("tools", ()) if item.get("type") == "additional_tools" else ()
    inner = [one for tool in tools for one in tool.get("tools", ())]
    return [*tools, *inner]


def shell_call(sent: Sent, command: str) -> tuple[str, dict[str, Any]]:
    """The call of the framework's own shell tool, in the form that its schema asks for."""
    named = {tool["name"]: tool for tool in tools_of(sent) if "name" in tool}
    if "Bash" in named:
        return "Bash", {"command": command, "description": "as planned", "timeout": 600_000}
    if "exec" in named:  # a tool of the newest models: JavaScript that calls the others
        given = json.dumps({"cmd": command, "yield_time_ms": 30_000})
        return "exec", {"": f"text((await tools.exec_command({given})).output)"}
    if "exec_command" in named:
        return "exec_command", {"cmd": command, "yield_time_ms": 30_000}
    if "shell_command" in named:
        return "shell_command", {"command": command, "timeout_ms": 600_000}
    return "shell", {"command": ["bash", "-lc", command]}


def counters(text: str) -> dict[str, int]:
    """Of a /proc/net/snmp in ``text``: packets without a way out, and datagrams sent (names asked for)."""
    lines = text.replace("\\n", "\n").replace("\\r", "").splitlines()
    found: dict[str, int] = {}
    for head, row in itertools.pairwise(lines):
        for protocol, name in (("Ip:", "OutNoRoutes"), ("Udp:", "OutDatagrams")):
            if head.startswith(protocol) and row.startswith(protocol) and name in head.split():
                found[name] = int(row.split()[head.split().index(name)])
    return found


def planned(commands: Sequence[str] = PLAN) -> Any:
    """The stand-in's plan: the next command, as often as results have come back."""

    def plan(sent: Sent) -> Turn:
        done = len(results(sent))
        if not tools_of(sent) or done >= len(commands):
            return Turn(text="Nothing more to do.")
        return Turn(text=f"Step {done + 1}.", tools=(shell_call(sent, commands[done]),))

    return plan
