"""From flags, a TOML file and the task's defaults to one frozen RunConfig. Every mistake is one line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tomli
from pydantic import ValidationError

from runner import places, protocols
from runner.config import ConfigError, RunConfig
from runner.research.agents.options import check_agent, complete_agent
from runner.words import did_you_mean
from tasks import registry
from tasks.spec import COMPONENTS, LETTERS, Component, ProblemSet, TaskSpec

ProfileName = Literal["laptop", "workstation"]

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_MODELS: Mapping[ProfileName, str] = {"laptop": "tiny", "workstation": "Qwen/Qwen3.5-9B-Base"}
_SETS: Mapping[ProfileName, str] = {"laptop": "mini", "workstation": "aime"}
_SCOPES: Mapping[ProfileName, tuple[Component, ...]] = {"laptop": COMPONENTS, "workstation": ("data", "trainer")}


@dataclass(frozen=True, slots=True)
class Flags:
    """What the command line said; ``None`` and empty mean that it did not."""

    task: str | None = None
    problems: str | None = None
    hidden: str | None = None
    sources: tuple[str, ...] = ()
    model: str | None = None
    agent: str | None = None
    agent_model: str | None = None
    reasoning_effort: str | None = None
    teacher_model: str | None = None
    scope: str | None = None
    seed: int | None = None
    samples: int | None = None
    budget: str | None = None
    profile: str = "auto"
    protocol: str | None = None
    policy: str | None = None
    config: str | None = None
    allow_weak: tuple[str, ...] = ()
    sets: tuple[str, ...] = field(default=())


def seconds(text: str | float) -> float:
    """``"90"``, ``"90s"``, ``"20m"``, ``"1.5h"`` or a number, in seconds. Raises ConfigError."""
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        value: float = float(text)
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd]?)\s*", str(text))
        if match is None:
            raise ConfigError(f"{text!r} is no duration", where="budget", do="Write 90s, 20m or 1.5h")
        value = float(match[1]) * _UNITS[match[2]]
    if not 0 < value < 10 * 365 * 86400:
        raise ConfigError(f"{text!r} is out of range", where="budget", do="Write a positive duration such as 20m")
    return value


def scope_of(text: str) -> tuple[Component, ...]:
    """``"data+harness"`` or ``"D+H"`` as components in canonical order. Raises ConfigError."""
    letters = {letter: name for name, letter in LETTERS.items()}
    chosen: set[str] = set()
    for part in text.split("+"):
        word = part.strip()
        name = letters.get(word.upper(), word.lower())
        if name not in COMPONENTS:
            raise ConfigError(f"{word!r} is no component", where="--scope", do=did_you_mean(word, COMPONENTS))
        chosen.add(name)
    return tuple(name for name in COMPONENTS if name in chosen)


def profile_of(text: str) -> ProfileName:
    """The named profile, or the one that fits this machine: workstation where an NVIDIA device node exists."""
    if text == "auto":
        found = any(Path(node).exists() for node in ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg"))
        return "workstation" if found else "laptop"
    if text == "laptop":
        return "laptop"
    if text == "workstation":
        return "workstation"
    raise ConfigError(
        f"unknown profile {text!r}", where="--profile", do=did_you_mean(text, ("auto", "laptop", "workstation"))
    )


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file. Raises ConfigError with the line."""
    try:
        return tomli.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror})", where=str(path), do="Check --config") from None
    except (tomli.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"is not valid TOML: {error}", where=str(path), do="Mend that line") from None


def _assign(into: dict[str, Any], dotted: str, value: Any, where: str) -> None:
    keys = dotted.split(".")
    for key in keys[:-1]:
        into = into.setdefault(key, {})
        if not isinstance(into, dict):
            raise ConfigError(f"{key!r} is not a table", where=where, do="See `runner --task aime --dry-run`")
    into[keys[-1]] = value


def _merge(base: dict[str, Any], over: Mapping[str, Any]) -> None:
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), dict):
            _merge(base[key], value)
        else:
            base[key] = value


def _setting(text: str) -> tuple[str, Any]:
    key, sign, raw = text.partition("=")
    if not sign or not key.strip():
        raise ConfigError(f"{text!r} is no setting", where="--set", do="Write --set engine.wave=64")
    try:
        return key.strip(), tomli.loads(f"value = {raw}")["value"]
    except tomli.TOMLDecodeError:
        return key.strip(), raw


