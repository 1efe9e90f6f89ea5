"""Codex as the research agent: one native binary, the prompt on stdin, every word of its model through the gateway.

All settings are words of the command line: nothing of ours is written into a folder that the agent can write. What its
events mean was measured with version 0.171.0 (docs/agents.md).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from isolation.spec import Mount
from runner.record.events import AgentTurn
from runner.research.agents.base import AGENTS_DIR, LLM_URL, SESSION, AgentContext, AgentLaunch, bridged, llm_env
from runner.research.agents.install import Installed
from runner.research.agents.transcript import Tools, count, first_line, turn
from runner.research.lenient import object_of

_BINARY = f"{AGENTS_DIR}/codex"
_KEY = "VIBE_LLM_TOKEN"
_SETTINGS = {
    "model_provider": "gateway",
    "model_providers.gateway.name": "gateway",
    "model_providers.gateway.base_url": f"{LLM_URL}/v1",
    "model_providers.gateway.env_key": _KEY,
    "model_providers.gateway.wire_api": "responses",
    "approval_policy": "never",
    "sandbox_mode": "danger-full-access",
    "web_search": "disabled",
    "check_for_update_on_startup": False,
    "analytics.enabled": False,
    "history.persistence": "none",
    # Measured: with plugins on, every start asks for github.com. The others would put a service to work.
    **dict.fromkeys(
        (
            "features.plugins", "features.apps", "features.image_generation", "features.computer_use",
            "features.browser_use", "features.enable_request_compression", "features.daemon_auto_start",
        ),
        False,
    ),
}  # fmt: skip


@dataclass(slots=True)
class Codex:
    """``installed``: the binary and its version. The session's id is Codex's own; its first event says it."""

    installed: Installed
    name: str = "codex"
    _tools: Tools = field(default_factory=Tools)

    def launch(self, context: AgentContext) -> AgentLaunch:
        """A new session, or the same one again."""
        llm = context.llm
        assert llm is not None
        settings = dict(_SETTINGS) | ({"model_reasoning_effort": llm.effort} if llm.effort else {})
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={json.dumps(value)}")]
        resume = ("resume", context.session, "-") if context.session else ("-",)
        words = (
            _BINARY, "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
            "-m", llm.model, *options, *resume,
        )  # fmt: skip
        argv, mounts = bridged(context, words)
        return AgentLaunch(
            argv=argv,
            env={**llm_env(llm), _KEY: llm.token},
            mounts=(
                Mount(self.installed.binary, _BINARY),
                *(Mount(path, f"{AGENTS_DIR}/{name}") for name, path in self.installed.companions),
                *mounts,
            ),
            stdin=context.note().encode() if context.session else context.prompt(),
            session=context.session,
            version=self.installed.version,
        )

    def turns(self, line: str) -> AgentTurn | None:
        """A line of ``--json`` as a turn, or None. Never raises."""
        event = object_of(line)
        item = event.get("item")
        match event.get("type"):
            case "thread.started":
                session = event.get("thread_id")
                known = isinstance(session, str) and SESSION.fullmatch(session)
                return turn("a session begins", session=str(session)) if known else None
            case "item.started" if isinstance(item, dict):
                return self._begun(item)
            case "item.completed" if isinstance(item, dict):
                return self._done(item)
            case "turn.completed":
                return turn("a turn ends", tokens=count(event.get("usage"), "output_tokens"))
            case "turn.failed" | "error":
                error = event.get("error")
                said = error.get("message") if isinstance(error, dict) else event.get("message")
                return turn(f"ended with an error: {first_line(said)}")
        return None

    def _begun(self, item: dict[str, Any]) -> AgentTurn | None:
        kind = str(item.get("type", ""))[:80]
        if kind in ("agent_message", "reasoning", "error", ""):
            return None
        self._tools.begin(item.get("id"), kind)
        return turn(first_line(item.get("command") or item.get("query") or item.get("tool")), tool=kind)

    def _done(self, item: dict[str, Any]) -> AgentTurn | None:
        match item.get("type"):
            case "agent_message" | "reasoning":
                text = first_line(item.get("text"))
                return turn(text) if text else None
            case "error":
                return turn(f"warning: {first_line(item.get('message'))}")
        failed = item.get("exit_code") not in (0, None)
        return self._tools.end(item.get("id"), first_line(item.get("aggregated_output")), failed=failed)
