"""The mini problems: procedural word problems with an integer answer in 0…999, in five levels.

Problem ``i`` of a seed is decided by (seed, i) and by which texts were excluded; every kind comes equally often. Only
the standard library is imported, and of ``random`` only what Python promises to keep (seeding by text, ``random()``).
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tasks.aime.text import normalise

T = TypeVar("T")

LARGEST_ANSWER = 999
_ATTEMPTS = 2000

# fmt: off
NAMES = (
    "Ana", "Ben", "Carl", "Dina", "Emil", "Fay", "Gus", "Hana", "Ivo", "Jill",
    "Kofi", "Lena", "Max", "Nora", "Omar", "Pia", "Quin", "Rosa", "Sam", "Tara",
)
THINGS = ("pens", "books", "coins", "apples", "stamps", "cards", "shells", "marbles", "tickets", "stickers")
# fmt: on


@dataclass(frozen=True, slots=True)
class Step:
    """One calculation. ``form`` is ``expr`` with earlier results as ``{0}``, ``{1}``, …"""

    label: str
    form: str
    expr: str
    value: int


@dataclass(frozen=True, slots=True)
class MiniProblem:
    """A question, the calculations that answer it, and the answer (the last step's value, 0…999)."""

    kind: str
    level: int
    question: str
    steps: tuple[Step, ...]
    answer: int


class Draw:
    """Uniform choices from one text seed."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)  # noqa: S311  (problems must be repeatable, not secret)

    def between(self, low: int, high: int) -> int:
        """An integer in low…high, both included."""
        return low + int(self._random.random() * (high - low + 1))

    def pick(self, items: Sequence[T]) -> T:
        return items[self.between(0, len(items) - 1)]

    def two(self, items: Sequence[T]) -> tuple[T, T]:
        """Two different items, in random order."""
        first = self.between(0, len(items) - 1)
        second = (first + self.between(1, len(items) - 1)) % len(items)
        return items[first], items[second]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Fisher–Yates on a copy."""
        out = list(items)
        for last in range(len(out) - 1, 0, -1):
            other = self.between(0, last)
            out[last], out[other] = out[other], out[last]
        return out


Draft = tuple[str, list[tuple[str, str]]]  # the question, and (label, form) of each step


def _sum(d: Draw, low: tuple[int, int], high: tuple[int, int]) -> Draft:
    n, t, a, b = d.pick(NAMES), d.pick(THINGS), d.between(*low), d.between(*high)
    return f"{n} has {a} {t} and buys {b} more. How many {t} does {n} have now?", [(f"{n} has", f"{a}+{b}")]


def _difference(d: Draw, a: int, b: int) -> Draft:
    n, t = d.pick(NAMES), d.pick(THINGS)
    return f"{n} has {a} {t} and gives {b} of them away. How many {t} are left?", [("Left:", f"{a}-{b}")]


def _product(d: Draw, a: int, b: int) -> Draft:
    n, t = d.pick(NAMES), d.pick(THINGS)
    question = f"{n} has {a} boxes with {b} {t} in each box. How many {t} does {n} have in total?"
    return question, [("Total:", f"{a}*{b}")]


def _small_sum(d: Draw) -> Draft:
    return _sum(d, (2, 19), (2, 12))


def _small_difference(d: Draw) -> Draft:
    return _difference(d, d.between(10, 29), d.between(2, 9))


def _small_product(d: Draw) -> Draft:
    return _product(d, d.between(2, 10), d.between(2, 12))


def _large_sum(d: Draw) -> Draft:
    return _sum(d, (21, 480), (13, 480))


def _large_difference(d: Draw) -> Draft:
    a = d.between(45, 480)
    return _difference(d, a, d.between(11, a - 5))


def _large_product(d: Draw) -> Draft:
    return _product(d, d.between(3, 9), d.between(13, 98))


def _boxes(d: Draw) -> Draft:
    n, t, a, b = d.pick(NAMES), d.pick(THINGS), d.between(12, 29), d.between(11, 29)
    c = d.between(20, a * b - 10)
    question = f"{n} buys {a} boxes of {t}. Each box holds {b} {t}. {n} then sells {c} {t}. How many {t} remain?"
    return question, [("Bought:", f"{a}*{b}"), ("Remaining:", f"{{0}}-{c}")]


def _together(d: Draw) -> Draft:
    (n, m), t, a, b = d.two(NAMES), d.pick(THINGS), d.between(60, 320), d.between(25, 140)
    question = f"{n} has {a} {t}. {m} has {b} more {t} than {n}. How many {t} do they have together?"
    return question, [(f"{m}:", f"{a}+{b}"), ("Together:", f"{a}+{{0}}")]


def _left_over(d: Draw) -> Draft:
    t, k = d.pick(THINGS), d.between(6, 19)
    a = k * d.between(11, 45) + d.between(1, k - 1)
    question = (
        f"{a} {t} are packed into bags of {k}. How many {t} are left over after filling as many bags as possible?"
    )
    return question, [("Full bags:", f"{a}//{k}"), ("Packed:", f"{{0}}*{k}"), ("Left over:", f"{a}-{{1}}")]


def _linear(d: Draw) -> Draft:
    a, x, b = d.between(4, 19), d.between(11, 59), d.between(10, 99)
    c = a * x + b
    return f"Find the integer x such that {a}x + {b} = {c}.", [(f"{a}x =", f"{c}-{b}"), ("x =", f"{{0}}//{a}")]


def _sequence(d: Draw) -> Draft:
    a, step, n = d.between(5, 60), d.between(6, 19), d.between(12, 40)
    question = f"An arithmetic sequence starts with {a} and has common difference {step}. What is term number {n}?"
    return question, [("Steps:", f"{n}-1"), ("Increase:", f"{{0}}*{step}"), ("Term:", f"{a}+{{1}}")]


def _shop(d: Draw) -> Draft:
    n, a, b, c, e = d.pick(NAMES), d.between(3, 12), d.between(12, 35), d.between(3, 12), d.between(12, 35)
    question = (
        f"{n} buys {a} chairs for {b} dollars each and {c} lamps for {e} dollars each. How many dollars does {n} spend?"
    )
    return question, [("Chairs:", f"{a}*{b}"), ("Lamps:", f"{c}*{e}"), ("Total:", "{0}+{1}")]


def _garden(d: Draw) -> Draft:
    w, h, k, m = d.between(12, 36), d.between(12, 36), d.between(3, 9), d.between(3, 9)
    question = (
        f"A rectangular garden is {w} metres by {h} metres. A pond of {k} metres by {m} metres lies inside. "
        f"How many square metres of garden are outside the pond?"
    )
    return question, [("Garden:", f"{w}*{h}"), ("Pond:", f"{k}*{m}"), ("Outside:", "{0}-{1}")]


def _share(d: Draw) -> Draft:
    (n, m), t, a, b = d.two(NAMES), d.pick(THINGS), d.between(2, 9), d.between(2, 9)
    part = d.between(11, 60)
    gift = d.between(5, min(60, part * a))
    question = (
        f"{n} and {m} share {part * (a + b)} {t}: for every {a} that {n} gets, {m} gets {b}. "
        f"Then {n} gives {gift} {t} to {m}. How many {t} does {m} have now?"
    )
    steps = [
        ("Parts:", f"{a}+{b}"),
        ("One part:", f"{part * (a + b)}//{{0}}"),
        (f"{m} gets", f"{{1}}*{b}"),
        (f"{m} has", f"{{2}}+{gift}"),
    ]
    return question, steps


def _discount(d: Draw) -> Draft:
    n, count, tens, percent = d.pick(NAMES), d.between(3, 9), d.between(2, 12), d.between(1, 9) * 5
    price = tens * 10
    paid = count * price - count * price * percent // 100
    note = paid + d.between(5, 150)
    question = (
        f"{n} buys {count} coats for {price} dollars each and gets {percent} percent off the whole price. "
        f"{n} pays with {note} dollars. How many dollars does {n} get back?"
    )
    steps = [
        ("Full price:", f"{count}*{price}"),
        ("Off:", f"{{0}}*{percent}//100"),
        ("To pay:", "{0}-{1}"),
        ("Back:", f"{note}-{{2}}"),
    ]
    return question, steps


def _average(d: Draw) -> Draft:
    n, games, before = d.pick(NAMES), d.between(3, 15), d.between(21, 70)
    after = before + d.between(1, 9)
    question = (
        f"After {games} games the average score of {n} is {before}. After one more game the average is {after}. "
        f"What was the score of {n} in that game?"
    )
    steps = [
        ("Before:", f"{games}*{before}"),
        ("Games:", f"{games}+1"),
        ("After:", f"{{1}}*{after}"),
        ("Score:", "{2}-{0}"),
    ]
    return question, steps


def _remainder(d: Draw) -> Draft:
    a, b, c, m = d.between(13, 49), d.between(13, 49), d.between(11, 99), d.between(13, 47)
    steps = [
        ("Product:", f"{a}*{b}"),
        ("Sum:", f"{{0}}+{c}"),
        ("Times:", f"{{1}}//{m}"),
        ("Multiple:", f"{{2}}*{m}"),
        ("Remainder:", "{1}-{3}"),
    ]
    return f"What is the remainder when {a} * {b} + {c} is divided by {m}?", steps


def _savings(d: Draw) -> Draft:
    n, first, more, weeks = d.pick(NAMES), d.between(4, 60), d.between(2, 9), d.between(5, 16)
    question = (
        f"{n} saves {first} dollars in the first week, and in every week after that {more} dollars more than in the "
        f"week before. How many dollars does {n} save in {weeks} weeks?"
    )
    steps = [
        ("Steps:", f"{weeks}-1"),
        ("Increase:", f"{{0}}*{more}"),
        ("Last week:", f"{first}+{{1}}"),
        ("First and last:", f"{first}+{{2}}"),
        ("Total:", f"{{3}}*{weeks}//2"),
    ]
    return question, steps


_KINDS: dict[str, tuple[int, Callable[[Draw], Draft]]] = {
    "small_sum": (0, _small_sum),
    "small_difference": (0, _small_difference),
    "small_product": (0, _small_product),
    "large_sum": (1, _large_sum),
    "large_difference": (1, _large_difference),
    "large_product": (1, _large_product),
    "boxes": (2, _boxes),
    "together": (2, _together),
    "left_over": (2, _left_over),
    "linear": (2, _linear),
    "sequence": (3, _sequence),
    "shop": (3, _shop),
    "garden": (3, _garden),
    "share": (4, _share),
    "discount": (4, _discount),
    "average": (4, _average),
    "remainder": (4, _remainder),
    "savings": (4, _savings),
}


def kinds() -> tuple[str, ...]:
    """The names of all kinds, easiest first; problem ``i`` of any seed is of kind ``kinds()[i % len(kinds())]``."""
    return tuple(_KINDS)


def generate(seed: str, count: int, exclude: Container[str] = frozenset()) -> list[MiniProblem]:
    """``count`` problems of ``seed``, none with a normalised question in ``exclude`` or equal to another's.

    Raises ValueError where a kind has no unused question left for this seed.
    """
    names, seen, out = kinds(), set[str](), list[MiniProblem]()
    for index in range(count):
        out.append(_one(seed, index, names[index % len(names)], exclude, seen))
        seen.add(normalise(out[-1].question))
    return out


def _one(seed: str, index: int, kind: str, exclude: Container[str], seen: Container[str]) -> MiniProblem:
    for attempt in range(_ATTEMPTS):
        problem = _draft(Draw(f"{seed}/{index}/{attempt}"), kind)
        question = normalise(problem.question)
        if 0 <= problem.answer <= LARGEST_ANSWER and question not in exclude and question not in seen:
            return problem
    raise ValueError(f"no unused question of kind {kind} found for seed {seed!r}, problem {index}")


def _draft(draw: Draw, kind: str) -> MiniProblem:
    level, make = _KINDS[kind]
    question, drafted = make(draw)
    steps = calculate(drafted)
    return MiniProblem(kind, level, question, steps, steps[-1].value)


def calculate(drafted: Sequence[tuple[str, str]], *, wrong_at: int = -1, off: int = 0) -> tuple[Step, ...]:
    """The steps with their values; step ``wrong_at`` is off by ``off``, and what follows builds on it."""
    steps: list[Step] = []
    for index, (label, form) in enumerate(drafted):
        expr = form.format(*(step.value for step in steps))
        value = evaluate(expr) + (off if index == wrong_at else 0)
        steps.append(Step(label, form, expr, value))
    return tuple(steps)


def evaluate(expr: str) -> int:
    """The value of an expression of integers, ``+ - * //`` and parentheses. ValueError for anything else."""
    try:
        return _value(ast.parse(expr, mode="eval").body)
    except (SyntaxError, ZeroDivisionError, RecursionError, MemoryError) as error:
        raise ValueError(f"not an integer expression: {expr[:80]!r}") from error


def _value(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _value(left) + _value(right)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _value(left) - _value(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _value(left) * _value(right)
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            return _value(left) // _value(right)
    raise ValueError(f"not an integer expression: {ast.unparse(node)[:80]!r}")


def boxed(value: int) -> str:
    """The last line of an answer."""
    return f"\\boxed{{{value}}}"


def solution_calculator(problem: MiniProblem) -> str:
    """GSM8K's calculator notation: ``Bought: <<25*20>>=500`` a line, then the box."""
    lines = [f"{step.label} <<{step.expr}>>={step.value}" for step in problem.steps]
    return "\n".join([*lines, boxed(problem.answer)])


def plain_lines(steps: Sequence[Step]) -> list[str]:
    """``Bought: 25*20 = 500``, a line a step."""
    return [f"{step.label} {step.expr} = {step.value}" for step in steps]


def solution_plain(problem: MiniProblem) -> str:
    """The steps as plain text, then the box."""
    return "\n".join([*plain_lines(problem.steps), boxed(problem.answer)])
