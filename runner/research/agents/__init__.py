"""Research agents by name."""

from __future__ import annotations

from runner.config import ConfigError, RunConfig
from runner.research.agents.base import ResearchAgent
from runner.research.agents.scripted import ScriptedAgent


def make_agent(config: RunConfig) -> ResearchAgent:
    """The agent that the configuration names. Raises ConfigError for an unknown one."""
    if config.agent == "scripted":
        return ScriptedAgent(seed=config.seed)
    raise ConfigError(f"unknown agent {config.agent!r}", where="agent", do="Known: scripted")
