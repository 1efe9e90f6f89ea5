"""OpenAI's two APIs: requests built anew. Responses carry tools in two places, and both are walked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from runner.research.llm import rules
from runner.research.llm.rules import Canonical

_RESPONSES = (
    "instructions", "parallel_tool_calls", "reasoning", "text", "max_output_tokens", "temperature", "top_p",
    "truncation", "prompt_cache_key",
)  # fmt: skip
_STORED = {
    "background": "a background reply is kept by the provider",
    "previous_response_id": "nothing is stored at the provider; send the whole conversation",
    "conversation": "nothing is stored at the provider; send the whole conversation",
    "prompt": "a stored prompt cannot be used; send its text",
    "store": "nothing may be stored at the provider",
}
_CHAT = (
    "max_tokens", "max_completion_tokens", "temperature", "top_p", "stop", "seed", "frequency_penalty",
    "presence_penalty", "response_format", "reasoning_effort", "parallel_tool_calls", "verbosity",
)  # fmt: skip
_CHAT_PROVIDER = {
    "web_search_options": "the provider would search the web",
    "store": "nothing may be stored at the provider",
}
_INCLUDE = frozenset({"reasoning.encrypted_content"})
_CALL = ("id", "call_id", "name", "namespace", "status", "arguments", "input", "action", "execution")
_ITEMS: dict[str, tuple[str, ...]] = {
    "function_call": _CALL,
    "custom_tool_call": _CALL,
    "local_shell_call": _CALL,
    "tool_search_call": _CALL,
    "reasoning": ("id", "encrypted_content", "status"),
    "compaction": ("id", "encrypted_content"),
}
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output", "local_shell_call_output"})
_TOOL = ("type", "name", "description", "parameters", "strict", "format", "defer_loading")
_ROLES = frozenset({"user", "assistant", "system", "developer", "tool"})


# -- Responses -------------------------------------------------------------------------------------------------------


def responses(body: Mapping[str, Any], models: Collection[str]) -> Canonical:
    """POST /v1/responses. Raises Refused."""
    rules.forbid(body, _STORED)
    built: dict[str, Any] = {"model": rules.model(body, models), **rules.pick(body, _RESPONSES), "store": False}
    given = body.get("input")
    built["input"] = given if isinstance(given, str) else [_item(item) for item in rules.objects(given, "input")]
    if body.get("tools") is not None:
        built["tools"] = _tools(body["tools"])
    if body.get("tool_choice") is not None:
        built["tool_choice"] = _choice(body["tool_choice"])
    if body.get("include") is not None:
        built["include"] = _include(body["include"])
    stream = rules.flag(body.get("stream"), "stream")
    asked = rules.whole(body.get("max_output_tokens"), "max_output_tokens")
    return Canonical({**built, "stream": stream}, stream, asked, "max_output_tokens")


def _include(value: object) -> list[str]:
    if not isinstance(value, list):
        rules.wrong("include must be a list")
    for name in value:
        if name not in _INCLUDE:
            rules.refuse("include", f"{rules.short(name)} is not passed on")
    return list(value)


def _choice(choice: object) -> Any:
    if isinstance(choice, str):
        return choice
    if not isinstance(choice, dict):
        rules.wrong("tool_choice must be a text or an object")
    kind = rules.kind_of(choice)
    if kind == "allowed_tools":
        tools = [_named(tool) for tool in rules.objects(choice.get("tools"), "tools")]
        return {"type": kind, **rules.pick(choice, ("mode",)), "tools": tools}
    return _named(choice)


def _named(tool: object) -> dict[str, Any]:
    """A tool, named in a choice."""
    if not isinstance(tool, dict) or rules.kind_of(tool) not in ("function", "custom"):
        rules.unknown_tool(str(tool.get("type")) if isinstance(tool, dict) else "?")
    inner = tool.get(rules.kind_of(tool))
    named = {rules.kind_of(tool): rules.pick(inner, ("name",))} if isinstance(inner, dict) else {}
    return {**rules.pick(tool, ("type", "name")), **named}


def _tools(value: object) -> list[dict[str, Any]]:
    return [_tool(tool) for tool in rules.objects(value, "tools")]


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    kind = rules.kind_of(tool)
    match kind:
        case "function" | "custom":
            return rules.pick(tool, _TOOL)
        case "namespace":
            return {**rules.pick(tool, ("type", "name", "description")), "tools": _tools(tool.get("tools"))}
        case "local_shell":
            return {"type": kind}
        case "tool_search" if tool.get("execution") == "client":
            return rules.pick(tool, ("type", "execution", "description", "parameters"))
        case _:
            rules.unknown_tool(kind)


def _item(item: Mapping[str, Any]) -> dict[str, Any]:
    kind = rules.kind_of(item, "message")
    if kind == "message":
        return {"type": kind, **rules.pick(item, ("id", "status", "phase")), **_said(item, _part)}
    if kind in _RESULTS:
        output = item.get("output")
        parts = output if isinstance(output, str) else [_part(part) for part in rules.objects(output, "output")]
        return {"type": kind, **rules.pick(item, ("id", "call_id", "status")), "output": parts}
    if kind == "additional_tools":
        return {"type": kind, **rules.pick(item, ("id", "role")), "tools": _tools(item.get("tools"))}
    if kind == "tool_search_output":
        return {
            "type": kind,
            **rules.pick(item, ("id", "call_id", "status", "execution")),
            "tools": _tools(item.get("tools")),
        }
    if kind == "item_reference":
        rules.refuse("stored item", "nothing is stored at the provider; send the item itself")
    if kind not in _ITEMS:
        rules.unknown_content(kind)
    built = {"type": kind, **rules.pick(item, _ITEMS[kind])}
    if kind == "reasoning":
        for name in ("summary", "content"):
            if item.get(name) is not None:
                built[name] = [_part(part) for part in rules.objects(item[name], name)]
    return built


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    """A part of the content of a Responses item."""
    kind = rules.kind_of(part)
    match kind:
        case "input_text" | "output_text" | "summary_text" | "reasoning_text" | "text":
            return {"type": kind, "text": rules.text(part.get("text"), "text")}
        case "refusal":
            return {"type": kind, "refusal": rules.text(part.get("refusal"), "refusal")}
        case "input_image":
            _by_value(part)
            return {
                **rules.pick(part, ("type", "detail")),
                "image_url": rules.data_url(part.get("image_url"), "image_url"),
            }
        case "input_file":
            _by_value(part)
            return {
                **rules.pick(part, ("type", "filename")),
                "file_data": rules.text(part.get("file_data"), "file_data"),
            }
        case "encrypted_content":
            return rules.pick(part, ("type", "encrypted_content"))
        case _:
            rules.unknown_content(kind)


def _by_value(part: Mapping[str, Any]) -> None:
    if part.get("file_id"):
        rules.refuse("file source", "files at the provider cannot be used; send the content itself")
    if part.get("file_url"):
        rules.refuse("url source", "the provider fetches nothing for a run; send the content itself")


# -- Chat Completions ------------------------------------------------------------------------------------------------


def chat(body: Mapping[str, Any], models: Collection[str]) -> Canonical:
    """POST /v1/chat/completions. Raises Refused."""
    rules.forbid(body, _CHAT_PROVIDER)
    if body.get("n") not in (None, 1) or body.get("n") is True:
        rules.refuse("n", "one call is one reply")
    built: dict[str, Any] = {"model": rules.model(body, models), **rules.pick(body, _CHAT)}
    built["messages"] = [_chat_message(message) for message in rules.objects(body.get("messages"), "messages")]
    if body.get("tools") is not None:
        built["tools"] = [_chat_tool(tool) for tool in rules.objects(body["tools"], "tools")]
    if body.get("tool_choice") is not None:
        built["tool_choice"] = _choice(body["tool_choice"])
    stream = rules.flag(body.get("stream"), "stream")
    field = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    asked = rules.whole(body.get(field), field)
    if field != "max_tokens":
        built.pop("max_tokens", None)  # two limits, and an upstream that reads the one which was not cut
    if stream:
        built["stream_options"] = {"include_usage": True}
    options = body.get("stream_options")
    wanted = isinstance(options, dict) and bool(options.get("include_usage"))
    return Canonical({**built, "stream": stream}, stream, asked, field, usage_hidden=not wanted)


def _chat_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    kind = rules.kind_of(tool)
    inner = tool.get(kind)
    if kind not in ("function", "custom") or not isinstance(inner, dict):
        rules.unknown_tool(kind)
    return {"type": kind, kind: rules.pick(inner, ("name", "description", "parameters", "strict", "format"))}


def _said(message: Mapping[str, Any], part: Any) -> dict[str, Any]:
    """Role and content of a message; the content's parts by ``part``."""
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        rules.wrong(f"the role {rules.short(role)}")
    content = message.get("content")
    if content is None or isinstance(content, str):
        return {"role": role, "content": content}
    return {"role": role, "content": [part(one) for one in rules.objects(content, "content")]}


