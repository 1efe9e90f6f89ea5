"""Replies that are not what an engine says become EngineErrors, whatever they hold."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader.engines.base import Completion, EngineError, RequestRefused
from grader.engines.wire import completed, header, request_of, value_of

GOOD = {
    "choices": [{"message": {"content": "42"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1},
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*sorted(GOOD), "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


def test_a_good_reply_is_read() -> None:
    reply = completed(value_of(200, json.dumps(GOOD).encode()), True, 0.5)
    assert (reply.text, reply.finish_reason, reply.tokens_in, reply.tokens_out) == ("42", "stop", 3, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"choices": []},
        {"choices": [{"message": {"content": 42}, "finish_reason": "stop"}]},
        {"choices": [{"message": {"content": "42"}, "finish_reason": "eval"}]},
        {"usage": {"prompt_tokens": True, "completion_tokens": 1}},
        {"usage": None},
    ],
)
def test_a_changed_reply_is_an_engine_error(change: dict[str, Any]) -> None:
    with pytest.raises(EngineError):
        completed({**GOOD, **change}, True, 0.5)


@given(JSON, st.booleans())
def test_any_json_is_an_engine_error(value: Any, chat: bool) -> None:
    with pytest.raises(EngineError):
        completed(value_of(200, json.dumps(value).encode()), chat, 0.5)


@given(st.binary(max_size=40), st.sampled_from([200, 302, 500]))
def test_any_bytes_are_an_engine_error(data: bytes, status: int) -> None:
    with pytest.raises(EngineError):
        completed(value_of(status, data), True, 0.5)


def test_a_refusal_is_cleaned_and_short() -> None:
    body = json.dumps({"error": "bad \x1b[31mred\u202e\nline" + "x" * 5000}).encode()
    with pytest.raises(RequestRefused) as refused:
        value_of(400, body)
    assert refused.value.what.startswith("bad red line") and len(refused.value.what) <= 300


@given(st.text(max_size=20))
def test_any_session_id_fits_a_header(session: str) -> None:
    assert header(session.encode("utf-8", "replace").decode()).isascii()


def test_a_call_is_one_of_two_requests() -> None:
    assert request_of(Completion(max_tokens=3, prompt="p"))[0] == "/v1/completions"
    path, body = request_of(Completion(max_tokens=3, messages=(("user", "q"),), stop=(">>",)))
    assert (path, body["messages"], body["stop"]) == (
        "/v1/chat/completions",
        [{"role": "user", "content": "q"}],
        [">>"],
    )
