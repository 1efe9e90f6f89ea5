"""The shapes of both CLIs' requests, written down by us after what their binaries sent: they pass whole, and play."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from gateway_kit import MODEL, Kit
from standin import StandIn, Turn, stream

CACHE = {"cache_control": {"type": "ephemeral"}}
CLAUDE_BETAS = (
    "claude-code-20250219,interleaved-thinking-2025-05-14,thinking-token-count-2026-05-13,"
    "context-management-2025-06-27,prompt-caching-scope-2026-01-05,mid-conversation-system-2026-04-07,effort-2025-11-24"
)
CLAUDE: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 64000,
    "stream": True,
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "high"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "system": [{"type": "text", "text": "You are a coding agent."}, {"type": "text", "text": "Rules.", **CACHE}],
    "tools": [{
        "name": "Bash",
        "description": "Runs a command.",
        "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    }],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Do well."}]},
        {"role": "system", "content": "Agents: none."},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Let me look.", "signature": "c2ln"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "vibe status"}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": False, "content": "no job", **CACHE},
        ]},
    ],
}  # fmt: skip
PARAMETERS = {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}
EXEC = {"type": "function", "name": "exec_command", "description": "Runs.", "parameters": PARAMETERS, "strict": False}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Patches.", "format": GRAMMAR}
CODEX: dict[str, Any] = {
    "model": MODEL,
    "instructions": "You are a coding agent.",
    "tools": [EXEC, PATCH],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "high", "summary": "auto"},
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "019b",
    "store": False,
    "stream": True,
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Rules."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Do well."}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Look."}],
         "encrypted_content": "Z0FB"},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "exec_command", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "no job"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** Begin Patch"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "done"}]},
    ],
}  # fmt: skip
LATER: dict[str, Any] = {
    **{key: value for key, value in CODEX.items() if key not in ("tools", "instructions")},
    "input": [
        {"type": "additional_tools", "role": "developer", "tools": [
            {"type": "namespace", "name": "functions", "description": "Tools.", "tools": [
                {"type": "custom", "name": "exec", "description": "Runs JavaScript.", "format": GRAMMAR}]},
            {"type": "namespace", "name": "clock", "description": "Time.", "tools": [EXEC]},
        ]},
        *CODEX["input"],
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("api", "path", "body"),
    [("messages", "/v1/messages?beta=true", CLAUDE), ("responses", "/v1/responses", CODEX),
     ("responses", "/v1/responses", LATER)],
)  # fmt: skip
async def test_what_the_binaries_send_passes_whole(
    gateway: Any, standin: StandIn, api: str, path: str, body: dict[str, Any]
) -> None:
    kit: Kit = await gateway("anthropic" if api == "messages" else "openai")
    standin.plan = lambda _sent: Turn(text="Next.", tools=(("Bash", {"command": "vibe history"}),))
    named = {**copy.deepcopy(body), "metadata": {"user_id": "u"}, "client_metadata": {"installation": "i"}}
    headers = {"anthropic-beta": CLAUDE_BETAS, "originator": "cli", "session_id": "s", "x-app": "cli"}
    status, reply = await kit.post(path, named, headers)
    assert status == 200 and reply == b"".join(stream(api, standin.turns[0], MODEL))
    assert standin.sent[0].body == body
    assert standin.sent[0].headers.get("anthropic-beta", CLAUDE_BETAS) == CLAUDE_BETAS
    assert kit.notices == []
