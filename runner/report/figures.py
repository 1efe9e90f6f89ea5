"""The figures of one run: the search on validation, what moved, where the time went, and the one hidden test.

Every label says of which split a number is. Needs the extra ``report``.
"""

from __future__ import annotations

from matplotlib.axes import Axes

from runner.record.describe import duration, foreign
from runner.record.events import Score, Split
from runner.record.naming import names
from runner.record.state import INITIAL, CandidateState, RunState, validation_of
from runner.report.plot import (
    BAD,
    COMPONENT,
    FAINT,
    HIDDEN,
    INK,
    LABEL,
    PAPER,
    SOFT,
    VALIDATION,
    Picture,
    draw,
    percent_axis,
)
from runner.report.story import Story, curve
from tasks.spec import COMPONENTS, LETTERS

_MANY = 25  # from here on labels would cover each other


def figures(story: Story) -> list[Picture]:
    """All figures that the run has data for."""
    state = story.state
    pictures = []
    if any(item.validation or item.late for item in state.candidates.values()):
        pictures.append(_search(story))
    if len(state.candidates) > 1:
        pictures.append(_designs(story))
    if sum(getattr(state.budget.split, name) for name in Split.model_fields) > 0:
        pictures.append(_time(story))
    if state.hidden is not None:
        pictures.append(_outcome(story))
    return pictures


def _minutes(state: RunState) -> tuple[float, str]:
    """Seconds per unit of the time axis, and the unit's name."""
    return (3600.0, "hours") if state.el > 3 * 3600 else (60.0, "minutes")


def _search(story: Story) -> Picture:
    state, called = story.state, names(story.state)
    unit, name = _minutes(state)

    def paint(axes: Axes) -> None:
        _best_line(axes, state, unit)
        for item in state.candidates.values():
            _point(axes, story, item, unit)
        axes.set_xlabel(f"budget time, {name}")
        tops = [score.high for item in state.candidates.values() if (score := item.validation or item.late)]
        percent_axis(axes, f"{called.SEEN} score", low=-0.02, high=min(1.04, max(tops) + 0.08))
        axes.set_xlim(left=-0.02 * max(state.el, 60) / unit)

    words = (
        f"{called.seen.capitalize()} scores of the candidates over the budget time with 95 % intervals, the best so "
        "far as a line, the initial system as a dashed line, a star on the selected candidate."
    )
    return draw("validation", f"The search, on {called.seen}", words, (7.4, 3.7), paint)


def _best_line(axes: Axes, state: RunState, unit: float) -> None:
    initial = state.initial
    if initial is not None:
        axes.axhline(initial.score, color=SOFT, linewidth=1.0, linestyle=(0, (5, 4)))
        axes.annotate(
            "P0", (1.0, initial.score), xycoords=("axes fraction", "data"), xytext=(-3, 4), textcoords="offset points",
            ha="right", color=SOFT, fontsize=8.5,
        )  # fmt: skip
    steps = curve(state)
    if steps:
        times = [el / unit for el, _ in steps] + [state.el / unit]
        values = [score for _, score in steps] + [steps[-1][1]]
        axes.step(times, values, where="post", color=VALIDATION, linewidth=1.4, alpha=0.45)


def _point(axes: Axes, story: Story, item: CandidateState, unit: float) -> None:
    score = item.validation or item.late
    at = (item.validated_el if item.validated_el is not None else item.el + item.seconds) / unit
    if score is None:
        if item.status not in ("created", "validating"):
            axes.plot([at], [-0.008], marker="x", color=BAD, markersize=5, clip_on=False)
        return
    selected = item.id == story.merit.selected_id
    colour = VALIDATION if item.validation else SOFT
    axes.plot([at, at], [score.low, score.high], color=colour, linewidth=1.1, alpha=0.5, solid_capstyle="round")
    axes.plot(
        [at], [score.score], marker="*" if selected else "o", color=colour, markeredgecolor=PAPER, linestyle="none",
        markersize=15 if selected else 6.5, markeredgewidth=1.0, zorder=4 if selected else 3,
        markerfacecolor=colour if item.validation else PAPER,
    )  # fmt: skip
    if item.id != INITIAL and (len(story.state.candidates) <= _MANY or selected):
        axes.annotate(
            foreign(item.id, 8), (at, score.high), xytext=(0, 3), textcoords="offset points", ha="center",
            fontsize=7.5, color=INK if selected else SOFT,
        )  # fmt: skip


