"""The seam of research agents: how one is launched in the research sandbox and how its output is read.

An agent is an LLM in a coding framework, a script or a person. What it prints is a claim: ``turns`` feeds the display
and nothing else; scores, tokens and trajectories come from the grader's and the gateways' own records.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import isolation
from isolation.spec import Mount
from runner.record.events import AgentTurn
from runner.record.format import duration
from runner.research.llm.protocol import Style

AGENTS_DIR = "/opt/agents"
LLM_DIR = "/run/llm"
PORT = 8080
LLM_URL = f"http://127.0.0.1:{PORT}"
SESSION = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_BRIDGE = Path(isolation.__file__).parent / "inside" / "bridge.py"
_NO_ENV: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class LlmAccess:
    """How an agent reaches its model: ``folder`` holds the gateway's socket, ``token`` is worthless and goes where a
    framework insists on a key."""

    folder: Path
    style: Style
    model: str
    token: str
    effort: str | None = None


@dataclass(frozen=True, slots=True)
class AgentContext:
    """What an agent is told when it starts. ``left_s`` in budget seconds, ``deadline`` in Unix time.

    ``python`` is the model environment's interpreter as the sandbox sees it. ``runtime`` is a private host folder for
    files of the agent's own (settings, sockets). ``session`` is the id of the session to resume, or empty. ``running``
    are the jobs that go on while the agent is started again.
    """

    brief: str
    python: str
    runtime: Path
    left_s: float
    deadline: float
    resumed: bool = False
    session: str = ""
    llm: LlmAccess | None = None
    running: Sequence[str] = ()

    def note(self) -> str:
        """What a resumed agent is told: that it stopped early, the time left, what is still running."""
        until = time.strftime("%H:%M:%S", time.gmtime(self.deadline))
        jobs = f"Still running: {', '.join(self.running)}. " if self.running else ""
        return (
            f"You stopped with {duration(self.left_s)} left (until {until} UTC), without `vibe finish`. {jobs}"
            "`vibe status` and `vibe history` say where things stand. Go on improving the system; wait for your jobs; "
            "select your best candidate with `vibe select`; when nothing more is worth trying, `vibe finish`.\n"
        )

    def prompt(self) -> bytes:
        """The brief; for an agent that begins anew after an end of its own, with the note below it."""
        return (f"{self.brief}\n\n{self.note()}" if self.resumed else self.brief).encode()


@dataclass(frozen=True, slots=True)
class AgentLaunch:
    """How to start an agent: ``argv`` inside the sandbox, what it needs there, and the bytes on its stdin.

    ``mounts`` go below /opt/agents (read-only files of the agent) or /run/NAME (read-only socket folders); ``version``
    and ``session`` are recorded. ``terminal``: a person's terminal takes the place of stdin and stdout. ``resumes``: an
    end of its own is no end of the research phase.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=lambda: _NO_ENV)
    mounts: tuple[Mount, ...] = ()
    stdin: bytes = b""
    session: str = ""
    version: str = ""
    terminal: bool = False
    resumes: bool = True


def bridged(context: AgentContext, argv: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[Mount, ...]]:
    """``argv`` with the model's gateway at LLM_URL, and what that needs; as it is where there is no model."""
    if context.llm is None:
        return argv, ()
    bridge = f"{AGENTS_DIR}/bridge.py"
    before = (context.python, "-I", "-S", bridge, f"{PORT}={LLM_DIR}/llm.sock", "--")
    return (*before, *argv), (Mount(_BRIDGE, bridge), Mount(context.llm.folder, LLM_DIR))


def llm_env(llm: LlmAccess | None) -> dict[str, str]:
    """What programs commonly read to find a model, and our own names for it."""
    if llm is None:
        return {}
    env = {"VIBE_LLM_URL": LLM_URL, "VIBE_LLM_MODEL": llm.model, "VIBE_LLM_STYLE": llm.style}
    if llm.effort is not None:
        env["VIBE_LLM_EFFORT"] = llm.effort
    if llm.style == "anthropic":
        return {**env, "ANTHROPIC_BASE_URL": LLM_URL, "ANTHROPIC_API_KEY": llm.token}
    return {**env, "OPENAI_BASE_URL": f"{LLM_URL}/v1", "OPENAI_API_KEY": llm.token}


class ResearchAgent(Protocol):
    """One kind of research agent. Implementations hold no state of a run beyond what reading its output needs."""

    @property
    def name(self) -> str: ...

    def launch(self, context: AgentContext) -> AgentLaunch: ...

    def turns(self, line: str) -> AgentTurn | None:
        """What ``line`` of the agent's stdout says it did, or None. The caller numbers the turns; never raises."""
        ...
