"""One candidate: what changed in data, trainer and harness, its problems, its training."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Container

from runner.record.describe import diff_cell
from runner.record.state import INITIAL, CandidateState
from vibetui import detail
from vibetui.follow import View
from vibetui.screens.base import Base, bindings
from vibetui.screens.traces import COLUMNS as PROBLEM_COLUMNS
from vibetui.screens.traces import problem_rows
from vibetui.text import Line, line, one_line
from vibetui.theme import Role
from vibetui.widgets.chart import LossChart
from vibetui.widgets.lines import Lines
from vibetui.widgets.paint import Block
from vibetui.widgets.panel import legend, title
from vibetui.widgets.table import Row, Table

TABS = ("Data", "Trainer", "Harness", "Traces", "Train")


class Facts(Block):
    """A few lines about what is looked at."""

    told: list[Line] = []

    def say(self, lines: list[Line]) -> None:
        """Show these lines."""
        self.told = lines
        self.changed()

    def build(self, cells: int, rows: int) -> list[Line]:
        return self.told


class Tabs(Block):
    """The names of the parts with their keys; which one is open."""

    def __init__(self, names: tuple[str, ...], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.names, self.open, self.notes = names, 0, ("",) * len(names)

    def turn(self, to: int, notes: tuple[str, ...] = ()) -> None:
        """Another part is open."""
        self.open, self.notes = to, notes or self.notes
        self.changed()

    def build(self, cells: int, rows: int) -> list[Line]:
        spans: list[tuple[str, Role]] = [(" ", "text")]
        for i, (name, note) in enumerate(zip(self.names, self.notes, strict=True)):
            here = i == self.open
            spans += [(f" {i + 1} ", "accent"), (f"{name}", "strong" if here else "muted")]
            spans += [(f" {note}", "text" if here else "muted")] if note else []
            spans.append((" ", "text"))
        under: list[tuple[str, Role]] = [(" ", "text")]
        for i, (name, note) in enumerate(zip(self.names, self.notes, strict=True)):
            size = 3 + len(name) + (len(note) + 1 if note else 0)
            under.append((("━" if i == self.open else "─") * size, "accent" if i == self.open else "rail"))
            under.append(("─", "rail"))
        return [line(*spans), line(*under, ("─" * cells, "rail"))]


class CandidateScreen(Base):
    """What one candidate is made of."""

    kind = "candidate"
    BINDINGS = bindings("candidate")  # type: ignore[assignment]

    def __init__(self, name: str, tab: int = 0) -> None:
        super().__init__()
        self.name_, self._tab = name, tab
        self._loaded: tuple[object, ...] = ()

    def body(self) -> ComposeResult:
        yield Facts(id="facts")
        yield Tabs(TABS, id="tabs")
        with Container(id="part"):
            for name in ("data", "trainer", "harness"):
                yield Lines(id=name, empty=" reading …", wrap=name == "data")
            yield Table(PROBLEM_COLUMNS, empty="no evaluation in this folder", id="problems")
            with Container(id="train"):
                yield LossChart(id="loss", classes="panel")
                yield Lines(id="train-log", empty=" reading …")

    def on_mount(self) -> None:
        super().on_mount()
        title(self.query_one("#loss"), "loss by step, as the trainer reported it")
        self._turn(self._tab)

    def candidate(self) -> CandidateState | None:
        """The candidate as it is now."""
        return self.vibe.view.state.candidates.get(self.name_) if self.vibe.view else None

    def show(self, view: View) -> None:
        one = self.candidate()
        facts = self.query_one(Facts)
        if one is None:
            facts.say([line((f"{one_line(self.name_, 40)} is not in this run", "warn"))])
            return
        facts.say(detail.facts_of(view.state, one))
        moved = [diff_cell(one.diff.get(part)) for part in ("data", "trainer", "harness")]
        solved = f"{round(one.validation.score * one.validation.n)}/{one.validation.n}" if one.validation else ""
        self.query_one(Tabs).turn(self._tab, (*moved, solved, one_line(one.model, 8)))
        wanted = (one.id, one.model, one.eval, one.validation, view.state.initial)
        if wanted != self._loaded:
            self._loaded = wanted
            self.run_worker(lambda: self._load(view, one), thread=True, exclusive=True, group="candidate")

    def _load(self, view: View, one: CandidateState) -> None:
        run, state = view.run, view.state
        parent = state.candidates.get(one.parent) if one.parent else None
        parts = {
            "data": detail.data_of(run, one),
            "trainer": detail.patch_of(run, one, "trainer"),
            "harness": detail.patch_of(run, one, "harness"),
        }
        samples = one.validation.samples if one.validation else 1
        before = parent.validation.samples if parent and parent.validation else 1
        solved = detail.solved_of(detail.problems_of(run, one), detail.problems_of(run, parent), samples, before)
        training = detail.training_of(run, one.model) if detail.safe_name(one.model) else []
        parts["train-log"] = detail.training_lines(run, state, one.model, training)
        self.app.call_from_thread(self._fill, parts, problem_rows(solved), training)

    def _fill(self, parts: dict[str, list[Line]], problems: list[Row], training: list[object]) -> None:
        if not self.is_mounted:
            return
        for name, lines in parts.items():
            self.query_one(f"#{name}", Lines).show(lines)
        table = self.query_one("#problems", Table)
        table.show(problems)
        legend(table, f"{len(problems)} problems, against {one_line(self._from() or 'nothing', 12)}")
        self.query_one(LossChart).show(training)  # type: ignore[arg-type]

    def _from(self) -> str | None:
        one = self.candidate()
        return one.parent if one else None

    def _turn(self, to: int) -> None:
        self._tab = to
        shown = ("data", "trainer", "harness", "problems", "train")[to]
        for name in ("data", "trainer", "harness", "problems", "train"):
            self.query_one(f"#{name}").display = name == shown
        self.query_one(Tabs).turn(to)
        self.query_one("#train-log" if shown == "train" else f"#{shown}").focus()

    # -- keys

    def do_tab_1(self) -> None:
        self._turn(0)

    def do_tab_2(self) -> None:
        self._turn(1)

    def do_tab_3(self) -> None:
        self._turn(2)

    def do_tab_4(self) -> None:
        self._turn(3)

    def do_tab_5(self) -> None:
        self._turn(4)

    def do_before(self) -> None:
        self._step(-1)

    def do_after(self) -> None:
        self._step(1)

    def _step(self, by: int) -> None:
        names = list(self.vibe.view.state.candidates) if self.vibe.view else []
        if self.name_ in names:
            self._go(names[(names.index(self.name_) + by) % len(names)])

    def do_parent(self) -> None:
        if parent := self._from():
            self._go(parent)
        else:
            self.vibe.tell("the initial system has no parent")

    def _go(self, name: str) -> None:
        self.name_ = name
        self._again()

    def do_traces(self) -> None:
        self.vibe.open_traces(self.name_)

    def do_log(self) -> None:
        self.vibe.open_log()

    def do_compare(self) -> None:
        self.vibe.open_compare(self.name_)

    def do_follow(self) -> None:
        self._go([INITIAL, *(self.vibe.view.state.candidates if self.vibe.view else ())][-1])

    def on_table_chosen(self, event: Table.Chosen) -> None:
        self.vibe.open_traces(self.name_, event.key)
