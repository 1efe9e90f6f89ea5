"""The verdict table of the scorer, and that it has a verdict for any text, soon."""

from __future__ import annotations

import time
from typing import NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.aime.equivalence import Equivalence
from tasks.aime.score import extract, judge, last_boxed

RIGHT = [
    ("033", r"\boxed{33}", "match"),
    ("33", r"\boxed{033}", "match"),
    ("33", r"\boxed{33.0}", "match"),
    ("204", r"\boxed{204 \text{ minutes}}", "match"),
    ("25", r"\boxed{m+n=25}", "match"),
    ("540", r"\boxed{2^2\cdot 3^3\cdot 5}", "match_expr"),
    ("73", r"\boxed{12} … \boxed{73}", "match"),
    ("73", r"\boxed {73}", "match"),
    ("73", r"\fbox{73}", "match"),
    ("7", r"\boxed{7.}", "match"),
    ("73", r"\boxed{73 \pmod{1000}}", "match"),
    ("116", r"\boxed{１１６}", "match"),
    ("0", r"\boxed{000}", "match"),
    ("116", r"\boxed{\boxed{116}}", "match"),
    ("23", r"\boxed{23} wait, 24", "match"),
    ("336", r"\boxed{336^\circ}", "match"),
    ("336", r"\boxed{336^{\circ}}", "match"),
    ("73", r"\boxed{\text{73}}", "match"),
    ("73", r"\boxed{\mathbf{073}}", "match"),
    ("73", r"\boxed{\$73}", "match"),
    ("73", r"\boxed{$73$}", "match"),
    ("73", r"\boxed{(73)}", "match"),
    ("73", r"\boxed{73\ \mathrm{cm}^2}", "match"),
    ("73", r"\\boxed{73}", "match"),
    ("73", "<think>\\boxed{12}</think> so \\boxed{73}", "match"),
    ("150", r"\boxed{1.5 \times 10^2}", "match_expr"),
    ("73", r"\boxed{\frac{146}{2}}", "match_expr"),
    ("6", r"\boxed{\sum_{i=1}^{3} i}", "match_expr"),
]
WRONG = [
    ("73", r"<think>\boxed{73}</think> it is 74", "no_box"),
    ("73", r"\boxed{73\%}", "not_integer"),
    ("116", r"\boxed{1 1 6}", "not_integer"),
    ("73", r"\boxed{73", "no_box"),
    ("73", r"\boxed{}73", "not_integer"),
    ("7", r"\boxed{-7}", "mismatch"),
    ("10", r"\boxed{10, 20}", "not_integer"),
    ("20", r"\boxed{10, 20}", "not_integer"),
    ("1020", r"\boxed{10,20}", "not_integer"),
    ("1", r"\boxed{0.9999}", "not_integer"),
    ("1", r"\boxed{0.99999999+0}", "mismatch"),
    ("73", "73", "no_box"),
    ("73", "", "no_box"),
    ("73", r"<think>\boxed{73}", "unterminated_think"),
    ("73", r"<think>a</think><think>\boxed{73}", "unterminated_think"),
    ("73", r"\boxed{74}", "mismatch"),
    ("72", r"\boxed{7²}", "not_integer"),
    ("73", r"\boxed{\text{12 or } 73}", "not_integer"),
    ("73", r"\boxed{73 \text{ or } 74}", "not_integer"),
    ("73", r"\boxed{\pm 73}", "not_integer"),
    ("73", r"\boxed{73 \text{ percent}}", "not_integer"),
    ("22", r"\boxed{m=3, n=22}", "not_integer"),
    ("73", r"\boxed{x > 73}", "not_integer"),
    ("73", r"\boxed{\{73\}}", "not_integer"),
    ("5", r"\boxed{[1, 100]}", "not_integer"),
    ("73", r"\boxed{73}{\boxed{74}}", "mismatch"),
    ("1", r"\boxed{2^{2^{2^2}}}", "mismatch"),
]


@pytest.mark.parametrize(("gold", "text", "reason"), RIGHT)
def test_right_answers(comparer: Equivalence, gold: str, text: str, reason: str) -> None:
    verdict = judge(int(gold), text, comparer)
    assert (verdict.reward, verdict.reason) == (1.0, reason)


@pytest.mark.parametrize(("gold", "text", "reason"), WRONG)
def test_wrong_answers(comparer: Equivalence, gold: str, text: str, reason: str) -> None:
    verdict = judge(int(gold), text, comparer)
    assert (verdict.reward, verdict.reason) == (0.0, reason)


def test_an_expression_that_explodes_is_a_timeout() -> None:
    equivalence = Equivalence(cpu_s=1.0, wall_s=60.0)
    try:
        verdict = judge(1, r"\boxed{9^{9^{9^9}}}", equivalence)
        assert (verdict.reward, verdict.reason) == (0.0, "timeout")
    finally:
        equivalence.close()


class Untouchable:
    """A comparer that must not be asked."""

    def compare(self, text: str, gold: int) -> NoReturn:
        raise AssertionError(f"asked about {text!r}")


def test_integers_never_reach_the_expression_parser() -> None:
    for gold, text, reason in RIGHT:
        if reason == "match":
            assert judge(int(gold), text, Untouchable()).reward == 1.0


MIB = 1 << 20


@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{" * (MIB // 7),
        "\\boxed{" * (MIB // 8) + "}" * (MIB // 8),
        "\\" * MIB,
        "\\boxed" + " " * MIB,
        "\\boxed " * (MIB // 7),
        "\\boxed{" + "{" * MIB,
        "\\boxed{" + "=" * MIB + "}",
        "\\boxed{" + "\\text{" * 160 + "}" * 160 + "}",
        "\\boxed{" + "9" * MIB + "}",
        "<think>" * (MIB // 7),
        "</think>" * (MIB // 8),
        "\x00" * MIB,
    ],
    ids=lambda text: f"{text[:14]!a}",
)
def test_a_mebibyte_of_anything_is_read_within_a_second(text: str) -> None:
    started = time.process_time()
    found = extract(text)
    assert time.process_time() - started < 1.0
    assert found.integer is None


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["\\boxed{", "\\fbox {", "{", "}", "\\", "73", "=", ",", "\\text{", "<think>", "</think>", "%", "."]
        )
        | st.text(max_size=4),
        max_size=40,
    )
)
def test_any_text_is_read(pieces: list[str]) -> None:
    found = extract("".join(pieces))
    assert (found.integer is not None) + bool(found.expression) + bool(found.reason) == 1


@settings(deadline=None)
@given(st.integers(0, 999), st.text(max_size=200))
def test_the_last_box_is_what_counts(gold: int, before: str) -> None:
    text = f"{before}</think> \\boxed{{{gold}}}"
    assert judge(gold, text, Untouchable()).reason == "match"
    assert judge(gold + 1, text, Untouchable()).reason == "mismatch"


def test_the_box_that_opens_last_and_is_closed() -> None:
    assert last_boxed(r"\boxed{1} \boxed{2 \boxed{3} 4} \boxed{5") == "3"
    assert last_boxed(r"} \boxed{\{1\}}") == r"\{1\}"
    assert last_boxed(r"\boxedness{1}") is None
