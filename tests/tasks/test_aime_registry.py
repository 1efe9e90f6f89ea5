"""The task's name, its specification and its split files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tasks import registry
from tasks.spec import TaskError


def test_the_specification() -> None:
    spec = registry.load_spec("aime")
    aime, small = spec.sets["aime"], spec.sets["mini"]
    assert registry.names() == ("aime",)
    assert set(spec.budgets) == {"laptop", "workstation"}
    assert (aime.samples, aime.comparable, small.samples, small.comparable) == (4, True, 1, False)
    decoding = aime.decoding
    assert (decoding.temperature, decoding.top_p, decoding.top_k) == (1.0, 0.95, 20)
    assert (decoding.presence_penalty, decoding.max_tokens) == (1.5, 32_768)
    assert small.decoding.temperature == 0.0
    assert aime.laptop is not None
    assert aime.laptop.decoding["max_tokens"] == 512
    assert aime.validation is not None and aime.hidden is not None
    assert {aime.validation.repo, aime.hidden.repo, aime.sources[0].repo} == {
        "MathArena/aime_2025",
        "MathArena/aime_2026",
        "HuggingFaceH4/aime_2024",
    }


def test_overrides_name_real_fields() -> None:
    for chosen in registry.load_spec("aime").sets.values():
        if chosen.laptop is not None:
            decoding = type(chosen.decoding).model_validate(chosen.decoding.model_dump() | chosen.laptop.decoding)
            limits = type(chosen.limits).model_validate(chosen.limits.model_dump() | chosen.laptop.limits)
            assert all(getattr(decoding, key) == value for key, value in chosen.laptop.decoding.items())
            assert all(getattr(limits, key) == value for key, value in chosen.laptop.limits.items())


def test_split_files() -> None:
    files = registry.split_files("aime", "mini")
    assert files is not None
    assert {split: path.name for split, path in files.items()} == {
        "validation": "validation.toml",
        "hidden": "hidden.toml",
    }
    assert all(path.is_file() for path in files.values())
    assert registry.split_files("aime", "aime") is None


def test_unknown_names_get_advice() -> None:
    for ask in (registry.task, registry.load_spec):
        with pytest.raises(TaskError, match="Did you mean 'aime'"):
            ask("aimee")
    with pytest.raises(TaskError, match="Known: aime"):
        registry.task("\x1b[2J")
    with pytest.raises(TaskError, match="Did you mean 'mini'"):
        registry.split_files("aime", "minni")


def test_a_set_without_its_file_says_so() -> None:
    task = registry.task("aime")
    with pytest.raises(TaskError, match="no file for the hidden split"):
        task.load("aime", "hidden", {})
    with pytest.raises(TaskError, match="unknown problem set"):
        task.load("other", "hidden", {})


def test_a_published_file_is_a_split(published: dict[int, Path]) -> None:
    task = registry.task("aime")
    problems = task.load("aime", "hidden", {"hidden": published[2026]})
    assert [problem.id for problem in problems[:2]] == ["h001", "h002"]
    assert len(problems) == 30


def test_the_names_are_known_without_loading_a_task() -> None:
    code = (
        "import sys; from tasks import registry; registry.names(); registry.load_spec('aime');"
        "assert not any(name.startswith(('tasks.aime', 'math_verify', 'sympy')) for name in sys.modules)"
    )
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)


def test_the_generator_needs_only_the_standard_library() -> None:
    code = (
        "import sys; from tasks.aime import mini, pool; pool.graded_questions();"
        "assert not {'pydantic', 'sympy', 'tasks.spec'} & set(sys.modules)"
    )
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-S", "-c", code], check=True, cwd=root)