def _designs(story: Story) -> Picture:
    made = [item for item in story.state.candidates.values() if item.id != INITIAL]
    rows = list(reversed(COMPONENTS))

    def paint(axes: Axes) -> None:
        for y, component in enumerate(rows):
            there = [x for x, item in enumerate(made) if component in item.components]
            axes.plot([-0.5, len(made) - 0.5], [y, y], color=FAINT, linewidth=1.0, zorder=1)
            size = 9 if len(made) <= _MANY else 5
            axes.plot(
                there, [y] * len(there), marker="s", markersize=size, linestyle="none", color=COMPONENT[component]
            )
        for x, item in enumerate(made):
            if item.id == story.merit.selected_id:
                axes.plot([x], [len(rows) - 0.3], marker="*", color=VALIDATION, markersize=10)
        counts = story.merit.designs
        axes.set_yticks(range(len(rows)), [f"{name} ({LETTERS[name]})  {counts.get(name, 0)}" for name in rows])
        shown = len(made) if len(made) <= _MANY else 0
        axes.set_xticks(range(shown), [foreign(item.id, 8) for item in made[:shown]], fontsize=7.5)
        axes.set_ylim(-0.6, len(rows) + 0.1)
        axes.set_xlim(-0.7, len(made) - 0.3)
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)

    words = "Which components each candidate moved against its parent, with counts; a star on the selected."
    return draw("designs", "What each candidate moved", words, (7.4, 1.75), paint)


def _time(story: Story) -> Picture:
    split = story.state.budget.split
    parts = [(name, float(getattr(split, name))) for name in Split.model_fields]
    total = sum(seconds for _, seconds in parts)

    def paint(axes: Axes) -> None:
        left = 0.0
        for name, seconds in parts:
            if seconds <= 0:
                continue
            share = seconds / total
            axes.barh([0], [share], left=left, color=LABEL[name], height=0.5, edgecolor=PAPER, linewidth=1.0)
            if share >= 0.09:
                axes.text(left + share / 2, 0.36, f"{name}\n{share * 100:.0f} %", ha="center", va="bottom",
                          color=SOFT, fontsize=8, linespacing=1.3)  # fmt: skip
                axes.text(left + share / 2, 0, duration(seconds), ha="center", va="center", color="#ffffff", fontsize=8)
            left += share
        axes.set_xlim(0, 1)
        axes.set_ylim(-0.3, 0.95)
        axes.axis("off")

    said = ", ".join(f"{name} {duration(seconds)}" for name, seconds in parts)
    return draw("time", "Where the budget went", f"Share of the budget time: {said}.", (7.4, 1.15), paint)


def _outcome(story: Story) -> Picture:
    hidden, called = story.state.hidden, names(story.state)
    if hidden is None:
        raise ValueError("a run without a hidden test has no such figure")
    rows: list[tuple[str, Score | None, Score | None, str]] = [
        (called.COUNTED, hidden.initial, hidden.selected, HIDDEN),
        (
            called.SEEN,
            story.state.initial,
            validation_of(story.state, hidden.candidate),
            VALIDATION,
        ),
    ]

    def paint(axes: Axes) -> None:
        for y, (_, before, after, colour) in zip((1, 0), rows, strict=True):
            if before is not None and after is not None:
                axes.plot([before.score, after.score], [y, y], color=colour, linewidth=2.0, alpha=0.35)
            for score, marker in ((before, "o"), (after, "*")):
                if score is None:
                    continue
                axes.plot([score.low, score.high], [y, y], color=colour, linewidth=5, alpha=0.25,
                          solid_capstyle="round")  # fmt: skip
                axes.plot([score.score], [y], marker=marker, color=colour, markersize=13 if marker == "*" else 8,
                          markeredgecolor=PAPER)  # fmt: skip
                axes.annotate(f"{score.score * 100:.1f} %", (score.score, y), xytext=(0, 9),
                              textcoords="offset points", ha="center", fontsize=8.5)  # fmt: skip
        axes.set_yticks((1, 0), [name for name, *_ in rows])
        axes.set_ylim(-0.6, 1.7)
        axes.set_xlim(-0.02, 1.02)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value * 100:.0f} %")
        axes.grid(visible=True, axis="x")
        axes.grid(visible=False, axis="y")

    words = (
        f"Initial system (dot) and selected system (star), {called.counted} and {called.seen} score, 95 % intervals."
        if called.counts_trainings
        else "Initial system (dot) and selected system (star) on hidden and on validation problems, 95 % intervals."
    )
    return draw("outcome", "Initial and selected system", words, (7.4, 1.9), paint)
