"""The grid of candidates × validation problems: which candidate solved what, as one small drawing without a library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from runner.report.evidence import Rewards
from runner.report.words import name_of

_ROW, _GAP, _LEFT = 15.0, 4.0, 46.0
_WIDTH = 760.0


@dataclass(frozen=True, slots=True)
class GridRow:
    """One candidate: its label, its place, and paths over the problems it solved wholly and in part."""

    name: str
    y: float
    whole: str
    part: str
    selected: bool


@dataclass(frozen=True, slots=True)
class Grid:
    """The drawing, with ``problems`` in the order of its columns: those solved first stand first."""

    problems: tuple[str, ...]
    rows: tuple[GridRow, ...]
    width: float
    height: float
    left: float
    cell: float
    row: float


def grid(rewards: dict[str, Rewards], samples: int, selected: str | None) -> Grid | None:
    """None without at least one candidate with rewards. Candidates must share their problems; others are left out."""
    if not rewards:
        return None
    names = list(rewards)
    first = set(rewards[names[0]])
    names = [name for name in names if set(rewards[name]) == first]
    order = sorted(first, key=lambda problem: (_solvers(rewards, names, problem), problem))
    cell = (_WIDTH - _LEFT) / max(1, len(order))
    rows = tuple(
        _row(name, i * (_ROW + _GAP), [sum(rewards[name][p]) / samples for p in order], cell, name == selected)
        for i, name in enumerate(names)
    )
    return Grid(tuple(order), rows, _WIDTH, len(rows) * (_ROW + _GAP), _LEFT, cell, _ROW)


def _solvers(rewards: dict[str, Rewards], names: list[str], problem: str) -> tuple[int, int]:
    """Early and often first: the first candidate that solved it, then how many did not."""
    solved = [i for i, name in enumerate(names) if sum(rewards[name][problem]) > 0]
    return (solved[0] if solved else len(names), -len(solved))


def _row(name: str, y: float, means: list[float], cell: float, selected: bool) -> GridRow:
    return GridRow(
        name=name_of(name),
        y=y,
        whole=_path(means, y, cell, lambda mean: mean > 1 - 1e-9),
        part=_path(means, y, cell, lambda mean: 1e-9 < mean <= 1 - 1e-9),
        selected=selected,
    )


def _path(means: list[float], y: float, cell: float, shown: Callable[[float], bool]) -> str:
    gap = min(1.0, cell * 0.15)
    width = cell - gap
    return "".join(
        f"M{_LEFT + i * cell:.2f} {y:.1f}h{width:.2f}v{_ROW:.0f}h-{width:.2f}z"
        for i, mean in enumerate(means)
        if shown(mean)
    )
