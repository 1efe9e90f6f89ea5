"""Arithmetic in text: find it, check it, and rewrite it into the calculator notation ``<<25*20>>=500``."""

from __future__ import annotations

import re

PLAIN = re.compile(r"(?<![\w<])((?:\d+|\()[0-9+\-*/() ]*[0-9)]) ?= ?(-?\d+)(?![\d>])")
CALL = re.compile(r"<<([0-9+\-*/() ]{1,64})>>=(-?\d+)")
BOX = re.compile(r"\\boxed\{(-?\d+)\}")
_TOKEN = re.compile(r"\d+|//|[+\-*/()]")


def evaluate(expression: str) -> int | None:
    """The integer value of + - * / // and parentheses, or None: malformed, a division by zero or not whole."""
    tokens = _TOKEN.findall(expression)
    if "".join(tokens) != expression.replace(" ", "") or len(tokens) > 64:
        return None
    try:
        value, rest = _sum(tokens)
    except (ValueError, IndexError, ZeroDivisionError, RecursionError):
        return None
    return value if not rest else None


def _sum(tokens: list[str]) -> tuple[int, list[str]]:
    value, tokens = _product(tokens)
    while tokens and tokens[0] in "+-":
        other, rest = _product(tokens[1:])
        value = value + other if tokens[0] == "+" else value - other
        tokens = rest
    return value, tokens


def _product(tokens: list[str]) -> tuple[int, list[str]]:
    value, tokens = _atom(tokens)
    while tokens and tokens[0] in ("*", "/", "//"):
        other, rest = _atom(tokens[1:])
        if tokens[0] == "/" and value % other:
            raise ValueError("not whole")
        value = value * other if tokens[0] == "*" else value // other
        tokens = rest
    return value, tokens


def _atom(tokens: list[str]) -> tuple[int, list[str]]:
    if tokens[0] == "(":
        value, rest = _sum(tokens[1:])
        if rest[0] != ")":
            raise ValueError("unbalanced")
        return value, rest[1:]
    return int(tokens[0]), tokens[1:]


def consistent(text: str) -> bool:
    """True when the text ends in a box, states at least one equation, and every one of them holds."""
    equations = PLAIN.findall(text) + CALL.findall(text)
    boxes = BOX.findall(text)
    if len(boxes) != 1 or not equations or not text.rstrip().endswith("}"):
        return False
    return all(evaluate(left) == int(right) for left, right in equations) and equations[-1][1] == boxes[0]


def to_calculator(text: str) -> str:
    """``25*20 = 500`` becomes ``<<25*20>>=500``, everywhere in the text."""
    return PLAIN.sub(lambda match: f"<<{match[1].replace(' ', '')}>>={match[2]}", text)


def wrong_calls(text: str) -> tuple[int, int]:
    """(calls with a wrong value, all calls) of the calculator notation in a model's reply."""
    calls = CALL.findall(text)
    return sum(evaluate(left) != int(right) for left, right in calls), len(calls)
