"""The scripted agent, seen from outside: how its files are mounted and how its lines are read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from isolation.clean import clean_line
from isolation.spec import Mount
from runner.record.events import AgentTurn
from runner.research.agents.base import AGENTS_DIR, AgentContext, AgentLaunch
from runner.research.lenient import object_of

_SOURCE = Path(__file__).parent / "scripted_agent"


@dataclass(frozen=True, slots=True)
class ScriptedAgent:
    """The reference agent; ``seed`` orders its moves."""

    seed: int
    name: str = "scripted"

    def launch(self, context: AgentContext) -> AgentLaunch:
        """Its folder read-only below /opt/agents; no settings, no session of its own."""
        folder = f"{AGENTS_DIR}/scripted"
        return AgentLaunch(
            argv=(context.python, "-B", f"{folder}/main.py", "--seed", str(self.seed)),
            mounts=(Mount(_SOURCE, folder),),
            stdin=context.brief.encode(),
            version=_fingerprint(),
        )

    def turns(self, line: str) -> AgentTurn | None:
        """A line ``{"say", "tool"}`` as a turn; anything else is no turn."""
        said = object_of(line)
        if not isinstance(said.get("say"), str):
            return None
        return AgentTurn(n=0, summary=clean_line(said["say"])[:400], tool=clean_line(str(said.get("tool", "")))[:40])


def _fingerprint() -> str:
    """The first 12 hex of the sha256 over the agent's own files: its version."""
    digest = hashlib.sha256()
    for path in sorted(_SOURCE.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]
