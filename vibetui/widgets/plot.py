"""Axes and curves on a canvas: pure functions from numbers to lines. What is drawn is decided in chart.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from vibetui.text import Line
from vibetui.theme import Role, Symbols
from vibetui.widgets.canvas import Canvas

Kind = Literal["ok", "initial", "failed"]
_LABEL = 5  # cells of the labels at the left
_NICE = (1.0, 2.0, 2.5, 5.0, 10.0)
_CLOCK = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)


@dataclass(frozen=True, slots=True)
class Point:
    """One validation: its place, its interval, what became of it; ``star``: it is the one that counts most."""

    x: float
    y: float | None
    low: float = 0.0
    high: float = 0.0
    kind: Kind = "ok"
    star: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything in one chart. ``steps`` is a staircase, ``curve`` a polygon, ``base`` and ``end`` are lines."""

    points: tuple[Point, ...] = ()
    steps: tuple[tuple[float, float], ...] = ()
    curve: tuple[tuple[float, float], ...] = ()
    base: float | None = None
    end: float | None = None
    x_max: float = 1.0
    y_low: float = 0.0
    y_high: float = 1.0
    clock: bool = False
    whole: bool = False  # x counts something: its labels are whole numbers
    x_text: Callable[[float], str] = str
    y_text: Callable[[float], str] = str


_LEAST_SPAN = 1e-290  # below, a part of it is no number any more


def nice_step(span: float, most: int, *, clock: bool = False) -> float:
    """A round step that cuts ``span`` into at most ``most`` parts; of time where ``clock``."""
    if not (span > _LEAST_SPAN and math.isfinite(span)):
        return 1.0
    raw = span / max(1, most)
    if clock:
        for step in _CLOCK:
            if step >= raw:
                return float(step)
    size = 10.0 ** math.floor(math.log10(raw))
    return next((nice * size for nice in _NICE if nice * size >= raw * 0.999), 10 * size)


def ticks(low: float, high: float, most: int, *, clock: bool = False, whole: bool = False) -> list[float]:
    """Round values from ``low`` to ``high``; whole numbers where ``whole``."""
    step = nice_step(high - low, most, clock=clock)
    if whole and step % 1:
        step = 1.0 if step < 1 else 5.0  # 2.5 is the only other round step that is no whole number
    first = math.ceil(low / step - 1e-9)
    count = min(200, math.floor(high / step + 1e-9) - first + 1)
    return [(first + i) * step for i in range(max(0, count))]


class _Frame:
    """Where a value is on the canvas, in dots."""

    def __init__(self, picture: Picture, canvas: Canvas) -> None:
        self.picture, self.canvas = picture, canvas
        self.wide, self.tall = 2 * canvas.cells - 1, 4 * canvas.rows - 1

    def x(self, value: float) -> int:
        return _clamp(round(value / (self.picture.x_max or 1.0) * self.wide), 0, self.wide)

    def y(self, value: float) -> int:
        low, high = self.picture.y_low, self.picture.y_high
        share = (value - low) / (high - low) if high > low else 0.5
        return _clamp(round((1 - share) * self.tall), 0, self.tall)


def _clamp(value: int, low: int, high: int) -> int:
    return min(high, max(low, value))


def draw(picture: Picture, cells: int, rows: int, symbols: Symbols, *, coarse: bool = False) -> list[Line]:
    """The chart with its labels in ``cells`` × ``rows`` cells; empty where that is too small to be read."""
    if cells < _LABEL + 12 or rows < 4:
        return []
    canvas = Canvas(cells - _LABEL - 1, rows - 1, coarse=coarse)
    frame = _Frame(picture, canvas)
    if picture.base is not None:
        canvas.across(0, frame.wide, frame.y(picture.base), "muted", every=4)
    if picture.end is not None and picture.end <= picture.x_max:
        canvas.upright(frame.x(picture.end), 0, frame.tall, "warn", every=2)
    for point in picture.points:
        if point.y is not None:
            canvas.upright(frame.x(point.x), frame.y(point.high), frame.y(point.low), "muted")
    _staircase(picture, frame)
    _curve(picture, frame)
    for point in picture.points:
        _point(point, frame, symbols)
    return _labelled(picture, canvas, frame, symbols)


def _staircase(picture: Picture, frame: _Frame) -> None:
    for i, (x, y) in enumerate(picture.steps):
        last = i + 1 == len(picture.steps)
        until = picture.x_max if last else picture.steps[i + 1][0]
        frame.canvas.across(frame.x(x), frame.x(until), frame.y(y), "accent")
        if not last:
            frame.canvas.upright(frame.x(until), frame.y(y), frame.y(picture.steps[i + 1][1]), "accent")


def _curve(picture: Picture, frame: _Frame) -> None:
    dots = [(frame.x(x), frame.y(y)) for x, y in picture.curve]
    for (x0, y0), (x1, y1) in pairwise(dots):
        frame.canvas.slope(x0, y0, x1, y1, "accent")
    if len(dots) == 1:
        frame.canvas.dot(*dots[0], "accent")


def _point(point: Point, frame: _Frame, symbols: Symbols) -> None:
    column = frame.x(point.x) // 2
    if point.y is None or point.kind == "failed":
        frame.canvas.mark(column, frame.canvas.rows - 1, symbols.cross, "bad")
        return
    row = frame.y(point.y) // 4
    if point.star:
        frame.canvas.mark(column, row, symbols.star, "strong")
    elif point.kind == "initial":
        frame.canvas.mark(column, row, symbols.starting, "text")
    else:
        frame.canvas.mark(column, row, symbols.point, "accent")


def _labelled(picture: Picture, canvas: Canvas, frame: _Frame, symbols: Symbols) -> list[Line]:
    labels: dict[int, str] = {}
    for value in ticks(picture.y_low, picture.y_high, max(2, canvas.rows // 2)):
        labels.setdefault(frame.y(value) // 4, picture.y_text(value))
    lines: list[Line] = []
    for row in range(canvas.rows):
        label = labels.get(row, "")
        edge = symbols.axis if label else symbols.rule
        head: list[tuple[str, Role]] = [(label.rjust(_LABEL), "muted"), (edge, "rail")]
        lines.append((*head, *canvas.line(row)))
    return [*lines, _below(picture, canvas, frame)]


def _below(picture: Picture, canvas: Canvas, frame: _Frame) -> Line:
    """The labels of the x axis, where there is room for them."""
    signs = [" "] * (canvas.cells + 1)
    free = 0
    for value in ticks(0.0, picture.x_max, max(2, canvas.cells // 12), clock=picture.clock, whole=picture.whole):
        text = picture.x_text(value)
        at = frame.x(value) // 2 - (len(text) // 2 if value else 0)
        at = min(at, canvas.cells - len(text) + 1)
        if at >= free:
            signs[at : at + len(text)] = list(text)
            free = at + len(text) + 2
    return ((" " * (_LABEL + 1), "text"), ("".join(signs)[: canvas.cells], "muted"))


def decimated(curve: Sequence[tuple[float, float]], most: int) -> tuple[tuple[float, float], ...]:
    """At most about ``most`` of the points, the last with them; finite ones only."""
    kept = [(x, y) for x, y in curve if math.isfinite(x) and math.isfinite(y)]
    if len(kept) <= most:
        return tuple(kept)
    stride = -(-len(kept) // most)
    return (*kept[::stride], kept[-1])
