"""Anthropic's Messages API: a request built anew, the betas that may pass."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from runner.research.llm import rules
from runner.research.llm.rules import Canonical

VERSION = "2023-06-01"
# By name without the date: all of them change how the model writes or is billed for its cache, none what it can reach.
BETAS = frozenset({
    "claude-code", "interleaved-thinking", "fine-grained-tool-streaming", "context-management", "effort",
    "prompt-caching-scope", "extended-cache-ttl", "structured-outputs", "token-efficient-tools", "output-128k",
    "redact-thinking", "adaptive-thinking", "tool-examples", "thinking-token-count", "mid-conversation-system"
})  # fmt: skip
_DATE = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2})\Z", re.ASCII)
_SETTINGS = (
    "max_tokens", "temperature", "top_p", "top_k", "stop_sequences", "thinking", "output_config", "output_format",
)  # fmt: skip
_PROVIDER = {
    "container": "a container runs at the provider",
    "mcp_servers": "the provider would connect to MCP servers",
    "fallbacks": "another model is not the model of this run",
}
_TOOL = ("name", "description", "input_schema", "strict", "eager_input_streaming", "input_examples", "defer_loading")
_ROLES = frozenset({"user", "assistant", "system"})


def messages(body: Mapping[str, Any], models: Collection[str]) -> Canonical:
    """POST /v1/messages. Raises Refused."""
    built = _common(body, models)
    if body.get("context_management") is not None:
        built["context_management"] = {"edits": _edits(_object(body["context_management"]))}
    asked = rules.whole(body.get("max_tokens"), "max_tokens")
    if asked is None:
        rules.wrong("max_tokens is missing")
    stream = rules.flag(body.get("stream"), "stream")
    return Canonical({**built, **rules.pick(body, _SETTINGS), "stream": stream}, stream, asked, "max_tokens")


def count_tokens(body: Mapping[str, Any], models: Collection[str]) -> Canonical:
    """POST /v1/messages/count_tokens. Raises Refused."""
    return Canonical({**_common(body, models), **rules.pick(body, ("thinking",))}, False, None, "")


def betas(header: str) -> str:
    """Those of an ``anthropic-beta`` header that may pass."""
    names = [name.strip() for name in header.split(",")]
    return ",".join(name for name in names if _DATE.sub("", name) in BETAS)


def _common(body: Mapping[str, Any], models: Collection[str]) -> dict[str, Any]:
    rules.forbid(body, _PROVIDER)
    built: dict[str, Any] = {"model": rules.model(body, models)}
    built["messages"] = [_message(message) for message in rules.objects(body.get("messages"), "messages")]
    if body.get("system") is not None:
        built["system"] = _blocks(body["system"])
    if body.get("tools") is not None:
        built["tools"] = [_tool(tool) for tool in rules.objects(body["tools"], "tools")]
    if body.get("tool_choice") is not None:
        built["tool_choice"] = rules.pick(_object(body["tool_choice"]), ("type", "name", "disable_parallel_tool_use"))
    return built


def _edits(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Context edits forget old parts of the conversation; another edit is refused."""
    edits = rules.objects(value.get("edits", []), "context_management.edits")
    for edit in edits:
        if rules.kind_of(edit).rsplit("_", 1)[0] not in ("clear_tool_uses", "clear_thinking"):
            rules.refuse("context_management", f"the edit {rules.short(edit.get('type'))} is not passed on")
    return edits


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    kind = rules.kind_of(tool, "custom")
    if kind != "custom":
        rules.unknown_tool(kind)
    return {**rules.pick(tool, _TOOL), **_cache(tool)}


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        rules.wrong(f"the role {rules.short(role)}")
    return {"role": role, "content": _blocks(message.get("content"))}


def _blocks(content: object) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    return [_block(block) for block in rules.objects(content, "content")]


def _block(block: Mapping[str, Any]) -> dict[str, Any]:
    kind = rules.kind_of(block)
    match kind:
        case "text":
            built: dict[str, Any] = {"text": rules.text(block.get("text"), "text")}
        case "thinking":
            built = rules.pick(block, ("thinking", "signature"))
        case "redacted_thinking":
            built = rules.pick(block, ("data",))
        case "tool_use":
            built = {**rules.pick(block, ("id", "name")), "input": block.get("input", {})}
        case "tool_result":
            built = rules.pick(block, ("tool_use_id", "is_error"))
            if block.get("content") is not None:
                built["content"] = _blocks(block["content"])
        case "image" | "document":
            built = {**rules.pick(block, ("title", "context")), "source": _source(_object(block.get("source")))}
        case _:
            rules.unknown_content(kind)
    return {"type": kind, **built, **_cache(block)}


def _source(source: Mapping[str, Any]) -> dict[str, Any]:
    kind = rules.kind_of(source)
    match kind:
        case "base64" | "text":
            return {
                "type": kind,
                "media_type": source.get("media_type"),
                "data": rules.text(source.get("data"), "data"),
            }
        case "content":
            return {"type": kind, "content": _blocks(source.get("content"))}
        case "url":
            rules.refuse("url source", "the provider fetches nothing for a run; send the content itself")
        case "file":
            rules.refuse("file source", "files at the provider cannot be used; send the content itself")
        case _:
            rules.unknown_content(kind)


def _cache(block: Mapping[str, Any]) -> dict[str, Any]:
    control = block.get("cache_control")
    return {"cache_control": rules.pick(control, ("type", "ttl", "scope"))} if isinstance(control, dict) else {}


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        rules.wrong("an object was expected")
    return value
