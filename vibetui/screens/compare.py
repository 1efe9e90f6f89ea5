"""Two candidates beside each other: verdict with flips, then data, trainer and harness."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Container

from runner.record.state import INITIAL, CandidateState
from vibetui import versus
from vibetui.follow import View
from vibetui.screens.base import Base, bindings
from vibetui.screens.candidate import Facts, Tabs
from vibetui.text import Line, line, one_line
from vibetui.widgets.lines import Lines
from vibetui.widgets.panel import title

TABS = ("Problems", "Data", "Trainer", "Harness")


class CompareScreen(Base):
    """One candidate against another."""

    kind = "compare"
    BINDINGS = bindings("compare")  # type: ignore[assignment]

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name_, self._side, self._tab = name, 0, 0
        self._loaded: tuple[object, ...] = ()

    def body(self) -> ComposeResult:
        yield Facts(id="facts")
        yield Tabs(TABS, id="tabs")
        with Container(id="part"):
            yield Lines(id="compared", empty=" comparing …")

    def pair(self, view: View) -> tuple[CandidateState, CandidateState] | None:
        """The candidate and the other side: its parent, P0, or the best of the others."""
        state = view.state
        one = state.candidates.get(self.name_)
        if one is None:
            return None
        others = [name for name in (one.parent, INITIAL, state.trials.best) if name and name != one.id]
        others = [name for name in dict.fromkeys(others) if name in state.candidates]
        if not others:
            return None
        return one, state.candidates[others[self._side % len(others)]]

    def show(self, view: View) -> None:
        pair = self.pair(view)
        facts, lines = self.query_one(Facts), self.query_one(Lines)
        if pair is None:
            facts.say([line((f"{one_line(self.name_, 20)} has no other side to be compared with", "warn"))])
            lines.show([])
            return
        one, other = pair
        label = "P0" if other.id == INITIAL else "its parent" if other.id == one.parent else "the best"
        facts.say(
            [
                line(
                    (one_line(one.id, 20), "accent"),
                    ("  against  ", "muted"),
                    one_line(other.id, 20),
                    (f"  {label}", "muted"),
                ),
                line((one_line(one.hypothesis, 300) or "no hypothesis", "muted")),
            ]
        )
        asked = (one.id, one.validation, other.id, other.validation, self._tab)
        if asked != self._loaded:
            self._loaded = asked
            title(lines, TABS[self._tab].lower())
            self.run_worker(
                lambda: self._load(view, one, other, self._tab), thread=True, exclusive=True, group="compare"
            )

    def _load(self, view: View, one: CandidateState, other: CandidateState, tab: int) -> None:
        if tab == 0:
            found = versus.verdict_lines(view.run, one, other)
        else:
            found = versus.component_lines(view.run, one, other, ("data", "trainer", "harness")[tab - 1])
        self.app.call_from_thread(self._fill, found)

    def _fill(self, lines: list[Line]) -> None:
        if self.is_mounted:
            self.query_one(Lines).show(lines)

    def _turn(self, to: int) -> None:
        self._tab = to
        self.query_one(Tabs).turn(to)
        self._again()

    # -- keys

    def do_tab_1(self) -> None:
        self._turn(0)

    def do_tab_2(self) -> None:
        self._turn(1)

    def do_tab_3(self) -> None:
        self._turn(2)

    def do_tab_4(self) -> None:
        self._turn(3)

    def do_against(self) -> None:
        self._side += 1
        self._again()

    def do_before(self) -> None:
        self._step(-1)

    def do_after(self) -> None:
        self._step(1)

    def _step(self, by: int) -> None:
        names = list(self.vibe.view.state.candidates) if self.vibe.view else []
        if self.name_ in names:
            self.name_, self._side = names[(names.index(self.name_) + by) % len(names)], 0
            self._again()

    def do_diff(self) -> None:
        self.vibe.open_candidate(self.name_)

    def do_traces(self) -> None:
        self.vibe.open_traces(self.name_)
