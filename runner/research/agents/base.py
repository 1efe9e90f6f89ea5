"""The seam of research agents: how one is launched in the research sandbox and how its output is read.

An agent is an LLM in a coding framework, a script or a person. What it prints is a claim: ``turns`` feeds the display
and nothing else; scores, tokens and trajectories come from the grader's and the gateways' own records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from isolation.spec import Mount
from runner.record.events import AgentTurn

AGENTS_DIR = "/opt/agents"
_NO_ENV: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class AgentContext:
    """What an agent is told when it starts. ``left_s`` in budget seconds, ``deadline`` in Unix time.

    ``python`` is the model environment's interpreter as the sandbox sees it. ``runtime`` is a private host folder for
    files of the agent's own (settings, sockets). ``session`` is the id of the session to resume, or empty.
    """

    brief: str
    python: str
    runtime: Path
    left_s: float
    deadline: float
    resumed: bool = False
    session: str = ""


@dataclass(frozen=True, slots=True)
class AgentLaunch:
    """How to start an agent: ``argv`` inside the sandbox, what it needs there, and the bytes on its stdin.

    ``mounts`` go below /opt/agents (read-only files of the agent) or /run/NAME (read-only socket folders); ``version``
    and ``session`` are recorded.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=lambda: _NO_ENV)
    mounts: tuple[Mount, ...] = ()
    stdin: bytes = b""
    session: str = ""
    version: str = ""


class ResearchAgent(Protocol):
    """One kind of research agent. Implementations hold no state of a run beyond what reading its output needs."""

    @property
    def name(self) -> str: ...

    def launch(self, context: AgentContext) -> AgentLaunch: ...

    def turns(self, line: str) -> AgentTurn | None:
        """What ``line`` of the agent's stdout says it did, or None. The caller numbers the turns; never raises."""
        ...
