"""Which agents there are, what a command's words mean, and what a run may not start with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runner.config import ConfigError
from runner.research.agents import make_agent
from runner.research.agents.command import CommandAgent
from runner.research.agents.install import folder, installed, prepare_agent
from runner.research.agents.options import check_agent, command_words, complete_agent
from runner.resolve import Flags, resolve

PRICES = {"input": 3.0, "cached": 0.3, "cache_write": 3.75, "output": 15.0}


def completed(**values: Any) -> dict[str, Any]:
    complete_agent(values)
    return values


def test_the_words_of_a_command_that_are_files_are_named_by_their_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my agent.py").write_text("")
    words, files = command_words("command:python './my agent.py' --url http://x/y --level 3")
    assert words == ["python", f"{tmp_path}/my agent.py", "--url", "http://x/y", "--level", "3"]
    assert files == [f"{tmp_path}/my agent.py"]
    values = completed(agent="command:python './my agent.py'")
    assert values["agent"] == f"command:python '{tmp_path}/my agent.py'" and "llm" not in values


@pytest.mark.parametrize(
    ("agent", "says"),
    [
        ("claude", "unknown agent 'claude'. Did you mean 'claude-code'?"),
        ("command:", "names no command"),
        ("command:'", "is not a command"),
        ("command:./nothing-there", "no such file"),
        ("codex", "codex needs a model"),
        ("claude-code", "claude-code needs a model"),
    ],
)
def test_a_wrong_agent_is_one_line(agent: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        completed(agent=agent)
    assert says in str(error.value)


def test_a_model_that_the_programs_own_engine_serves_is_named_by_a_word() -> None:
    llm = completed(agent="mini-swe-agent", agent_model="local:tiny")["llm"]
    assert llm["style"] == "openai" and Path(llm["local"]).name == "tiny" and "key_env" not in llm
    with pytest.raises(ConfigError, match="codex needs tools"):
        completed(agent="codex", agent_model="local:tiny")
    with pytest.raises(ConfigError, match="runner prepare --model nothing-there"):
        completed(agent="mini-swe-agent", agent_model="local:nothing-there")


ADDRESSES = ({"style": "anthropic", "base_url": "https://a.example", "key_file": "/k"}, {})


@pytest.mark.parametrize("llm", ADDRESSES)
def test_a_teacher_that_this_machine_serves_is_named_by_the_same_word(llm: dict[str, Any]) -> None:
    prices = {"local:tiny": PRICES}
    values = completed(
        agent="claude-code", agent_model="m", teacher_model="local:tiny", llm={**llm, "prices": prices, "streams": 3}
    )
    teacher = values["teacher"]
    assert Path(teacher.pop("local")).name == "tiny", "it is at no address of the agent's"
    assert teacher == {
        "style": "openai", "base_url": "http://localhost", "prices": prices, "streams": 3, "max_output": 512,
    }  # fmt: skip
    with pytest.raises(ConfigError, match=r"--teacher-model local:.*runner prepare --model nothing-there"):
        completed(agent="scripted", teacher_model="local:nothing-there")


def test_a_teacher_at_a_vendors_is_not_answered_by_the_agents_model_on_this_machine() -> None:
    values = completed(agent="mini-swe-agent", agent_model="local:tiny", teacher_model="m", llm={"streams": 3})
    assert values["teacher"] == {
        "style": "openai", "base_url": "https://api.openai.com", "key_env": "OPENAI_API_KEY", "streams": 3,
    }  # fmt: skip
    both = completed(agent="mini-swe-agent", agent_model="local:tiny", teacher_model="local:tiny")
    assert both["teacher"] == both["llm"], "one engine serves both"
    shared = completed(agent="codex", agent_model="m", teacher_model="n", llm={"base_url": "http://127.0.0.1:8000"})
    assert shared["teacher"] == shared["llm"]


@pytest.mark.parametrize("table", ["llm", "teacher"])
def test_the_programs_own_engine_speaks_one_api(table: str) -> None:
    flags = Flags(
        task="aime", profile="laptop", agent='command:"true"', agent_model="local:tiny", teacher_model="local:tiny",
        sets=(f"{table}.style=anthropic",),
    )  # fmt: skip
    with pytest.raises(ConfigError, match=rf"{table}\.style: the program's own engine speaks 'openai' only"):
        resolve(flags)


def test_where_the_model_is_follows_from_the_agent_and_a_local_server_needs_no_key() -> None:
    assert completed(agent="claude-code", agent_model="m")["llm"] == {
        "style": "anthropic", "base_url": "https://api.anthropic.com", "key_env": "ANTHROPIC_API_KEY",
    }  # fmt: skip
    local = completed(agent="codex", agent_model="m", llm={"base_url": "http://127.0.0.1:8000/v1"})["llm"]
    assert local == {"style": "openai", "base_url": "http://127.0.0.1:8000/v1"}
    named = completed(agent="codex", agent_model="m", llm={"key_file": "/k"})["llm"]
    assert "key_env" not in named


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        (("budget.money=5",), "the price of 'm' is not known"),
        (("budget.money=5", "llm.prices.m.input=1"), "the price of 'm' is not known"),
        (("llm.base_url=http://example.com",), "unencrypted"),
        (("llm.base_url=https://user:pw@example.com",), "no address of a model"),
        (("llm.base_url=ftp://example.com",), "no address of a model"),
        (("llm.style=openai",), "speaks 'anthropic' only"),
        (("llm.key=x",), "unknown key"),
    ],
)
def test_what_a_run_may_not_start_with(sets: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        resolve(Flags(task="aime", profile="laptop", agent="claude-code", agent_model="m", sets=sets))
    assert says in str(error.value)


def test_a_known_price_starts_and_no_secret_is_in_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-canary")
    sets = ("budget.money=5", *(f"llm.prices.m.{name}={value}" for name, value in PRICES.items()))
    config = resolve(Flags(task="aime", profile="laptop", agent="claude-code", agent_model="m", sets=sets))
    check_agent(config)
    assert config.budget.money == 5 and "sk-canary" not in config.to_toml() + config.model_dump_json()


def test_a_command_may_not_carry_what_an_agent_must_not_see(tmp_path: Path) -> None:
    hidden = tmp_path / "own" / "hidden.jsonl"
    for file in (tmp_path, tmp_path / "own", hidden):
        with pytest.raises(ConfigError, match="must not see"):
            CommandAgent.of(f"command:{file}", (str(file),), (hidden,))
    with pytest.raises(ConfigError, match="must not see"):
        CommandAgent.of("command:x", (str(hidden / "below"),), (hidden,))
    assert CommandAgent.of("command:x", (str(tmp_path / "agent"),), (hidden,)).words == ("x",)
    key = tmp_path / "keys" / "teachers"
    key.parent.mkdir()
    key.touch()
    for table in ("llm", "teacher"):
        sets = (f"{table}.key_file={key}",)
        flags = Flags(
            task="aime", profile="laptop", agent=f"command:true {key.parent}", agent_model="m", teacher_model="n",
            sets=sets,
        )  # fmt: skip
        with pytest.raises(ConfigError, match="must not see"):
            make_agent(resolve(flags))


def test_a_binary_that_was_not_fetched_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIBETRAINING_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"codex is not there\. Type: runner prepare --agent codex"):
        installed("codex")
    with pytest.raises(ConfigError, match="Fetched are: claude-code, codex, mini-swe-agent"):
        prepare_agent("clippy", None, print)
    folder("codex").mkdir(parents=True)
    for broken in ("", "[]", "{}", '{"binary": "gone", "said": "1", "companions": {}}', '{"binary": 7}'):
        (folder("codex") / "manifest.json").write_text(broken)
        with pytest.raises(ConfigError, match="is not there"):
            installed("codex")
    (folder("codex") / "codex-1").write_text("")
    (folder("codex") / "manifest.json").write_text('{"binary": "codex-1", "said": "one", "companions": {}}')
    assert installed("codex").version == "one"
