"""Rows of an evaluation are read as hostile bytes, and two evaluations are compared problem by problem."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runner.record.evaluation import compared, means, rows_of, steps_of
from runner.record.events import ProblemRow


def row(problem: str, reward: float, sample: int = 0) -> ProblemRow:
    return ProblemRow(
        problem=problem, sample=sample, reward=reward, reason="match", calls=1, parse_errors=0, tokens_in=1,
        tokens_out=1, seconds=1.0,
    )  # fmt: skip


def test_lines_that_are_no_rows_are_counted() -> None:
    good = row("v1", 1.0).model_dump_json().encode()
    rows, bad = rows_of(good + b"\n\xff\xfe\n[]\n" + b'{"problem": 1}\n\n' + good[:20])
    assert ([one.problem for one in rows], bad) == (["v1"], 4)


@given(st.binary(max_size=300))
def test_any_bytes_are_read(raw: bytes) -> None:
    lines = sum(bool(line.strip()) for line in raw.split(b"\n"))
    for found, bad in (rows_of(raw), steps_of(raw)):
        assert len(found) + bad <= lines


def test_gained_and_lost_are_told_apart_with_mcnemars_p() -> None:
    names = [f"v{n}" for n in range(8)]
    before = [row(name, 0.0) for name in names]
    after = [row(name, float(n < 6)) for n, name in enumerate(names)]
    found = compared(before, after, 1)
    assert found is not None
    assert (len(found.gained), found.lost, found.same) == (6, (), 2)
    assert found.delta.value == 0.75 and found.p == 2 / 64


def test_several_samples_are_compared_by_their_means() -> None:
    before = [row("a", 1.0, 0), row("a", 0.0, 1), row("b", 0.0, 0), row("b", 0.0, 1)]
    after = [row("a", 0.0, 0), row("a", 0.0, 1), row("b", 0.0, 0), row("b", 0.0, 1)]
    found = compared(before, after, 2)
    assert found is not None and found.lost == ("a",) and means(before, 2) == {"a": 0.5, "b": 0.0}


def test_other_problems_cannot_be_paired() -> None:
    assert compared([row("a", 1.0)], [row("b", 1.0)], 1) is None
    assert compared([], [], 1) is None
