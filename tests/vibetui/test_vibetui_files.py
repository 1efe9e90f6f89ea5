"""The run folder is read as hostile: links, pipes, bytes of any kind, logs that grow and are replaced."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.record.rundir import RunDir
from runner.record.state import CandidateState
from vibetui import detail, versus
from vibetui.detail import data_lines, patch_lines, step_lines
from vibetui.files import LogFile, names_inside, open_inside, read_inside
from vibetui.text import plain, width, wrapped
from vibetui.theme import UNICODE
from vibetui.widgets.plot import Picture, Point, draw, ticks

ANY = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


def test_what_leads_out_of_the_folder_is_not_read(tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    (run / "logs").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (run / "logs" / "agent.log").symlink_to(outside / "secret")
    (run / "evals").symlink_to(outside)
    os.mkfifo(run / "pipe")
    for name in (
        "logs/agent.log",
        "evals/secret",
        "pipe",
        "../outside/secret",
        "logs",
        "/etc/passwd",
        "a\0b",
        "",
        "none",
    ):
        assert read_inside(run, name, 100) is None, name
        assert open_inside(run, name) is None
    assert names_inside(run, "evals") == []
    (run / "logs" / "grader.log").write_text("0123456789")
    assert read_inside(run, "logs/grader.log", 4) == b"0123"
    assert read_inside(run, "logs/grader.log", 4, tail=True) == b"6789"
    assert names_inside(run, "logs") == ["agent.log", "grader.log"]


def test_a_log_is_read_as_it_grows_and_again_when_it_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    log = LogFile(tmp_path, "x.log")
    assert not log.grow() and len(log) == 0 and log[0] == ""
    path.write_bytes(b"one\ntw")
    assert log.grow() and [log[i] for i in range(len(log))] == ["one", "tw"]
    with path.open("ab") as file:
        file.write(b"o\n\xff\n")
    assert log.grow() and [log[i] for i in range(len(log))] == ["one", "two", "\ufffd"]
    path.write_bytes(b"new\n")
    log.grow()
    assert [log[i] for i in range(len(log))] == ["new"]
    log.close()


def test_the_settings_of_a_recipe_are_told_as_old_and_new(recorded: RunDir) -> None:
    patch = recorded.path / "candidates" / "c06" / "diffs" / "trainer.patch"
    said = [plain(line) for line in patch_lines(patch.read_text())]
    assert "learning_rate           2e-4  →  0.001" in said and "epochs                  1.0  →  3" in said
    assert "   11 +learning_rate = 0.001" in said and "      -learning_rate = 2e-4" in said


def test_a_comparison_of_two_candidates_is_that_of_their_snapshots(recorded: RunDir) -> None:
    from runner.record.journal import load

    state = load(recorded.journal_file)
    one, other = state.candidates["c06"], state.candidates["c05"]
    assert [plain(line) for line in versus.component_lines(recorded, one, other, "data")] == ["both have the same data"]
    assert any("+" in plain(line) for line in versus.component_lines(recorded, one, other, "harness"))
    said = "\n".join(plain(line) for line in versus.verdict_lines(recorded, one, other))
    assert "more than chance" in said and "gained" in said


def test_ids_from_a_journal_that_are_paths_read_nothing(recorded: RunDir) -> None:
    bad = CandidateState("../c06", parent="c00", model="../m01", components=("data", "harness"), eval="../e001")
    assert detail.problems_of(recorded, bad) == [] and detail.trajectory_of(recorded, bad, "v001") == []
    assert "is not in this folder" in plain(detail.patch_of(recorded, bad, "harness")[0])
    assert detail.training_of(recorded, "../m01") == []


@given(st.dictionaries(st.sampled_from(["rows_before", "added", "lengths", "samples", "changed"]), JSON))
@ANY
def test_any_summary_of_data_can_be_shown(told: dict[str, object]) -> None:
    for line in data_lines(told):
        assert not set(plain(line)) & set("\x1b\x07\x9b")


@given(st.text(max_size=400))
@ANY
def test_any_patch_and_any_text_can_be_shown(text: str) -> None:
    for line in patch_lines(text):
        for part in wrapped(line, 20):
            assert width(part) <= 20 or width(line) <= 20


@given(st.binary(max_size=300))
@ANY
def test_any_trajectory_can_be_shown(raw: bytes) -> None:
    from runner.record.evaluation import steps_of

    for step in steps_of(raw)[0]:
        step_lines(step)


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.none() | st.floats(0, 100)), max_size=20),
    st.integers(0, 130),
    st.integers(0, 40),
    st.booleans(),
)
@ANY
def test_a_chart_fills_exactly_its_cells(
    found: list[tuple[float, float | None]], cells: int, rows: int, coarse: bool
) -> None:
    points = tuple(Point(x, y, (y or 0) - 5, (y or 0) + 5) for x, y in found)
    steps = tuple((x, y) for x, y in sorted(found, key=lambda item: item[0]) if y is not None)
    far = max((x for x, _ in found), default=1.0)
    picture = Picture(
        points=points, steps=steps, base=30.0, end=far / 2, x_max=far, y_high=100.0, y_text=lambda y: f"{y:.0f}"
    )
    lines = draw(picture, cells, rows, UNICODE, coarse=coarse)
    assert not lines or (len(lines) == rows and all(width(line) <= cells for line in lines))


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 0), (-3, 1e12), (0.001, 0.002), (0, 7200)])
def test_ticks_are_few_and_in_order(low: float, high: float) -> None:
    found = ticks(low, high, 5)
    assert found == sorted(found) and len(found) <= 12


@pytest.mark.parametrize("high", [1, 2, 7, 20, 45, 1e6])
def test_ticks_of_what_is_counted_are_whole(high: float) -> None:
    found = ticks(0, high, 8, whole=True)
    assert len(found) > 1 and all(value == round(value) for value in found)
