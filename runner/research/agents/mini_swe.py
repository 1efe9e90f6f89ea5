"""mini-swe-agent as the research agent: the library's loop on any model that speaks Chat Completions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from isolation.spec import Mount
from runner.record.events import AgentTurn
from runner.research.agents.base import AGENTS_DIR, AgentContext, AgentLaunch, bridged, llm_env
from runner.research.agents.install import Installed
from runner.research.agents.transcript import turn
from runner.research.lenient import object_of

_INSIDE = Path(__file__).parent / "mini_swe_agent"
_PROGRAM = f"{AGENTS_DIR}/mini-swe-agent"
_SITE = f"{AGENTS_DIR}/site"


@dataclass(frozen=True, slots=True)
class MiniSweAgent:
    """``installed.binary`` is the folder of packages. It has no session: started again, it reads the brief again."""

    installed: Installed
    name: str = "mini-swe-agent"

    def launch(self, context: AgentContext) -> AgentLaunch:
        """Our driver of the library, with the packages on its path."""
        argv, mounts = bridged(context, (context.python, "-B", f"{_PROGRAM}/main.py"))
        own = {
            "PYTHONPATH": _SITE,
            "MSWEA_SILENT_STARTUP": "1",
            "MSWEA_GLOBAL_CONFIG_DIR": "/lab/home/.mini-swe-agent",
            "VIBE_DEADLINE": f"{context.deadline:.0f}",
        }
        return AgentLaunch(
            argv=argv,
            env={**llm_env(context.llm), **own},
            mounts=(Mount(_INSIDE, _PROGRAM), Mount(self.installed.binary, _SITE), *mounts),
            stdin=context.prompt(),
            version=self.installed.version,
        )

    def turns(self, line: str) -> AgentTurn | None:
        """A line of our driver as a turn."""
        said = object_of(line)
        if not isinstance(said.get("say"), str):
            return None
        return turn(said["say"], tool=str(said.get("tool", ""))[:40])
