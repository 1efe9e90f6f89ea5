"""Where things lie that a run needs and the repository does not hold: the model environment, models, data sets.

Only looks; `runner prepare` is what fetches. Every refusal is one line with the command to type.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import tasks
from runner.config import ConfigError
from tasks.spec import SplitName

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")
MANIFEST = "manifest.json"


def home() -> Path:
    """The folder for what is fetched once and shared by runs: $VIBETRAINING_HOME or ~/.cache/vibetraining-bench."""
    named = os.environ.get("VIBETRAINING_HOME")
    return Path(named).expanduser().absolute() if named else Path.home() / ".cache" / "vibetraining-bench"


def model_env() -> Path:
    """The model environment. Raises ConfigError where it is not there."""
    folder = home() / "model-env"
    if not (folder / "bin" / "python").exists():
        raise ConfigError("the model environment is not there", where=str(folder), do="Type: runner prepare")
    return folder


def model_python() -> Path:
    """The interpreter of the model environment. Raises ConfigError where it is not there."""
    return model_env() / "bin" / "python"


def model_home(name: str) -> Path:
    """Where a fetched model of this name belongs, there or not. Raises ConfigError for what cannot be a name."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name[:80]!r} is neither a model's name nor a folder",
            where="--model",
            do="Name tiny, smollm2-135m, OWNER/NAME of a model hub, or a folder",
        )
    return home() / "models" / name


def model_dir(name: str) -> Path:
    """The folder of a base model: ``tiny``, a fetched model's name, or a path. Raises ConfigError where it is not."""
    if name == "tiny":
        return Path(tasks.__file__).parent / "models" / "tiny"
    path = Path(name).expanduser()
    if path.is_absolute() or name.startswith("."):
        return _own_model(path)
    folder = model_home(name)
    if not (folder / MANIFEST).is_file():
        raise ConfigError(f"model {name!r} is not there", where="--model", do=f"Type: runner prepare --model {name}")
    return folder


def _own_model(path: Path) -> Path:
    if not (path / "config.json").is_file():
        raise ConfigError("no model there (no config.json)", where=f"--model {path}", do="Name the folder of a model")
    if not any(path.glob("*.safetensors")):
        raise ConfigError(
            "no weights there (no .safetensors)", where=f"--model {path}", do="Convert them to safetensors"
        )
    code = sorted(file.name for file in path.glob("*.py"))
    if code:
        do = "Name a model whose architecture transformers has, and leave its code out of the folder"
        raise ConfigError(f"comes with code of its own ({code[0]}), which is never run", where=f"--model {path}", do=do)
    return path.resolve()


def datasets_dir() -> Path:
    """Where fetched data sets lie: <task>/<set>/{validation,hidden}.jsonl and sources/<n>.jsonl."""
    return home() / "datasets"


def dataset_files(task: str, problem_set: str) -> dict[SplitName, Path]:
    """The fetched files of the two splits. Raises ConfigError where `runner prepare --task` has not run."""
    folder = _dataset(task, problem_set)
    return {"validation": folder / "validation.jsonl", "hidden": folder / "hidden.jsonl"}


def dataset_sources(task: str, problem_set: str) -> tuple[Path, ...]:
    """The fetched problems that an agent may train on. Raises ConfigError where nothing was fetched."""
    return tuple(sorted((_dataset(task, problem_set) / "sources").glob("*.jsonl")))


def _dataset(task: str, problem_set: str) -> Path:
    folder = datasets_dir() / task / problem_set
    if not (folder / MANIFEST).is_file():
        raise ConfigError(
            f"the problems of {problem_set!r} are not there",
            where=f"task {task}",
            do=f"Type: runner prepare --task {task}",
        )
    return folder
