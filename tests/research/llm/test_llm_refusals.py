"""Everything that the LLM gateway refuses, sent over raw sockets: nothing of it reaches the upstream."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from gateway_kit import MODEL, Kit, good, request, split
from standin import StandIn

SERVER_TOOLS = (
    "web_search_20250305", "web_fetch_20250910", "code_execution_20250825", "computer_20250124", "bash_20250124",
    "mcp_toolset", "text_editor_20250728", "memory_20250818",
)  # fmt: skip
HOSTED = (
    "web_search", "web_search_preview_2025_03_11", "file_search", "code_interpreter", "image_generation", "mcp",
    "computer_use_preview", "shell", "container",
)  # fmt: skip


def said(*content: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(content)}]}


def item(*items: dict[str, Any]) -> dict[str, Any]:
    return {"input": list(items)}


def part(**fields: Any) -> dict[str, Any]:
    return item({"role": "user", "content": [fields]})


BODIES: list[tuple[str, str, dict[str, Any]]] = [
    *(("messages", "", {"tools": [{"type": kind, "name": "x"}]}) for kind in SERVER_TOOLS),
    ("messages", "model", {"model": "a-stronger-model"}),
    ("messages", "model", {"model": None}),
    ("messages", "container", {"container": "c1"}),
    ("messages", "mcp_servers", {"mcp_servers": [{"type": "url", "url": "https://x"}]}),
    ("messages", "url source", said({"type": "image", "source": {"type": "url", "url": "https://x/a.png"}})),
    ("messages", "url source", said({"type": "document", "source": {"type": "url", "url": "https://x/a.pdf"}})),
    ("messages", "file source", said({"type": "document", "source": {"type": "file", "file_id": "f"}})),
    ("messages", "url source", said({"type": "tool_result", "tool_use_id": "t", "content": [
        {"type": "image", "source": {"type": "url", "url": "https://x"}}]})),
    ("messages", "container", said({"type": "container_upload", "file_id": "f"})),
    ("messages", "web_search", said({"type": "web_search_tool_result", "content": []})),
    ("messages", "server_tool", said({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})),
    ("messages", "content type", said({"type": "something_new"})),
    ("messages", "context_management", {"context_management": {"edits": [{"type": "fetch_20260101"}]}}),
    ("count_tokens", "model", {"model": "other"}),
    ("count_tokens", "", {"tools": [{"type": "web_search_20250305", "name": "w"}]}),
    *(("responses", "", {"tools": [{"type": kind}]}) for kind in HOSTED),
    *(("responses", "", item({"type": "additional_tools", "tools": [{"type": kind}]})) for kind in HOSTED),
    ("responses", "web_search", {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "web_search"}]}]}),
    ("responses", "tool type", {"tools": [{"type": "tool_search", "execution": "server"}]}),
    ("responses", "model", {"model": "gpt-other"}),
    ("responses", "background", {"background": True}),
    ("responses", "store", {"store": True}),
    ("responses", "previous_response_id", {"previous_response_id": "resp_1"}),
    ("responses", "conversation", {"conversation": "conv_1"}),
    ("responses", "prompt", {"prompt": {"id": "p"}}),
    ("responses", "include", {"include": ["web_search_call.action.sources"]}),
    ("responses", "stored item", item({"type": "item_reference", "id": "x"})),
    ("responses", "web_search", item({"type": "web_search_call", "id": "x"})),
    ("responses", "mcp", item({"type": "mcp_call", "id": "x"})),
    ("responses", "url source", part(type="input_image", image_url="https://x/a.png")),
    ("responses", "file source", part(type="input_image", file_id="f", image_url="data:,")),
    ("responses", "url source", part(type="input_file", file_url="https://x/a.pdf")),
    ("responses", "file source", part(type="input_file", file_id="f")),
    ("responses", "url source", item({"type": "function_call_output", "call_id": "c", "output": [
        {"type": "input_image", "image_url": "http://x"}]})),
    ("responses", "web_search", {"tool_choice": {"type": "web_search"}}),
    ("chat", "model", {"model": "gpt-other"}),
    ("chat", "web_search_options", {"web_search_options": {"search_context_size": "low"}}),
    ("chat", "store", {"store": True}),
    ("chat", "n", {"n": 8}),
    ("chat", "web_search", {"tools": [{"type": "web_search"}]}),
    ("chat", "tool type", {"tools": [{"type": "function"}]}),
    ("chat", "url source", said({"type": "image_url", "image_url": {"url": "http://x/a.png"}})),
    ("chat", "file source", said({"type": "file", "file": {"file_id": "f"}})),
]  # fmt: skip


@pytest.mark.parametrize("style", ["anthropic", "openai"])
async def test_what_a_body_may_not_ask(gateway: Any, standin: StandIn, style: str) -> None:
    kit: Kit = await gateway(style)
    refused = [row for row in BODIES if (row[0] in ("messages", "count_tokens")) == (style == "anthropic")]
    for api, rule, fields in refused:
        status, body = await kit.ask(api, **fields)
        told = json.loads(body)["error"]["message"]
        assert status == 400 and told.startswith(f"refused here ({rule}"), (api, fields, told)
    assert standin.sent == []
    rules = {what for what in kit.what if what.startswith("LLM request: ")}
    assert {f"LLM request: {rule}" for _, rule, _ in refused if rule} <= rules
    assert kit.heard[-1].refused == len(refused) and kit.heard[-1].calls == 0
    assert (await kit.ask("messages" if style == "anthropic" else "responses"))[0] == 200


WRONG = [
    ("messages", {"messages": "hi"}), ("messages", {"messages": [7]}), ("messages", {"max_tokens": 0}),
    ("messages", {"max_tokens": None}), ("messages", {"stream": "yes"}), ("messages", {"tools": {}}),
    ("messages", {"messages": [{"role": "root", "content": "x"}]}), ("messages", {"messages": [{"role": "user"}]}),
    ("messages", said({"type": 7})), ("messages", said({"type": "text", "text": 7})),
    ("messages", {"tool_choice": "any"}), ("messages", {"context_management": []}),
]  # fmt: skip


async def test_what_is_no_request_of_the_api(gateway: Any, standin: StandIn) -> None:
    kit: Kit = await gateway("anthropic")
    for api, fields in WRONG:
        status, body = await kit.ask(api, **fields)
        assert status == 400 and b"not a request of this API" in body, (fields, body)
    assert standin.sent == []


def raw_requests() -> list[tuple[str, bytes, set[int]]]:
    """Name, bytes, the statuses that are right (0: hung up without a word)."""
    path, fields = good("messages")
    body = json.dumps(fields).encode()
    plain = request("POST", path, body)
    packed = gzip.compress(body)
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    no_length = plain.replace(b"Content-Length: %d\r\n" % len(body), b"")
    both = plain.replace(b"Connection: close", b"Transfer-Encoding: chunked")
    return [
        ("absolute URI", request("POST", "http://evil.example/v1/messages", body), {404}),
        ("absolute URI of the upstream", request("POST", "https://api.anthropic.com/v1/messages", body), {404}),
        ("CONNECT", b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n", {400, 404}),
        ("double slash", request("POST", "//v1/messages", body), {404}),
        ("encoded", request("POST", "/v1/%6dessages", body), {404}),
        ("dots", request("POST", "/v1/files/../messages", body), {404}),
        ("encoded dots", request("POST", "/v1/%2e%2e/v1/messages", body), {404}),
        ("another query", request("POST", "/v1/messages?beta=true&x=1", body), {404}),
        ("files", request("POST", "/v1/files", body), {404}),
        ("file content", request("GET", "/v1/files/f/content"), {404}),
        ("batches", request("POST", "/v1/messages/batches", body), {404}),
        ("a stored response", request("GET", "/v1/responses/resp_1"), {404}),
        ("assistants", request("POST", "/v1/assistants", body), {404}),
        ("embeddings", request("POST", "/v1/embeddings", body), {404}),
        ("the other style's path", request("POST", "/v1/responses", body), {404}),
        ("another method", request("PUT", "/v1/messages", body), {404}),
        ("GET", request("GET", "/v1/messages"), {404}),
        ("gzip", request("POST", path, packed, {"Content-Encoding": "gzip"}), {415}),
        ("zstd", request("POST", path, packed, {"Content-Encoding": "zstd"}), {415}),
        ("Expect", request("POST", path, body, {"Expect": "100-continue"}), {415}),
        ("no JSON", request("POST", path, b"hello"), {400}),
        ("a key twice", request("POST", path, body.replace(b"{", b'{"model": "x", ', 1)), {400}),
        ("too deep", request("POST", path, b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"), {400}),
        ("CL and TE", both + chunked, {400}),
        ("two lengths", plain.replace(b"Content-Length", b"Content-Length: 3\r\nContent-Length", 1), {400}),
        ("a signed length", plain.replace(b"Length: ", b"Length: +", 1), {400}),
        ("a spaced header", plain.replace(b"Host:", b"Host :", 1), {400}),
        ("a folded header", plain.replace(b"Host: x", b"Host: x\r\n y", 1), {400}),
        ("a bare CR", plain.replace(b"Host: x", b"Host: x\ry", 1), {400}),
        ("a NUL", plain.replace(b"Host: x", b"Host: \0", 1), {400}),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 404}),
        ("no HTTP", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", {400}),
        ("a bad chunk size", no_length.replace(b"Host", b"Transfer-Encoding: chunked\r\nHost", 1)[: -len(body)]
         + b"zz\r\n" + body, {400}),
        ("33 MiB", request("POST", path, b" " * (33 << 20)), {413, 0}),
        ("33 MiB in chunks", no_length.replace(b"Host", b"Transfer-Encoding: chunked\r\nHost", 1)[: -len(body)]
         + b"2100000\r\n" + b" " * (33 << 20) + b"\r\n0\r\n\r\n", {413, 0}),
    ]  # fmt: skip


async def test_what_may_not_arrive_at_all(gateway: Any, standin: StandIn) -> None:
    kit: Kit = await gateway("anthropic")
    for name, data, right in raw_requests():
        status, _ = split(await kit.raw(data))
        assert status in right, (name, status)
        assert standin.sent == [], name
    smuggled = request("POST", "/v1/files", b"{}").replace(b"close", b"keep-alive")
    await kit.raw(smuggled + request("POST", *map_body()))
    assert standin.sent == []
    assert {"LLM request: path", "LLM request: compressed body", "LLM request: malformed"} <= set(kit.what)
    assert (await kit.ask("messages"))[0] == 200 and len(standin.sent) == 1


def map_body() -> tuple[str, bytes]:
    """A good request behind a refused one on the same connection: the connection ended with the first."""
    path, fields = good("messages")
    return path, json.dumps(fields).encode()


async def test_what_is_answered_here(gateway: Any, standin: StandIn) -> None:
    kit: Kit = await gateway("openai")
    assert split(await kit.raw(request("HEAD", "/")))[0] == 200
    status, body = split(await kit.raw(request("GET", "/v1/models")))
    assert status == 200 and [row["id"] for row in json.loads(body)["data"]] == [MODEL]
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "x", "Sec-WebSocket-Version": "13"}
    assert split(await kit.raw(request("GET", "/v1/responses", headers=upgrade)))[0] == 426
    assert standin.sent == []


async def test_what_a_tool_is_given_is_data(gateway: Any, standin: StandIn) -> None:
    """Words of the rules inside arguments, schemas and results harm nobody and pass unchanged."""
    kit: Kit = await gateway("anthropic")
    given = {
        "type": "web_search",
        "url": "https://x",
        "source": {"type": "url"},
        "file_id": "f",
        "nested": [{"type": 7}],
    }
    schema = {"type": "object", "properties": {"url": {"type": "string"}, "type": {"const": "mcp"}}}
    fields: dict[str, Any] = {
        "tools": [{"name": "fetch", "description": "d", "input_schema": schema, "unknown": 1}],
        "messages": [
            {"role": "user", "content": "web_search_20250305"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "fetch", "input": given}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "https://x"}]},
        ],
    }
    assert (await kit.ask("messages", **fields))[0] == 200
    assert standin.sent[0].body["messages"] == fields["messages"]
    assert standin.sent[0].body["tools"] == [{"name": "fetch", "description": "d", "input_schema": schema}]
