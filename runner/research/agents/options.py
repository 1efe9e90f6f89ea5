"""The options of an agent: which there are, what a command's words mean, where its model is. One line for a mistake."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from runner import places
from runner.config import ConfigError, LlmConfig, RunConfig
from runner.research.llm.protocol import Style
from runner.words import did_you_mean

COMMAND = "command:"
LOCAL = "local:"
NAMES = ("scripted", "claude-code", "codex", "mini-swe-agent", "shell", 'command:"..."')
STYLES: Mapping[str, Style] = {"claude-code": "anthropic", "codex": "openai", "mini-swe-agent": "openai"}
"""Agents that cannot do without a model, and what they speak."""

_VENDORS: Mapping[Style, tuple[str, str]] = {
    "anthropic": ("https://api.anthropic.com", "ANTHROPIC_API_KEY"),
    "openai": ("https://api.openai.com", "OPENAI_API_KEY"),
}
_UNLIMITED = ", or take the limit away: --set budget.money=none"
_LOCAL = frozenset({"127.0.0.1", "::1", "localhost"})
_ADDRESS = ("style", "base_url", "local", "key_env", "key_file")
_LOCAL_REPLY = 1024
"""The most tokens of a local model's reply where none is named; and never more than half of what its model reads."""


def complete_agent(values: dict[str, Any]) -> None:
    """Fill in what the agent's name and model decide: a command's files, where the model is. Raises ConfigError."""
    name = str(values["agent"])
    if name.startswith(COMMAND):
        words, files = command_words(name)
        values["agent"] = COMMAND + shlex.join(words)
        values.setdefault("agent_files", files)
    elif name not in NAMES:
        raise ConfigError(f"unknown agent {name!r}", where="--agent", do=did_you_mean(name, NAMES))
    _complete_model(values, name)
    _complete_teacher(values)


def _complete_model(values: dict[str, Any], name: str) -> None:
    """Where the agent's model is, if it has one."""
    if values.get("agent_model") is None:
        if name in STYLES:
            do = "Name its model: --agent-model NAME, as the provider spells it"
            raise ConfigError(f"{name} needs a model", where="--agent-model", do=do)
        if "llm" not in values:
            return
    llm = values.setdefault("llm", {})
    if isinstance(llm, dict):
        model = str(values.get("agent_model"))
        if model.startswith(LOCAL):
            if name in ("claude-code", "codex"):
                do = 'Use --agent mini-swe-agent or command:"…", or a server of your own with --set llm.base_url=…'
                raise ConfigError(f"{name} needs tools, and the engine here has none", where="--agent-model", do=do)
            _complete_local(llm, model, "--agent-model")
        _complete_llm(llm, STYLES.get(name, "openai"))


def _complete_teacher(values: dict[str, Any]) -> None:
    """Where a teacher is: at its own address, else at the agent's model's, else at a vendor's. A model that the
    program's own engine serves is one model: nobody else is found at its address."""
    if values.get("teacher_model") is None:
        if "teacher" in values:
            do = "Name it: --teacher-model NAME, or take the table away"
            raise ConfigError("an address without a model", where="teacher", do=do)
        return
    model = str(values["teacher_model"])
    teacher = values.setdefault("teacher", _like_the_agents(values.get("llm"), model))
    if isinstance(teacher, dict):
        if model.startswith(LOCAL):
            _complete_local(teacher, model, "--teacher-model")
        _complete_llm(teacher, "openai")


def _like_the_agents(llm: object, teacher: str) -> dict[str, Any]:
    """What a teacher without a table of its own has of the agent's model."""
    if not isinstance(llm, dict):
        return {}
    if not teacher.startswith(LOCAL) and llm.get("local") is None:
        return dict(llm)
    return {key: value for key, value in llm.items() if key not in (*_ADDRESS, "max_output")}


