"""Research agents by name."""

from __future__ import annotations

from pathlib import Path

from runner import places
from runner.config import RunConfig
from runner.research.agents.base import ResearchAgent
from runner.research.agents.options import COMMAND


def make_agent(config: RunConfig, forbidden: tuple[Path, ...] = ()) -> ResearchAgent:
    """The agent that the configuration names; ``forbidden`` host paths no command may reach. Raises ConfigError."""
    match config.agent:
        case "claude-code":
            from runner.research.agents.claude_code import ClaudeCode
            from runner.research.agents.install import installed

            return ClaudeCode(installed("claude-code"))
        case "codex":
            from runner.research.agents.codex import Codex
            from runner.research.agents.install import installed

            return Codex(installed("codex"))
        case "mini-swe-agent":
            from runner.research.agents.install import installed
            from runner.research.agents.mini_swe import MiniSweAgent

            return MiniSweAgent(installed("mini-swe-agent"))
        case "shell":
            from runner.research.agents.shell import ShellAgent

            return ShellAgent()
        case agent if agent.startswith(COMMAND):
            from runner.research.agents.command import CommandAgent

            split = (config.hidden_file, config.validation_file)
            keys = (llm.key_file for llm in (config.llm, config.teacher) if llm is not None)
            own = (
                places.home(),
                *(Path(path) for path in (*split, *keys) if path),
                Path(__file__).parents[3] / "tasks",
            )
            return CommandAgent.of(agent, config.agent_files, (*forbidden, *own))
    from runner.research.agents.scripted import ScriptedAgent

    return ScriptedAgent(seed=config.seed)
