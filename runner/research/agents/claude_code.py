"""Claude Code as the research agent: one native binary, the prompt on stdin, its model through the gateway alone.

What its events mean was measured with version 2.1.197 (docs/agents.md); their figures are claims and estimates.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

from isolation.spec import Mount
from runner.record.events import AgentTurn
from runner.research.agents.base import AGENTS_DIR, AgentContext, AgentLaunch, bridged, llm_env
from runner.research.agents.install import Installed
from runner.research.agents.transcript import Tools, count, first_line, text_of, turn
from runner.research.lenient import object_of

_BINARY = f"{AGENTS_DIR}/claude"
_QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_PRINT_BG_WAIT_CEILING_MS": "0",
}
_MODEL_NAMES = (
    "ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL",
)  # fmt: skip


@dataclass(slots=True)
class ClaudeCode:
    """``installed``: the binary and its version."""

    installed: Installed
    name: str = "claude-code"
    _tools: Tools = field(default_factory=Tools)
    _message: str = ""

    def launch(self, context: AgentContext) -> AgentLaunch:
        """A new session under an id of ours, or that session again; tools that the provider would run are off."""
        llm = context.llm
        assert llm is not None
        session = context.session or str(uuid.uuid4())
        which = ("--resume", session) if context.session else ("--session-id", session)
        effort = ("--effort", llm.effort) if llm.effort else ()
        words = (
            _BINARY, "-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions",
            "--disallowedTools", "WebSearch", "WebFetch", "--model", llm.model, *effort, *which,
        )  # fmt: skip
        argv, mounts = bridged(context, words)
        return AgentLaunch(
            argv=argv,
            env={**llm_env(llm), **_QUIET, **dict.fromkeys(_MODEL_NAMES, llm.model)},
            mounts=(Mount(self.installed.binary, _BINARY), *mounts),
            stdin=context.note().encode() if context.session else context.prompt(),
            session=session,
            version=self.installed.version,
        )

    def turns(self, line: str) -> AgentTurn | None:
        """A line of stream-json as a turn, or None. Never raises."""
        event = object_of(line)
        message = event.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        match event.get("type"):
            case "assistant" if isinstance(message, dict):
                return self._said(message, content, count(message.get("usage"), "output_tokens"))
            case "user":
                return self._done(content)
            case "system" if event.get("subtype") == "api_retry":
                return turn("waits for its model")
            case "result" if event.get("is_error"):
                return turn(f"ended with an error: {first_line(event.get('result'))}")
        return None

    def _said(self, message: dict[str, Any], content: object, tokens: int) -> AgentTurn | None:
        """Text, or the call of a tool. A message comes block by block, each with the usage of all: it counts once."""
        name = str(message.get("id", ""))[:100]
        tokens = 0 if name == self._message else tokens
        summary, tool = "", ""
        for block in content if isinstance(content, list) else ():
            if not isinstance(block, dict):
                continue
            if block.get("type") == "tool_use":
                tool = str(block.get("name", ""))[:80]
                self._tools.begin(block.get("id"), tool)
                summary = summary or first_line(_argument(block.get("input")))
            elif block.get("type") in ("text", "thinking"):
                summary = summary or first_line(block.get("text") or block.get("thinking"))
        if not summary and not tool:
            return None
        self._message = name
        return turn(summary, tool=tool, tokens=tokens)

    def _done(self, content: object) -> AgentTurn | None:
        """The result of a tool that took long or failed."""
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "tool_result":
                text = first_line(text_of(block.get("content")))
                return self._tools.end(block.get("tool_use_id"), text, failed=block.get("is_error") is True)
        return None


def _argument(given: object) -> object:
    """The most telling argument of a tool."""
    if not isinstance(given, dict):
        return ""
    named = ("command", "file_path", "pattern", "description", "prompt")
    return next((given[name] for name in named if isinstance(given.get(name), str)), "")
