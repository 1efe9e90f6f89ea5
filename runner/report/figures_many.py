"""Figures over many runs: what a score costs, how the searches went, what was moved, and whom validation favours.

Needs the extra ``report``.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from runner.record.describe import count, letters
from runner.record.naming import Names
from runner.report.gather import Summary, System
from runner.report.leaderboard import Board
from runner.report.plot import COMPONENT, FAINT, GOOD, HIDDEN, INK, PAPER, SOFT, VALIDATION, Picture, draw, percent_axis
from runner.report.statistics import pareto
from tasks.spec import COMPONENTS, LETTERS

_MOST = 40


def figures(every: Sequence[Board], runs: Sequence[Summary]) -> list[Picture]:
    """The figures of each board, named by task and number."""
    found = []
    for n, board in enumerate(every):
        mine = [run for run in runs if run.benchmark == board.benchmark][:_MOST]
        name = f"{board.benchmark.task}-{n + 1}"
        if any(entry.hidden for entry in board.entries):
            found.append(_cost(f"cost-{name}", board))
            found.append(_leaders(f"leaders-{name}", board))
        if any(run.points for run in mine):
            found.append(_searches(f"searches-{name}", mine, board.benchmark.called))
            found.append(_components(f"components-{name}", board, mine))
    return found


def _label(system: System) -> str:
    return f"{system.agent} {letters(system.scope)}"


def _cost(name: str, board: Board) -> Picture:
    """Tokens against score; hours where no system used a token."""
    tested = [entry for entry in board.entries if entry.hidden is not None]
    tokens = any(entry.tokens for entry in tested)
    points = {
        str(i): ((entry.tokens if tokens else entry.hours) or 0.0, entry.hidden.mean)
        for i, entry in enumerate(tested)
        if entry.hidden is not None
    }
    front = pareto(points)

    def paint(axes: Axes) -> None:
        if board.initial is not None:
            axes.axhline(board.initial.mean, color=SOFT, linewidth=1.0, linestyle=(0, (5, 4)))
            axes.annotate("P0", (0.0, board.initial.mean), xycoords=("axes fraction", "data"), xytext=(4, 4),
                          textcoords="offset points", color=SOFT, fontsize=8.5)  # fmt: skip
        for entry in board.references:
            if entry.hidden is not None:
                axes.axhline(entry.hidden.mean, color=GOOD, linewidth=1.0, linestyle=(0, (1, 2)))
                axes.annotate(f"reference {entry.system.model}", (1.0, entry.hidden.mean), xytext=(-4, 4), ha="right",
                              xycoords=("axes fraction", "data"), textcoords="offset points", color=GOOD,
                              fontsize=8.5)  # fmt: skip
        if len(front) > 1:
            axes.step(*zip(*(points[key] for key in front), strict=True), where="post", color=HIDDEN, alpha=0.4)
        for i, entry in enumerate(tested):
            if entry.hidden is None:
                continue
            x, y = points[str(i)]
            if entry.hidden.sem is not None:
                axes.plot([x, x], [y - entry.hidden.sem, y + entry.hidden.sem], color=HIDDEN, alpha=0.5)
            full = str(i) in front
            axes.plot([x], [y], marker="o", markersize=7.5, color=HIDDEN, markerfacecolor=HIDDEN if full else PAPER)
            axes.annotate(_label(entry.system), (x, y), xytext=(7, 3), textcoords="offset points", fontsize=8,
                          color=INK if full else SOFT)  # fmt: skip
        axes.set_xlabel("tokens of the researcher, median" if tokens else "hours of budget, median")
        percent_axis(axes, f"{board.benchmark.called.COUNTED} score, mean", low=-0.02, high=1.04)
        axes.margins(x=0.18)
        if tokens:
            axes.xaxis.set_major_formatter(lambda value, _: count(int(value)) if value >= 0 else "")

    on = board.benchmark.called.problems
    words = f"Cost against the score on {on}; filled and joined: no other system is cheaper and better."
    return draw(name, "What a score costs", words, (7.4, 3.7), paint)


def _searches(name: str, runs: Sequence[Summary], called: Names) -> Picture:
    """Validation points of each run, a star on the selected, a diamond for the hidden test."""

    def paint(axes: Axes) -> None:
        for x, run in enumerate(runs):
            values = [score for _, score in run.points]
            axes.plot(
                [x] * len(values), values, marker="o", linestyle="none", color=VALIDATION, markersize=4.5, alpha=0.45
            )
            if run.initial is not None:
                axes.plot([x - 0.25, x + 0.25], [run.initial.score] * 2, color=SOFT, linewidth=1.2)
            if run.selected is not None:
                axes.plot([x], [run.selected.score], marker="*", color=VALIDATION, markersize=13, markeredgecolor=PAPER)
            if run.hidden_selected is not None:
                axes.plot([x + 0.18], [run.hidden_selected.score], marker="D", color=HIDDEN, markersize=5.5,
                          markeredgecolor=PAPER)  # fmt: skip
        names = [f"{_label(run.system)}\nseed {run.seed}" for run in runs]
        few = len(runs) <= 12
        axes.set_xticks(range(len(runs)), names if few else [str(i + 1) for i in range(len(runs))], fontsize=7.5)
        if not few:
            axes.set_xlabel("runs, oldest first")
        axes.set_xlim(-0.6, len(runs) - 0.4)
        percent_axis(axes, "score", low=-0.03, high=1.05)
        for marker, colour, label in (
            ("o", VALIDATION, called.SEEN),
            ("*", VALIDATION, "selected"),
            ("D", HIDDEN, called.COUNTED),
        ):
            axes.plot([], [], marker=marker, linestyle="none", color=colour, label=label)
        axes.legend(loc="lower left", ncols=3, bbox_to_anchor=(0, 1.0), handletextpad=0.2)

    marks = f"a star on the selected, a diamond for its {called.test}, a dash for P0"
    words = f"Every valid {called.seen} of every run, {marks}."
    return draw(name, "How the searches went", words, (7.4, 3.7), paint)


def _components(name: str, board: Board, runs: Sequence[Summary]) -> Picture:
    """How often each component was moved, by system."""
    systems = [entry.system for entry in board.entries]

    def paint(axes: Axes) -> None:
        for y, system in enumerate(reversed(systems)):
            mine = [run.merit.designs for run in runs if run.system == system]
            for k, part in enumerate(COMPONENTS):
                moved = sum(designs.get(part, 0) for designs in mine) / max(1, len(mine))
                at = y + 0.22 * (1 - k)
                axes.barh([at], [moved], height=0.2, color=COMPONENT[part])
        axes.set_yticks(range(len(systems)), [_label(system) for system in reversed(systems)])
        axes.set_xlabel("candidates a run that moved it, mean")
        axes.grid(visible=True, axis="x", color=FAINT)
        axes.grid(visible=False, axis="y")
        for part in COMPONENTS:
            axes.plot([], [], marker="s", linestyle="none", color=COMPONENT[part], label=f"{part} ({LETTERS[part]})")
        axes.legend(loc="lower left", ncols=3, bbox_to_anchor=(0, 1.0), handletextpad=0.2)

    words = "How many candidates a run moved data, trainer and harness, on average, by system."
    return draw(name, "What was moved", words, (7.4, 0.9 + 0.55 * len(systems)), paint)


def _leaders(name: str, board: Board) -> Picture:
    """Validation against hidden: above the line hidden is higher."""
    called = board.benchmark.called
    both = [entry for entry in board.entries if entry.hidden is not None and entry.validation is not None]

    def paint(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1.2)
        for n, entry in enumerate(sorted(both, key=lambda item: item.hidden.mean if item.hidden else 0.0)):
            if entry.hidden is None or entry.validation is None:
                continue
            leads = [board.validation_leader == entry.system, board.hidden_leader == entry.system]
            says = " and ".join(word for word, lead in zip((called.SEEN, called.COUNTED), leads, strict=True) if lead)
            at = (entry.validation.mean, entry.hidden.mean)
            axes.plot(*([value] for value in at), marker="*" if any(leads) else "o", color=HIDDEN if leads[1] else SOFT,
                      markersize=13 if any(leads) else 7, markeredgecolor=PAPER, linestyle="none")  # fmt: skip
            text = _label(entry.system) + (f" (leads on {says})" if says else "")
            right = n % 2 == 1 and at[0] > 0.35  # neighbours by height take turns
            axes.annotate(text, at, xytext=(-8 if right else 8, -3), textcoords="offset points", fontsize=8,
                          ha="right" if right else "left", color=INK if says else SOFT)  # fmt: skip
        percent_axis(axes, f"{called.COUNTED} score, mean", low=-0.02, high=1.02)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value * 100:.0f} %")
        axes.set_xlim(-0.02, 1.02)
        axes.set_xlabel(f"{called.SEEN} score of the selected, mean")

    words = f"Mean {called.seen} score of the selected systems against their {called.counted} score; stars lead."
    return draw(name, f"Does {called.seen} name the leader?", words, (5.4, 4.2), paint)
