"""The problems of a candidate and one trajectory, step by step."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Container

from runner.record.describe import count, duration, number
from runner.record.events import TrajectoryStep
from vibetui import detail
from vibetui.follow import View
from vibetui.screens.base import bindings
from vibetui.screens.shared import OfCandidate
from vibetui.text import line, one_line
from vibetui.theme import Role
from vibetui.widgets.lines import Lines
from vibetui.widgets.panel import legend, title
from vibetui.widgets.table import Column, Row, Table

COLUMNS = (
    Column("problem", most=18),
    Column("solved", right=True),
    Column("vs parent"),
    Column("turns", right=True, drop=3),
    Column("tokens", right=True, drop=2),
    Column("seconds", right=True, drop=4),
    Column("verdict", flex=True),
)
_CHANGES: dict[str, Role] = {"gained": "good", "lost": "bad", "same": "muted", "–": "muted"}
ORDERS = ("all", "gained", "lost", "unsolved")


def problem_rows(solved: Sequence[detail.Solved]) -> list[Row]:
    """Problems as rows: solved or not, what it was at the parent, turns, tokens, seconds."""
    rows = []
    for one in solved:
        tone: Role = "good" if one.mean >= 1 else "warn" if one.mean > 0 else "muted"
        text = "yes" if one.mean >= 1 else "no" if one.mean <= 0 else number(one.mean, 2)
        rows.append(
            Row(
                one.problem,
                (
                    (one_line(one.problem, 40), "text"),
                    (text, tone),
                    (one.change, _CHANGES[one.change]),
                    (count(one.turns), "muted"),
                    (count(one.tokens), "muted"),
                    (duration(one.seconds), "muted"),
                    (one.reasons, "muted"),
                ),
            )
        )
    return rows


def wanted(solved: Sequence[detail.Solved], order: str, word: str) -> list[detail.Solved]:
    """The problems of an order (all, gained, lost, unsolved) that hold ``word``."""
    keep = [one for one in solved if word.casefold() in f"{one.problem} {one.reasons}".casefold()]
    if order == "unsolved":
        return [one for one in keep if one.mean < 1]
    return keep if order == "all" else [one for one in keep if one.change == order]


class TracesScreen(OfCandidate):
    """Problems at the left, a trajectory at the right; on a narrow terminal one of them."""

    kind = "traces"
    BINDINGS = bindings("traces")  # type: ignore[assignment]

    def __init__(self, name: str, problem: str = "") -> None:
        super().__init__()
        self._named, self._problem = name, problem
        self._loaded: tuple[object, ...] = ()
        self._solved: list[detail.Solved] = []
        self._steps: list[TrajectoryStep] = []
        self._step, self._order, self._only_word = 0, "all", ""

    def body(self) -> ComposeResult:
        with Container(id="both"):
            yield Table(COLUMNS, empty="no evaluation in this folder", id="problems")
            yield Lines(wrap=True, empty=" choose a problem and press enter", note="", id="trajectory")

    def on_mount(self) -> None:
        super().on_mount()
        if self._problem:
            self._read(self._problem)

    def named(self) -> str:
        return self._named

    def show(self, view: View) -> None:
        one = self.candidate()
        if one is None:
            return
        parent = view.state.candidates.get(one.parent) if one.parent else None
        asked = (one.id, one.eval, one.validation)
        if asked != self._loaded:
            self._loaded = asked
            self.load("problems", lambda: detail.solved_against(view.run, one, parent), self._got)

    def _got(self, solved: list[detail.Solved]) -> None:
        self._solved = solved
        self._fill()
        if self._problem:
            self.query_one(Table).choose(self._problem)

    def _fill(self) -> None:
        table = self.query_one(Table)
        kept = wanted(self._solved, self._order, self._only_word)
        table.show(problem_rows(kept))
        one = self.candidate()
        parent = one_line((one and one.parent) or "nothing", 12)
        title(table, f"{one_line(self._named, 12)}: problems, against {parent}")
        changes = [solved.change for solved in self._solved]
        moved = f"{changes.count('gained')} gained · {changes.count('lost')} lost"
        legend(table, f"{self._order} {len(kept)}/{len(changes)} · {moved}")

    # -- one trajectory

    def on_table_chosen(self, event: Table.Chosen) -> None:
        self._read(event.key)

    def on_table_moved(self, event: Table.Moved) -> None:
        if self.has_class("-wide"):
            self._read(event.key, focus=False)

    def _read(self, problem: str, *, focus: bool = True) -> None:
        self._problem = problem
        view, one = self.vibe.view, self.candidate()
        if view is None or one is None:
            return
        if focus:
            self.add_class("-reading")
            self.query_one("#trajectory").focus()
        self.load("trajectory", lambda: detail.trajectory_of(view.run, one, problem), self._open)

    def _open(self, steps: list[TrajectoryStep]) -> None:
        self._steps, self._step = steps, 0
        self._page()

    def _page(self) -> None:
        lines = self.query_one("#trajectory", Lines)
        problem = one_line(self._problem, 30)
        if not self._steps:
            lines.show([line((f"no trajectory of {problem} in this folder", "warn"))])
            title(lines, problem)
            return
        step = self._steps[self._step]
        lines.note = "← → steps · [ ] problems · w wrap · esc list"
        lines.show(detail.step_lines(step))
        title(lines, f"{problem}  sample {step.sample}  step {self._step + 1} of {len(self._steps)}: {step.kind}")

    # -- keys

    def do_step_back(self) -> None:
        self._turn(-1)

    def do_step_on(self) -> None:
        self._turn(1)

    def _turn(self, by: int) -> None:
        if self._steps:
            self._step = min(max(0, self._step + by), len(self._steps) - 1)
            self._page()

    def do_before(self) -> None:
        self._next_problem(-1)

    def do_after(self) -> None:
        self._next_problem(1)

    def _next_problem(self, by: int) -> None:
        table = self.query_one(Table)
        table.move(by)
        if table.key is not None:
            self._read(table.key, focus=self.has_class("-reading"))

    def do_back(self) -> None:
        if not self.query_one("#prompt").display and self.has_class("-reading"):
            self.remove_class("-reading")
            self.query_one(Table).focus()
        else:
            super().do_back()

    def do_open(self) -> None:
        self.query_one(Table).open()

    def do_filter(self) -> None:
        self.ask("filter", self._filtered, live=self._filtered)

    def _filtered(self, word: str) -> None:
        self._only_word = word
        self._fill()

    def do_sort(self) -> None:
        self._order = ORDERS[(ORDERS.index(self._order) + 1) % len(ORDERS)]
        self._fill()
