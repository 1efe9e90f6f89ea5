"""A person as the research agent: an interactive shell in the research sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from isolation.spec import Mount
from runner.record.events import AgentTurn
from runner.research.agents.base import AGENTS_DIR, AgentContext, AgentLaunch, bridged, llm_env
from runner.research.terminal import size

_INSIDE = Path(__file__).parent / "shell_agent"
_FOLDER = f"{AGENTS_DIR}/shell"


@dataclass(frozen=True, slots=True)
class ShellAgent:
    """bash on a pseudo-terminal of the sandbox's own; the person's terminal is never inside. Its end is the end."""

    name: str = "shell"

    def launch(self, context: AgentContext) -> AgentLaunch:
        columns, lines, term = size()
        argv, mounts = bridged(context, (context.python, "-I", "-S", f"{_FOLDER}/main.py"))
        welcome = f"{context.note() if context.resumed else ''}The brief is in /lab/README.md; `vibe --help` helps."
        env = {"COLUMNS": str(columns), "LINES": str(lines), "TERM": term, "VIBE_WELCOME": welcome}
        return AgentLaunch(
            argv=argv,
            env={**llm_env(context.llm), **env},
            mounts=(Mount(_INSIDE, _FOLDER), *mounts),
            terminal=True,
            resumes=False,
        )

    def turns(self, line: str) -> AgentTurn | None:
        """What a person types is nobody's claim."""
        return None
