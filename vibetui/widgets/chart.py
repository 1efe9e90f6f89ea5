"""The two charts: validation against time, evaluations or tokens, and the loss of a training."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from vibetui import record
from vibetui.text import Line, line
from vibetui.widgets.paint import Block, is_ascii, symbols_of
from vibetui.widgets.panel import legend, title
from vibetui.widgets.plot import Picture, Point, decimated, draw

if TYPE_CHECKING:
    from runner.record.files import TrainRow
    from runner.record.state import CandidateState, RunState
    from vibetui.follow import View

Axis = Literal["time", "evals", "tokens"]
Zoom = Literal["fit", "full", "top"]
AXES: tuple[Axis, ...] = ("time", "evals", "tokens")
ZOOMS: tuple[Zoom, ...] = ("fit", "full", "top")
_READING = "  Reading the journal …"
_SHOWN = ("ok", "failed", "refused", "cut", "late")


def picture_of(view: View, axis: Axis, zoom: Zoom) -> Picture:
    """What the validation chart shows: only validation, nothing hidden."""
    state = view.state
    star = starred(state)
    points: list[Point] = []
    steps: list[tuple[float, float]] = []
    tried = [one for one in state.candidates.values() if one.status in _SHOWN]
    for n, one in enumerate(tried):
        x = _place(one, n, axis, view.tokens)
        points.append(_point(one, x, star))
        if one.validation is not None and (not steps or one.validation.score * 100 > steps[-1][1]):
            steps.append((x, one.validation.score * 100))
    x_max, end = _extent(view, axis, points)
    low, high = _range(state, points, zoom)
    return Picture(
        points=tuple(points),
        steps=tuple(steps),
        base=state.initial.score * 100 if state.initial else None,
        end=end,
        x_max=x_max,
        y_low=low,
        y_high=high,
        clock=axis == "time",
        whole=axis != "time",
        x_text={"time": _clock, "evals": lambda x: str(round(x)), "tokens": lambda x: record.count(round(x))}[axis],
        y_text=lambda y: f"{y:.0f}",
    )


def starred(state: RunState) -> str | None:
    """The candidate that gets the star: the selected one, else the best so far."""
    name = record.chosen(state) or state.trials.best
    return name if name in state.candidates else state.trials.best


def _point(one: CandidateState, x: float, star: str | None) -> Point:
    score = one.validation
    if score is None:
        return Point(x, None, kind="failed")
    kind: Literal["ok", "initial"] = "initial" if one.id == record.INITIAL else "ok"
    return Point(x, score.score * 100, score.low * 100, score.high * 100, kind, star=one.id == star)


def _place(one: CandidateState, n: int, axis: Axis, tokens: Sequence[tuple[float, int]]) -> float:
    el = one.validated_el if one.validated_el is not None else one.el + one.seconds
    if axis == "evals":
        return float(n)
    if axis == "time":
        return el
    at = bisect_right(tokens, (el, 1 << 62)) - 1
    return float(tokens[at][1]) if at >= 0 else 0.0


def _extent(view: View, axis: Axis, points: Sequence[Point]) -> tuple[float, float | None]:
    """How far the x axis goes, and where the budget ends on it."""
    farthest = max((point.x for point in points), default=0.0)
    limits = view.state.run.budget if view.state.run else None
    if axis == "evals":
        return max(farthest, 4.0) + 0.5, None
    now = view.state.el if axis == "time" else float(view.state.budget.tokens)
    end = None if limits is None else limits.wall_s if axis == "time" else limits.tokens
    far = max(farthest, now, 1.0)
    far = min(far * 1.08, max(far, end)) if end else far * 1.08
    return far, float(end) if end else None


def _range(state: RunState, points: Sequence[Point], zoom: Zoom) -> tuple[float, float]:
    known = [point for point in points if point.y is not None]
    if zoom == "full" or not known:
        return 0.0, 100.0
    if zoom == "top" and state.best and state.best.validation:
        best = state.best.validation
        half = max(5.0, (best.high - best.low) * 100 * 0.75)
        middle = best.score * 100
        return max(0.0, middle - half), min(100.0, middle + half)
    low, high = min(point.low for point in known), max(point.high for point in known)
    pad = max(2.0, (high - low) * 0.06)
    return (0.0 if low - pad < 8 else low - pad), min(100.0, high + pad)


def _clock(seconds: float) -> str:
    return "0" if seconds <= 0 else record.duration(seconds).removesuffix("00s") if seconds < 3600 else _hours(seconds)


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:g}h"


class ValidationChart(Block):
    """Validation scores with their intervals, the best so far, the initial system, the budget's end."""

    view: View | None = None
    axis: Axis = "time"
    zoom: Zoom = "fit"
    _drawn_el = 0.0

    def show(self, view: View) -> None:
        """Show another moment of the run; time alone redraws only where it moves the axis by half a cell or so."""
        old, self.view = self.view, view
        if old is not None and self._built is not None and self._built_for == self.size:
            kept = old.state.trials is view.state.trials and old.state.outcome is view.state.outcome
            if (
                kept
                and old.run == view.run
                and view.state.el < self._drawn_el * 1.004
                and old.how == view.how
                and old.ready == view.ready
            ):
                return
        self._drawn_el = view.state.el
        self.border_title_text()
        self.changed()

    def turn(self, *, axis: bool = False, zoom: bool = False) -> None:
        """The next axis or the next zoom."""
        if axis:
            self.axis = AXES[(AXES.index(self.axis) + 1) % len(AXES)]
        if zoom:
            self.zoom = ZOOMS[(ZOOMS.index(self.zoom) + 1) % len(ZOOMS)]
        self.border_title_text()
        self.changed()

    def border_title_text(self) -> None:
        """Title and legend in the border."""
        view, signs = self.view, symbols_of(self)
        if view is None:
            return
        state = view.state
        problems = f" on {state.run.problems}" if state.run else ""
        where = {"time": "time", "evals": "evaluations", "tokens": "tokens"}[self.axis]
        title(
            self,
            f"{record.names(state).seen} %{problems}, by {where}" + ("" if self.zoom == "fit" else f", {self.zoom}"),
        )
        star = starred(state)
        how = "selected" if record.chosen(state) else "best"
        parts = [f"{signs.starting} P0", f"{signs.point} eval"]
        parts += [f"{signs.star} {how} {star}"] if star else []
        parts += [f"{signs.cross} failed"] if any(one.status in _SHOWN[1:] for one in state.candidates.values()) else []
        legend(self, "  ".join(parts))

    def build(self, cells: int, rows: int) -> list[Line]:
        view = self.view
        if view is None:
            return [(), line((_READING, "muted"))]
        if not any(one.status in _SHOWN for one in view.state.candidates.values()):
            return [(), line((_nothing_yet(view), "muted"))]
        picture = picture_of(view, self.axis, self.zoom)
        return draw(picture, cells, rows, symbols_of(self), coarse=is_ascii(self))


