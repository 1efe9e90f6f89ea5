"""What several screens do in the same way: going from a candidate to what belongs to it, and turning between tabs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from vibetui.screens.base import Base
from vibetui.widgets.parts import Tabs
from vibetui.widgets.status import Foot

if TYPE_CHECKING:
    from runner.record.state import CandidateState


class OfCandidate(Base):
    """A screen on which a candidate is looked at or chosen: diff, traces, log and comparison are a key away."""

    def named(self) -> str | None:
        """The candidate that the keys mean."""
        raise NotImplementedError

    def candidate(self) -> CandidateState | None:
        """It, as it is now; None where the run has none of that name."""
        name, view = self.named(), self.vibe.view
        return view.state.candidates.get(name) if view is not None and name is not None else None

    def _meant(self) -> str:
        """The candidate that the keys mean; says so where there is none."""
        if name := self.named():
            return name
        view = self.vibe.view
        self.vibe.tell("there is no candidate yet" if view and view.ready else "the journal is still being read")
        return ""

    def do_diff(self) -> None:
        if name := self._meant():
            self.vibe.open_candidate(name)

    def do_traces(self) -> None:
        if name := self._meant():
            self.vibe.open_traces(name)

    def do_compare(self) -> None:
        if name := self._meant():
            self.vibe.open_compare(name)

    def do_log(self) -> None:
        self.vibe.open_log()


class Stepping(OfCandidate):
    """A screen of one candidate, from which the one before and the one after are a key away."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._named = name

    def named(self) -> str:
        return self._named

    def go(self, name: str) -> None:
        """Look at another candidate."""
        self._named = name
        self.again()

    def do_before(self) -> None:
        self._step(-1)

    def do_after(self) -> None:
        self._step(1)

    def _step(self, by: int) -> None:
        names = list(self.vibe.view.state.candidates) if self.vibe.view else []
        if self._named in names:
            self.go(names[(names.index(self._named) + by) % len(names)])


class Tabbed(Base):
    """A screen of several parts, one of them open; a number opens one."""

    TABS: ClassVar[tuple[str, ...]] = ()
    tab = 0

    def open_tab(self, to: int) -> None:
        """Open a part by its place from 0; subclasses show it."""
        self.tab = to
        self.query_one(Tabs).turn(to)
        self.query_one(Foot).changed()

    def do_tab_1(self) -> None:
        self.open_tab(0)

    def do_tab_2(self) -> None:
        self.open_tab(1)

    def do_tab_3(self) -> None:
        self.open_tab(2)

    def do_tab_4(self) -> None:
        self.open_tab(3)

    def do_tab_5(self) -> None:
        self.open_tab(4)
