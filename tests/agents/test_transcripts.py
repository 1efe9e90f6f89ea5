"""What the readers of agents make of lines: true ones of both CLIs, and any others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isolation.clean import clean_line
from runner.record.events import AgentTurn
from runner.research.agents.base import ResearchAgent
from runner.research.agents.claude_code import ClaudeCode
from runner.research.agents.codex import Codex
from runner.research.agents.command import CommandAgent
from runner.research.agents.install import Installed

HERE = Installed(Path("/nowhere"), "0")
THREAD = "019b1f5c-0000-7000-8000-000000000001"


def agents() -> list[ResearchAgent]:
    return [ClaudeCode(HERE), Codex(HERE), CommandAgent(("x",), (), "command:x")]


def told(agent: ResearchAgent, *events: dict[str, Any]) -> list[tuple[str, str, int]]:
    turns = [agent.turns(json.dumps(event)) for event in events]
    return [(turn.tool, turn.summary, turn.tokens) for turn in turns if turn is not None]


def test_claude_code_says_what_it_does_and_a_message_in_blocks_counts_its_tokens_once() -> None:
    usage = {"output_tokens": 12}
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "Look\nat the data"},
        {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "vibe status"}},
    ]
    said = [{"type": "assistant", "message": {"id": "m1", "content": [block], "usage": usage}} for block in blocks]
    result = {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": [{"type": "text", "text": "no"}]}
    events = [
        {"type": "system", "subtype": "init", "session_id": THREAD},
        *said,
        {"type": "user", "message": {"content": [result]}},
        {"type": "system", "subtype": "api_retry"},
        {"type": "result", "subtype": "success", "is_error": True, "result": "budget used up"},
    ]
    assert told(ClaudeCode(HERE), *events) == [
        ("", "Look at the data", 12),
        ("Bash", "vibe status", 0),
        ("Bash", "failed: no", 0),
        ("", "waits for its model", 0),
        ("", "ended with an error: budget used up", 0),
    ]


def test_codex_says_what_it_does_and_which_session_it_is() -> None:
    command = {"id": "i1", "type": "command_execution", "command": "vibe train"}
    events = [
        {"type": "thread.started", "thread_id": THREAD},
        {"type": "turn.started"},
        {"type": "item.started", "item": command},
        {"type": "item.completed", "item": {**command, "exit_code": 1, "aggregated_output": "refused\n"}},
        {"type": "item.completed", "item": {"id": "i2", "type": "agent_message", "text": "done"}},
        {"type": "turn.completed", "usage": {"output_tokens": 30}},
    ]
    agent = Codex(HERE)
    assert told(agent, *events) == [
        ("", "a session begins", 0),
        ("command_execution", "vibe train", 0),
        ("command_execution", "failed: refused", 0),
        ("", "done", 0),
        ("", "a turn ends", 30),
    ]
    turn = agent.turns(json.dumps(events[0]))
    assert turn is not None and turn.session == THREAD


@pytest.mark.parametrize("thread", [None, 7, "", "../../etc", "--last", THREAD + "x", "\x1b[2J"])
def test_a_session_id_is_an_id_or_nothing(thread: Any) -> None:
    assert Codex(HERE).turns(json.dumps({"type": "thread.started", "thread_id": thread})) is None


WORDS = st.sampled_from([
    "type", "assistant", "user", "system", "result", "message", "content", "usage", "output_tokens", "item", "id",
    "item.started", "item.completed", "command_execution", "agent_message", "error", "text", "tool_use", "tool_result",
    "api_retry", "subtype", "is_error", "turn.completed", "turn.failed", "thread.started", "thread_id", "say", "tool",
    "name", "input", "command", "exit_code", "aggregated_output", "tool_use_id",
])  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | WORDS
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=6))


@given(st.lists(JSON.map(json.dumps) | st.text(max_size=200) | st.binary(max_size=50).map(bytes.hex), max_size=8))
@settings(database=None, deadline=None, max_examples=300)
def test_no_line_ever_hurts_and_what_is_told_is_bounded_and_safe(lines: list[str]) -> None:
    for agent in agents():
        for line in lines:
            for torn in (line, line[: len(line) // 2]):
                turn = agent.turns(torn)
                if turn is not None:
                    again = AgentTurn.model_validate_json(turn.model_dump_json())
                    assert again == turn and len(turn.summary) <= 400 and 0 <= turn.tokens <= 10**9
                    assert clean_line(turn.summary) == turn.summary and clean_line(turn.tool) == turn.tool


def test_deep_and_huge_lines_are_no_turns() -> None:
    for agent in (ClaudeCode(HERE), Codex(HERE)):
        assert agent.turns('{"type":' + "[" * 100_000) is None
        event = {"type": "assistant", "message": {"id": 7, "content": [{"type": "text", "text": "x" * 900_000}]}}
        turn = agent.turns(json.dumps(event))
        assert turn is None or len(turn.summary) <= 400
