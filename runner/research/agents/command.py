"""Any program as a research agent: ``--agent command:"./my-agent --flag"``."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

from isolation.clean import clean_line
from isolation.spec import Mount
from runner.config import ConfigError
from runner.record.events import AgentTurn
from runner.research.agents.base import AGENTS_DIR, AgentContext, AgentLaunch, bridged, llm_env
from runner.research.agents.options import COMMAND

FOLDER = f"{AGENTS_DIR}/command"


@dataclass(frozen=True, slots=True)
class CommandAgent:
    """The words of the command; those that are host files are mounted read-only below /opt/agents/command.

    It gets the brief on stdin and in /lab/README.md, `vibe` on its PATH, and a model where the run has one. It has no
    session: started again, it finds its own notes in /lab/notes and VIBE_RESUMED=1.
    """

    words: tuple[str, ...]
    files: tuple[str, ...]
    name: str

    @classmethod
    def of(cls, agent: str, files: tuple[str, ...], forbidden: tuple[Path, ...]) -> CommandAgent:
        """From the configuration's words. ``forbidden`` host paths must not be reached. Raises ConfigError."""
        for file in files:
            for path in forbidden:
                if path.is_relative_to(file) or Path(file).is_relative_to(path):
                    what = f"{file} would show what an agent must not see ({path.name})"
                    raise ConfigError(what, where="--agent", do="Put the agent into a folder of its own")
        return cls(tuple(shlex.split(agent.removeprefix(COMMAND))), files, agent)

    def launch(self, context: AgentContext) -> AgentLaunch:
        """Its words with the files under their names inside."""
        inside = {file: f"{FOLDER}/{number}/{Path(file).name}" for number, file in enumerate(self.files)}
        words = tuple(inside.get(word, context.python if word == "python" else word) for word in self.words)
        argv, mounts = bridged(context, words)
        return AgentLaunch(
            argv=argv,
            env=llm_env(context.llm),
            mounts=(*(Mount(Path(file), target) for file, target in inside.items()), *mounts),
            stdin=context.prompt(),
        )

    def turns(self, line: str) -> AgentTurn | None:
        """A line ``{"say", "tool"}`` as a turn, any other line of text as what it says."""
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            text = clean_line(line, 400)
            return AgentTurn(n=0, summary=text) if text else None
        if not isinstance(said, dict) or not isinstance(said.get("say"), str):
            return None
        return AgentTurn(n=0, summary=clean_line(said["say"], 400), tool=clean_line(str(said.get("tool", "")), 40))
