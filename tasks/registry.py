"""Which tasks there are. A dict of names; a task's code is imported when it is asked for."""

from __future__ import annotations

import difflib
import importlib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from pydantic import ValidationError

from tasks.spec import SplitName, Task, TaskError, TaskSpec

_TASKS: Mapping[str, tuple[str, str]] = {"aime": ("tasks.aime.task", "AimeTask")}
_FOLDER = Path(__file__).parent


def names() -> tuple[str, ...]:
    """The known tasks, sorted."""
    return tuple(sorted(_TASKS))


def load_spec(name: str) -> TaskSpec:
    """What the task's task.toml says. Raises TaskError for an unknown task or a wrong file."""
    path = _folder(name) / "task.toml"
    try:
        return TaskSpec.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise TaskError(f"cannot be read ({error.strerror})", where=str(path), do="Install the package again") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TaskError(f"is not valid TOML: {error}", where=str(path), do="Mend that line") from None
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise TaskError(f"{key}: {first['msg']}", where=str(path), do="Mend that key") from None


def task(name: str) -> Task:
    """The task itself: loads, shows and judges problems. Raises TaskError for an unknown name."""
    _folder(name)
    module, attribute = _TASKS[name]
    return cast(Task, getattr(importlib.import_module(module), attribute)())


def split_files(name: str, problem_set: str) -> dict[SplitName, Path] | None:
    """The split files that come with the task; None where a set's problems must be fetched first."""
    folder = _folder(name) / "seeds"
    if load_spec(name).sets[_known(problem_set, load_spec(name).sets, "problem set")].kind != "mini":
        return None
    return {"validation": folder / "validation.toml", "hidden": folder / "hidden.toml"}


def _folder(name: str) -> Path:
    return _FOLDER / _known(name, _TASKS, "task")


def _known(name: str, known: Mapping[str, object], what: str) -> str:
    if name in known:
        return name
    close = difflib.get_close_matches(name, known, n=1)
    advice = f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(sorted(known))}"
    raise TaskError(f"unknown {what} {name[:80]!r}", where="task", do=advice)