def _complete_local(llm: dict[str, Any], model: str, flag: str) -> None:
    """A prepared model that the program's own engine serves: its folder, and how long a reply may be."""
    try:
        folder = places.model_dir(model.removeprefix(LOCAL))
    except ConfigError as error:
        raise ConfigError(error.what, where=f"{flag} {LOCAL}", do=error.do) from None
    llm.setdefault("local", str(folder))
    llm.setdefault("base_url", "http://localhost")
    llm.setdefault("max_output", max(16, min(_LOCAL_REPLY, _context(folder) // 2)))


def _context(folder: Path) -> int:
    """How many tokens the model in ``folder`` reads and writes; what any does where its configuration is odd."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
        return int(config.get("text_config", config)["max_position_embeddings"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 2 * _LOCAL_REPLY


def _complete_llm(llm: dict[str, Any], style: Style) -> None:
    llm.setdefault("style", style)
    url, key = _VENDORS.get(llm["style"], _VENDORS[style])
    if "base_url" not in llm:
        llm["base_url"] = url
        if "key_file" not in llm:
            llm.setdefault("key_env", key)


def command_words(agent: str) -> tuple[list[str], list[str]]:
    """The words of ``command:"…"`` and the host files among them: words with a slash that name something that exists.

    Those are made absolute here, and are mounted read-only into the agent's sandbox.
    """
    try:
        words = shlex.split(agent.removeprefix(COMMAND))
    except ValueError as error:
        raise ConfigError(f"is not a command ({error})", where="--agent", do="Quote it as for a shell") from None
    if not words:
        raise ConfigError("names no command", where="--agent", do='Write --agent command:"./my-agent --flag"')
    files = []
    for number, word in enumerate(words):
        path = Path(word).expanduser()
        if "/" in word and path.exists():
            words[number] = str(path.resolve())
            files.append(words[number])
    if words[0].startswith("."):
        raise ConfigError("no such file", where=f"--agent command:{words[0]}", do="Name a program that exists")
    return words, files


def check_agent(config: RunConfig) -> None:
    """What a run may not start with. Raises ConfigError."""
    llm = config.llm
    if config.teacher is not None:
        _check_address(config.teacher, "teacher")
    if llm is not None:
        _check_address(llm, "llm")
        needed = STYLES.get(config.agent)
        if needed is not None and llm.style != needed:
            do = f"Leave llm.style out, or write {needed!r}"
            raise ConfigError(f"{config.agent} speaks {needed!r} only", where="llm.style", do=do)
    _check_money(config)


def _models(config: RunConfig) -> Iterator[tuple[str, LlmConfig, str]]:
    """Each model that the run asks: its table, where it is, its name."""
    named = (("llm", config.llm, config.agent_model), ("teacher", config.teacher, config.teacher_model))
    yield from ((table, where, model) for table, where, model in named if where is not None and model is not None)


def check_ready(config: RunConfig) -> None:
    """That a run's key is where the configuration says, before anything is spent. Only its presence is looked at."""
    for table, llm, _ in _models(config):
        if llm.key_file is not None and not Path(llm.key_file).is_file():
            raise ConfigError("no such key file", where=f"{table}.key_file", do="Check the path")
        if llm.key_file is None and llm.key_env is not None and not os.environ.get(llm.key_env):
            do = f"Type: export {llm.key_env}=…, or --set {table}.key_file=FILE"
            raise ConfigError("no key", where=f"${llm.key_env}", do=do)


def _check_address(llm: LlmConfig, table: str) -> None:
    if llm.local is not None and llm.style != "openai":
        do = f"Leave {table}.style out"
        raise ConfigError("the program's own engine speaks 'openai' only", where=f"{table}.style", do=do)
    parts = urlsplit(llm.base_url)
    plain = parts.path.strip("/") in ("", "v1") and not (parts.query or parts.fragment or parts.username)
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
        do = "Write https://HOST, or http://127.0.0.1:PORT for a server on this machine"
        raise ConfigError(f"{llm.base_url!r} is no address of a model", where=f"{table}.base_url", do=do)
    if parts.scheme == "http" and parts.hostname not in _LOCAL:
        do = "Use https; http is for this machine"
        raise ConfigError("a key and a whole run would cross the network unencrypted", where=f"{table}.base_url", do=do)


def _check_money(config: RunConfig) -> None:
    """An unknown price with a limit on money refuses to start."""
    if config.budget.money is None:
        return
    llm = config.llm
    for table, where, model in _models(config):
        price = where.prices.get(model)
        if price is None or not price.known():
            missing = "input, cached, cache_write and output"
            do = f'Write [{table}.prices."{model}"] with {missing} in a --config file (docs/agents.md){_UNLIMITED}'
            raise ConfigError(f"the price of {model!r} is not known", where="budget.money", do=do)
    if config.engine.device == "cuda" and (llm is None or llm.accelerator_hour_price is None):
        do = f"Set llm.accelerator_hour_price (0 if you do not count it){_UNLIMITED}"
        raise ConfigError("the price of an accelerator hour is not known", where="budget.money", do=do)
