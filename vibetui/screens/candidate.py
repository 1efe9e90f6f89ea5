"""One candidate: what changed in data, trainer and harness, its problems, its training."""

from __future__ import annotations

from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import Container

from runner.record.describe import diff_cell
from runner.record.files import TrainRow
from runner.record.state import CandidateState
from vibetui import detail
from vibetui.follow import View
from vibetui.screens.base import bindings
from vibetui.screens.shared import Stepping, Tabbed
from vibetui.screens.traces import COLUMNS as PROBLEM_COLUMNS
from vibetui.screens.traces import problem_rows
from vibetui.text import Line, line, one_line
from vibetui.widgets.chart import LossChart
from vibetui.widgets.lines import Lines
from vibetui.widgets.panel import legend, title
from vibetui.widgets.parts import Facts, Tabs
from vibetui.widgets.table import Row, Table

PARTS = ("data", "trainer", "harness", "problems", "train")


@dataclass(frozen=True, slots=True)
class Found:
    """What lies in the folder about a candidate."""

    parts: dict[str, list[Line]]
    problems: list[Row]
    training: list[TrainRow]


class CandidateScreen(Stepping, Tabbed):
    """What one candidate is made of."""

    kind = "candidate"
    BINDINGS = bindings("candidate")  # type: ignore[assignment]
    TABS = ("Data", "Trainer", "Harness", "Traces", "Train")

    def __init__(self, name: str, tab: int = 0) -> None:
        super().__init__(name)
        self.tab = tab
        self._loaded: tuple[object, ...] = ()

    def body(self) -> ComposeResult:
        yield Facts(id="facts")
        yield Tabs(self.TABS, id="tabs")
        with Container(id="part"):
            for name in ("data", "trainer", "harness"):
                yield Lines(id=name, empty=" reading …", wrap=name == "data", note="")
            yield Table(PROBLEM_COLUMNS, empty="no evaluation in this folder", id="problems")
            with Container(id="train"):
                yield LossChart(id="loss", classes="panel")
                yield Lines(id="train-log", empty=" reading …", note="")

    def on_mount(self) -> None:
        super().on_mount()
        title(self.query_one("#loss"), "loss by step, as the trainer reported it")
        self.open_tab(self.tab)

    def show(self, view: View) -> None:
        one = self.candidate()
        facts = self.query_one(Facts)
        if one is None:
            facts.say([line((f"{one_line(self.named(), 40)} is not in this run", "warn"))])
            return
        facts.say(detail.facts_of(view.state, one))
        moved = [diff_cell(one.diff.get(part)) for part in ("data", "trainer", "harness")]
        solved = f"{round(one.validation.score * one.validation.n)}/{one.validation.n}" if one.validation else ""
        self.query_one(Tabs).turn(self.tab, (*moved, solved, one_line(one.model, 8)))
        wanted = (one.id, one.model, one.eval, one.validation, view.state.initial)
        if wanted != self._loaded:
            self._loaded = wanted
            self.load("candidate", lambda: self._read(view, one), self._fill)

    def _read(self, view: View, one: CandidateState) -> Found:
        run, state = view.run, view.state
        parent = state.candidates.get(one.parent) if one.parent else None
        parts = {
            "data": detail.data_of(run, one),
            "trainer": detail.patch_of(run, one, "trainer"),
            "harness": detail.patch_of(run, one, "harness"),
        }
        solved = detail.solved_against(run, one, parent)
        training = detail.training_of(run, one.model) if detail.safe_name(one.model) else []
        parts["train-log"] = detail.training_lines(run, state, one.model, training)
        return Found(parts, problem_rows(solved), training)

    def _fill(self, found: Found) -> None:
        for name, lines in found.parts.items():
            self.query_one(f"#{name}", Lines).show(lines)
        table = self.query_one("#problems", Table)
        table.show(found.problems)
        legend(table, f"{len(found.problems)} problems, against {one_line(self._from() or 'nothing', 12)}")
        self.query_one(LossChart).show(found.training)

    def _from(self) -> str | None:
        one = self.candidate()
        return one.parent if one else None

    def open_tab(self, to: int) -> None:
        super().open_tab(to)
        shown = PARTS[to]
        for name in PARTS:
            self.query_one(f"#{name}").display = name == shown
        self.query_one("#train-log" if shown == "train" else f"#{shown}").focus()

    # -- keys

    def useful(self, key: str) -> bool:
        return key != "open" or PARTS[self.tab] == "problems"

    def do_parent(self) -> None:
        if parent := self._from():
            self.go(parent)
        else:
            self.vibe.tell("the initial system has no parent")

    def on_table_chosen(self, event: Table.Chosen) -> None:
        self.vibe.open_traces(self.named(), event.key)
