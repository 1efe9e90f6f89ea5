"""What a harness may ask of the model, and what it gets when it asks for more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from eval_kit import Kit

from grader.request import Refused, chat_request, text_request
from grader.strict import StrictError, parse_object
from tasks.spec import Decoding, ProblemLimits

PINNED = Decoding(temperature=0.6, top_p=0.9, top_k=20, presence_penalty=0.5, max_tokens=64)


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path, problems=1, decoding=PINNED)


def said(kit: Kit) -> Any:
    """What the harness handed in, as JSON."""
    return json.loads(kit.judged[0][1])


def chat(**more: Any) -> Any:
    return chat_request({"messages": [{"role": "user", "content": "1+2"}], **more}, PINNED)


def test_decoding_is_the_tasks_and_what_was_sent_is_counted() -> None:
    asked = chat(temperature=2, top_p=0.9, seed=1, max_tokens=10**6, logit_bias={}, chat_template="x", evil=1, worse=2)
    assert asked.overwritten == ("chat_template", "logit_bias", "max_tokens", "seed", "temperature", "unknown field")
    call = asked.completion(PINNED, 5, 99)
    assert (call.temperature, call.top_p, call.top_k, call.presence_penalty, call.seed) == (0.6, 0.9, 20, 0.5, 99)
    assert asked.max_tokens == 64


def test_stop_and_fewer_tokens_are_the_harness_s() -> None:
    asked = chat(stop=[">>", "\n"], max_tokens=7)
    assert (asked.stop, asked.max_tokens, asked.overwritten) == ((">>", "\n"), 7, ())
    assert chat(stop="x").stop == ("x",)
    assert chat(max_completion_tokens=3).max_tokens == 3


def test_the_parts_of_a_message_are_text() -> None:
    parts = [{"type": "text", "text": "1+"}, {"type": "text", "text": "2"}]
    asked = chat_request({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": parts}]}, PINNED)
    assert asked.messages == (("system", "s"), ("user", "1+2"))


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 64},
        {"n": 0},
        {"n": True},
        {"best_of": 2},
        {"stream": True},
        {"max_tokens": 0},
        {"max_tokens": -1},
        {"max_tokens": True},
        {"max_tokens": 1.5},
        {"max_tokens": "9"},
        {"stop": ["x"] * 9},
        {"stop": ["x" * 65]},
        {"stop": [""]},
        {"stop": [1]},
        {"stop": {"a": 1}},
        {"messages": []},
        {"messages": "hello"},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"messages": [{"role": ["user"], "content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "http://x"}]}]},
        {"messages": [{"role": "user"}]},
        {"messages": ["x"]},
        {"messages": [{"role": "user", "content": "x"}] * 257},
    ],
)
def test_what_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refusal:
        chat(**fields)
    assert refusal.value.status == 400


@pytest.mark.parametrize("prompt", [None, "", ["a"], 7, {"a": 1}])
def test_a_prompt_is_one_string(prompt: Any) -> None:
    with pytest.raises(Refused):
        text_request({"prompt": prompt}, PINNED)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"nul",
        b'{"a": NaN}',
        b'{"a": 1, "a": 2}',
        b'{"a": "\\ud800"}',
        b'{"\\udfff": 1}',
        b"\xff\xfe",
        b'{"a": ' + b"[" * 32 + b"]" * 32 + b"}",
        b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a": ' + b"9" * 10_000 + b"}",
    ],
)
def test_json_is_parsed_strictly(text: bytes) -> None:
    with pytest.raises(StrictError):
        parse_object(text)


def test_thirty_two_levels_are_allowed() -> None:
    assert parse_object(b'{"a": ' + b"[" * 31 + b"]" * 31 + b"}")
    assert parse_object('{"a": "ä😀"}'.encode()) == {"a": "ä😀"}


async def test_a_completion_goes_through_the_socket(kit: Kit) -> None:
    await kit.run("""
        say({"op": "task.get"})
        one = post("/v1/completions", {"prompt": "10+20", "stop": ["boxed"], "temperature": 0.1})
        two = post("/v1/models", None, "GET")
        finish(json.dumps([one, two]))
    """)
    (one_status, one), (two_status, two) = said(kit)
    assert (one_status, two_status) == (200, 200)
    assert one["choices"][0]["text"] == "The answer is \\boxed"
    assert one["choices"][0]["finish_reason"] == "stop"
    assert one["usage"] == {"prompt_tokens": 1, "completion_tokens": 5, "total_tokens": 6}
    assert two["data"][0]["id"] == "model"
    assert kit.engine.calls[0][1].temperature == 0.6
    assert kit.steps()[0]["overwritten"] == ["temperature"]


async def test_other_paths_do_not_exist_and_are_seen(kit: Kit) -> None:
    await kit.run("""
        say({"op": "task.get"})
        paths = ["/", "/control", "/load", "/v1/chat/completions/", "//v1/models", "/v1/models?x=1", "/v1/%6dodels",
                 "http://other/v1/models", "/v1/embeddings", "/v1/files"]
        finish(json.dumps([post(path, {}, method)[0] for path in paths for method in ("GET", "POST", "DELETE")]))
    """)
    assert set(said(kit)) <= {404, 400}
    assert kit.engine.calls == []
    assert ("unknown path", "c01 p0") in kit.attempts


async def test_n_and_hot_sampling_are_refused_or_overwritten(kit: Kit) -> None:
    score = await kit.run("""
        say({"op": "task.get"})
        message = {"messages": [{"role": "user", "content": "1+2"}], "temperature": 2, "max_tokens": 10**6}
        finish(json.dumps([post("/v1/chat/completions", {**message, "n": 64}), post("/v1/chat/completions", message)]))
    """)
    (refused, _), (status, _) = said(kit)
    assert (refused, status) == (400, 200)
    assert score.overwritten == {"max_tokens": 1, "temperature": 1}
    assert (kit.engine.calls[0][1].temperature, kit.engine.calls[0][1].max_tokens) == (0.6, 64)
    assert ("n > 1", "c01 p0") in kit.attempts


async def test_calls_and_tokens_are_counted_here(kit: Kit) -> None:
    kit.limits = ProblemLimits(calls_per_problem=3, tokens_per_problem=7)
    await kit.run("""
        say({"op": "task.get"})
        finish(json.dumps([chat("1+2") for _ in range(4)]))
    """)
    first, second, third, fourth = said(kit)
    assert len(first.split()) == 5
    assert len(second.split()) == 2  # cut to what was left of 7
    assert third.startswith("429 all 7 generated tokens")
    assert fourth.startswith("429")
    assert len(kit.engine.calls) == 2


async def test_the_calls_run_out(kit: Kit) -> None:
    kit.limits = ProblemLimits(calls_per_problem=2)
    await kit.run("""
        say({"op": "task.get"})
        finish(json.dumps([chat("1+2") for _ in range(3)]))
    """)
    assert said(kit)[2].startswith("429 all 2 model calls")
    assert kit.rows()[0]["calls"] == 2


async def test_seeds_differ_by_call_problem_and_sample_and_by_nothing_else(kit: Kit) -> None:
    kit.problems, kit.samples = 2, 2
    program = """
        say({"op": "task.get"})
        finish(json.dumps([chat("1+2"), chat("1+2")]))
    """
    await kit.run(program)
    seeds = {(session, call.seed) for session, call in kit.engine.calls}
    assert len({seed for _, seed in seeds}) == 8
    again = Kit(kit.root, problems=2, samples=2, decoding=PINNED)
    await again.run(program, "again")
    assert {(session, call.seed) for session, call in again.engine.calls} == seeds


async def test_a_prompt_that_is_too_long_is_the_harness_s_own_trouble(kit: Kit) -> None:
    await kit.run("""
        task = say({"op": "task.get"})
        finish(json.dumps([chat("1" * 30_000), chat(task["instruction"])]))
    """)
    assert said(kit)[0] == "400 the prompt is longer than the model's context"
    assert "boxed{1}" in said(kit)[1]
    assert kit.steps()[0]["finish_reason"] == "refused"


async def test_a_second_request_queues(kit: Kit) -> None:
    await kit.run("""
        say({"op": "task.get"})
        sockets = [connect() for _ in range(4)]
        for i, s in enumerate(sockets):
            send(s, "/v1/completions", {"prompt": f"{i}+100"})
        finish(json.dumps([receive(s)[1]["choices"][0]["text"] for s in sockets]))
    """)
    assert [text.split("{")[1].split("}")[0] for text in said(kit)] == ["100", "101", "102", "103"]
    assert len(kit.engine.rounds) == 4


async def test_fifty_connections_do_not_hurt(kit: Kit) -> None:
    await kit.run("""
        say({"op": "task.get"})
        idle = []
        for _ in range(50):
            try: idle.append(connect())
            except OSError: pass
        for s in idle:
            try: s.sendall(b"GET /v1/mod")
            except OSError: pass
        for s in idle: s.close()
        text = ""
        while not text:
            try: text = chat("1+2")
            except OSError: pass
        finish(json.dumps(text))
    """)
    assert "boxed{3}" in said(kit)
    assert ("too many connections", "c01 p0") in kit.attempts


MALFORMED = {
    "garbage": b"\x16\x03\x01\x02\x00garbage\r\n\r\n",
    "smuggled": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two_lengths": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "bad_length": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    "huge_length": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n",
    "bad_chunk": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "huge_header": b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    "connect": b"CONNECT other:80 HTTP/1.1\r\nHost: other\r\n\r\n",
    "upgrade": b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
    "gzip": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
    "not_json": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n{]}",
    "deep_json": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n" + b"[" * 20000,
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_malformed_requests_cost_only_themselves(kit: Kit, name: str) -> None:
    kit.extra_files["payload"] = MALFORMED[name].decode("latin-1")
    await kit.run("""
        say({"op": "task.get"})
        s = connect()
        s.settimeout(5)
        try:
            s.sendall(open("/harness/payload", encoding="utf-8", newline="").read().encode("latin-1"))
            answer = s.recv(4096).decode("latin-1")
        except OSError as error:
            answer = type(error).__name__
        s.close()
        finish(json.dumps([answer.split("\\r\\n")[0], chat("1+2")]))
    """)
    answer, text = said(kit)
    assert "boxed{3}" in text
    assert name == "upgrade" or " 200 " not in answer
    assert kit.engine.calls[-1][1].messages == (("user", "1+2"),)
    assert len(kit.engine.calls) == 1


async def test_a_body_of_a_hundred_megabytes_is_cut_off(kit: Kit) -> None:
    await kit.run("""
        say({"op": "task.get"})
        s = connect()
        s.sendall(b"POST /v1/completions HTTP/1.1\\r\\nHost: x\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n")
        sent = 0
        try:
            while sent < 100 << 20:
                s.sendall(b"10000\\r\\n" + b"x" * 65536 + b"\\r\\n")
                sent += 65536
        except OSError: pass
        finish(json.dumps([sent, chat("1+2")]))
    """)
    sent, text = said(kit)
    assert sent < 16 << 20
    assert "boxed{3}" in text
    assert ("oversized request", "c01 p0") in kit.attempts


async def test_a_request_that_trickles_ends_with_the_session(kit: Kit) -> None:
    """Other sessions are not held up: a round waits for requests that are complete, and for a clock."""
    kit.problems = 2
    kit.limits = ProblemLimits(think_s=1.5, wall_s=5.0)
    await kit.run("""
        import time
        task = say({"op": "task.get"})
        if "0+1" in task["instruction"]:
            s = connect()
            s.sendall(b"POST /v1/completions HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 500\\r\\n\\r\\n")
            while True:
                s.sendall(b" ")
                time.sleep(0.1)
        finish(chat(task["instruction"]))
    """)
    assert [row["reason"] for row in kit.rows()] == ["timeout", "match"]


async def test_requests_without_end_are_bounded(kit: Kit) -> None:
    kit.limits = ProblemLimits(think_s=30.0, wall_s=30.0)
    await kit.run("""
        say({"op": "task.get"})
        codes = set()
        for _ in range(3000):
            try: codes.add(post("/v1/models", None, "GET")[0])
            except OSError: codes.add(-1)
        finish(json.dumps(sorted(codes)))
    """)
    assert said(kit)[0] in (-1, 0)


async def test_a_harness_that_hangs_up_does_not_change_the_round(kit: Kit) -> None:
    """p0 sends its request and exits: the request still is in the round, as in every other run."""
    kit.problems = 2
    await kit.run("""
        import time
        task = say({"op": "task.get"})
        if "0+1" in task["instruction"]:
            send(connect(), "/v1/completions", {"prompt": "5+5"})
            time.sleep(0.3)
            sys.exit(0)
        time.sleep(0.8)
        finish(chat(task["instruction"]))
    """)
    assert [row["reason"] for row in kit.rows()] == ["no_answer", "match"]
    assert kit.engine.rounds == [["000000", "000001"]]
    assert kit.steps()[0]["reply"].startswith("The answer is \\boxed{10}")