def _nothing_yet(view: View) -> str:
    state = view.state
    if not view.ready:
        return _READING
    if state.current and state.current.verb == "validate":
        done = f" {record.count(state.work.progress.done)}/{record.count(state.work.progress.total)}"
        return f"  No score yet. The initial system is being evaluated:{done} problems."
    return "  No score yet. The first point is the initial system P0."


class LossChart(Block):
    """The loss that a trainer claimed, by step."""

    rows_: tuple[TrainRow, ...] = ()

    def show(self, rows: Sequence[TrainRow]) -> None:
        """Show another training."""
        self.rows_ = tuple(rows)
        self.changed()

    def build(self, cells: int, rows: int) -> list[Line]:
        curve = decimated([(float(row.step), row.loss) for row in self.rows_ if row.loss is not None], 2000)
        if not curve:
            return [line(("  no loss was reported", "muted"))]
        low, high = min(y for _, y in curve), max(y for _, y in curve)
        pad = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
        low, high = (0.0 if 0 <= low < (high - low) else low - pad), high + pad
        digits = 0 if high - low > 20 else 1 if high - low > 2 else 2
        far = max((float(row.steps) for row in self.rows_), default=0.0)
        picture = Picture(
            curve=curve,
            x_max=max(curve[-1][0], min(far, 1e12), 1.0),
            y_low=low,
            y_high=high,
            whole=True,
            x_text=lambda x: record.count(round(x)),
            y_text=lambda y: record.number(y, digits),
        )
        return draw(picture, cells, rows, symbols_of(self), coarse=is_ascii(self))