def _chat_message(message: Mapping[str, Any]) -> dict[str, Any]:
    built = {
        **_said(message, _chat_part),
        **rules.pick(message, ("name", "tool_call_id", "refusal", "reasoning_content")),
    }
    if message.get("tool_calls") is not None:
        built["tool_calls"] = [_chat_call(call) for call in rules.objects(message["tool_calls"], "tool_calls")]
    return built


def _chat_call(call: Mapping[str, Any]) -> dict[str, Any]:
    kind = rules.kind_of(call, "function")
    inner = call.get(kind)
    if kind not in ("function", "custom") or not isinstance(inner, dict):
        rules.unknown_content(kind)
    return {**rules.pick(call, ("id",)), "type": kind, kind: rules.pick(inner, ("name", "arguments", "input"))}


def _chat_part(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = rules.kind_of(part)
    if kind in ("text", "refusal"):
        return {"type": kind, kind: rules.text(part.get(kind), kind)}
    inner = part.get(kind)
    if kind == "image_url" and isinstance(inner, dict):
        return {
            "type": kind,
            kind: {**rules.pick(inner, ("detail",)), "url": rules.data_url(inner.get("url"), "image_url")},
        }
    if kind == "file" and isinstance(inner, dict):
        _by_value(inner)
        return {
            "type": kind,
            kind: {**rules.pick(inner, ("filename",)), "file_data": rules.text(inner.get("file_data"), "file")},
        }
    if kind == "input_audio" and isinstance(inner, dict):
        return {"type": kind, kind: rules.pick(inner, ("data", "format"))}
    rules.unknown_content(kind)