def _existing(path: str, where: str) -> str:
    found = Path(path).expanduser()
    if not found.is_file():
        raise ConfigError("no such file", where=f"{where} {path}", do="Give the path of a .jsonl or .parquet file")
    return str(found.resolve())


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The problem set and the files that its splits come from."""

    name: str
    spec: ProblemSet
    validation: str | None
    hidden: str | None


def _choose(task: TaskSpec, wanted: str, hidden: str | None, profile: ProfileName) -> _Chosen:
    if wanted in task.sets:
        spec = task.sets[wanted]
        if hidden is not None:
            raise ConfigError("needs --problems FILE beside it", where="--hidden", do="Name both files, or neither")
        files = registry.split_files(task.name, wanted)
        if files is None:
            files = places.dataset_files(task.name, wanted)
        return _Chosen(wanted, spec, str(files["validation"]), str(files["hidden"]))
    if not Path(wanted).expanduser().exists() and not wanted.endswith((".jsonl", ".parquet")):
        raise ConfigError(
            f"unknown problem set {wanted!r}",
            where="--problems",
            do=f"{did_you_mean(wanted, task.sets)}; or name a file",
        )
    validation = _existing(wanted, "--problems")
    if hidden is None:
        raise ConfigError("needs --hidden FILE beside it", where="--problems FILE", do="Name the hidden problems too")
    return _Chosen("aime", task.sets["aime"], validation, _existing(hidden, "--hidden"))


def _defaults(task: TaskSpec, flags: Flags, merged: Mapping[str, Any]) -> dict[str, Any]:
    profile = profile_of(flags.profile if flags.profile != "auto" else str(merged.get("profile", "auto")))
    wanted = flags.problems or str(merged.get("problems", _SETS[profile]))
    chosen = _choose(task, wanted, flags.hidden or merged.get("hidden"), profile)
    model = flags.model or str(merged.get("model", _MODELS[profile]))
    decoding = chosen.spec.decoding.model_dump()
    limits = chosen.spec.limits.model_dump()
    if profile == "laptop" and chosen.spec.laptop is not None:
        decoding |= chosen.spec.laptop.decoding
        limits |= chosen.spec.laptop.limits
    protocol = protocols.named(str(merged.get("protocol", "vibetraining")))
    values: dict[str, Any] = {
        "task": task.name,
        "problems": chosen.name,
        "validation_file": chosen.validation,
        "hidden_file": chosen.hidden,
        "source_files": [_existing(path, "--sources") for path in flags.sources],
        "model": model,
        "base_dir": str(places.model_dir(model)),
        "model_env": str(places.model_env()),
        "agent": "scripted",
        "scope": list(_SCOPES[profile]),
        "seed": 0,
        "samples": chosen.spec.samples,
        "decoding": decoding,
        "limits": limits,
        "engine": {"device": "cuda" if profile == "workstation" else "cpu"},
        "budget": {"wall_s": task.budgets[profile]},
        "profile": profile,
    }
    return values | protocols.defaults(protocol)


def _overrides(flags: Flags) -> dict[str, Any]:
    over: dict[str, Any] = {}
    simple = {
        "agent": flags.agent,
        "agent_model": flags.agent_model,
        "reasoning_effort": flags.reasoning_effort,
        "seed": flags.seed,
        "samples": flags.samples,
        "protocol": flags.protocol,
        "teacher_model": flags.teacher_model,
    }
    over.update({key: value for key, value in simple.items() if value is not None})
    if flags.policy is not None:
        over["selection_policy"] = flags.policy
    if flags.scope is not None:
        over["scope"] = list(scope_of(flags.scope))
    if flags.budget is not None:
        over["budget"] = {"wall_s": seconds(flags.budget)}
    if flags.allow_weak:
        over["allow_weak"] = list(flags.allow_weak)
    for text in flags.sets:
        key, value = _setting(text)
        _assign(over, key, value, "--set")
    return over


def _shape(merged: dict[str, Any]) -> None:
    """Accept the words a person writes (a scope string, a duration) wherever a value may come from."""
    if isinstance(merged.get("scope"), str):
        merged["scope"] = list(scope_of(merged["scope"]))
    budget = merged.get("budget")
    if isinstance(budget, str):
        merged["budget"] = {"wall_s": seconds(budget)}
    elif isinstance(budget, dict) and isinstance(budget.get("wall_s"), str):
        budget["wall_s"] = seconds(budget["wall_s"])


def _checked(values: Mapping[str, Any]) -> RunConfig:
    try:
        return RunConfig.model_validate_json(json.dumps(values))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "config"
        if first["type"] == "extra_forbidden":
            key = str(first["loc"][-1])
            raise ConfigError(
                "unknown key", where=where, do=did_you_mean(key, _keys_beside(values, first["loc"]))
            ) from None
        raise ConfigError(first["msg"], where=where, do="See `runner --task aime --dry-run`") from None


def _keys_beside(values: Mapping[str, Any], location: tuple[int | str, ...]) -> list[str]:
    if len(location) == 1:
        return list(RunConfig.model_fields)
    table = RunConfig.model_fields[str(location[0])].annotation
    return list(getattr(table, "model_fields", {}))


def resolve(flags: Flags) -> RunConfig:
    """The frozen configuration of a run. Precedence: --set and flags, then --config, then profile and task.

    Raises ConfigError or TaskError, each one line that says what, where and what to do.
    """
    table = read_toml(Path(flags.config).expanduser()) if flags.config else {}
    name = flags.task or table.get("task")
    if not name:
        raise ConfigError("no task", where="--task", do=f"Name one: {', '.join(registry.names())}")
    over = _overrides(flags)
    chosen_earlier = {key: over[key] for key in ("problems", "model", "hidden", "profile", "protocol") if key in over}
    spec = registry.load_spec(str(name))
    values = _defaults(spec, flags, table | chosen_earlier)
    _shape(table)
    _merge(values, {key: value for key, value in table.items() if key not in ("problems", "hidden", "model", "task")})
    _merge(values, {key: value for key, value in over.items() if key not in ("problems", "hidden", "model")})
    _shape(values)
    if isinstance(values["budget"], dict):
        values["budget"] = {key: value for key, value in values["budget"].items() if value != "none"}
    complete_agent(values)
    protocols.complete(values, spec)
    config = _checked(values)
    check_agent(config)
    protocols.check(config)
    return config
