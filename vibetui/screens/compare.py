"""Two candidates beside each other: verdict with flips, then data, trainer and harness."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Container

from runner.record.state import INITIAL, CandidateState
from vibetui import versus
from vibetui.follow import View
from vibetui.screens.base import bindings
from vibetui.screens.shared import Stepping, Tabbed
from vibetui.text import Line, line, one_line
from vibetui.widgets.lines import Lines
from vibetui.widgets.panel import title
from vibetui.widgets.parts import Facts, Tabs


class CompareScreen(Stepping, Tabbed):
    """One candidate against another."""

    kind = "compare"
    BINDINGS = bindings("compare")  # type: ignore[assignment]
    TABS = ("Problems", "Data", "Trainer", "Harness")

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._side = 0
        self._loaded: tuple[object, ...] = ()

    def body(self) -> ComposeResult:
        yield Facts(id="facts")
        yield Tabs(self.TABS, id="tabs")
        with Container(id="part"):
            yield Lines(id="compared", empty=" comparing …", note="")

    def pair(self, view: View) -> tuple[CandidateState, CandidateState] | None:
        """The candidate and the other side: its parent, P0, or the best of the others."""
        state = view.state
        one = state.candidates.get(self.named())
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
            facts.say([line((f"{one_line(self.named(), 20)} has no other side to be compared with", "warn"))])
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
        asked = (one.id, one.validation, other.id, other.validation, self.tab)
        if asked != self._loaded:
            self._loaded = asked
            tab = self.tab
            title(lines, self.TABS[tab].lower())
            self.load("compare", lambda: _read(view, one, other, tab), lines.show)

    def open_tab(self, to: int) -> None:
        super().open_tab(to)
        self.again()

    # -- keys

    def go(self, name: str) -> None:
        self._side = 0
        super().go(name)

    def do_against(self) -> None:
        self._side += 1
        self.again()


def _read(view: View, one: CandidateState, other: CandidateState, tab: int) -> list[Line]:
    if tab == 0:
        return versus.verdict_lines(view.run, one, other)
    return versus.component_lines(view.run, one, other, ("data", "trainer", "harness")[tab - 1])
