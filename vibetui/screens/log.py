"""Events in words and the logs of agent, training, grader and engine: follow, find, go to a line."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Container

from vibetui import detail
from vibetui.files import LogFile
from vibetui.follow import News, View
from vibetui.screens.base import bindings
from vibetui.screens.run import news_lines
from vibetui.screens.shared import Tabbed
from vibetui.text import one_line
from vibetui.widgets.lines import FileLines, Lines
from vibetui.widgets.panel import legend, title
from vibetui.widgets.parts import Tabs

_EVERY_S = 0.5
_AT_ONCE = 8 << 20  # bytes of a log that are looked through before keys are heard again


class LogScreen(Tabbed):
    """The logs of a run."""

    kind = "log"
    BINDINGS = bindings("log")  # type: ignore[assignment]
    TABS = ("Events", "Agent", "Train", "Grader", "Engine")

    def __init__(self) -> None:
        super().__init__()
        self._follow = True
        self._log: LogFile | None = None
        self._news: tuple[News, ...] | None = None

    def body(self) -> ComposeResult:
        yield Tabs(self.TABS, id="tabs")
        with Container(id="part"):
            yield Lines(id="log", empty=" nothing was written yet")

    def on_mount(self) -> None:
        super().on_mount()
        self.open_tab(self.tab)
        self.set_interval(_EVERY_S, self._grow)

    def on_unmount(self) -> None:
        if self._log is not None:
            self._log.close()

    def show(self, view: View) -> None:
        if self.tab == 0:
            lines = self.query_one(Lines)
            if view.news is not self._news:
                self._news = view.news
                lines.show(news_lines(view.news), keep=True)
                if self._follow:
                    lines.last()
            self._said()

    def open_tab(self, to: int) -> None:
        super().open_tab(to)
        self.forget_hunts()
        if self._log is not None:
            self._log.close()
            self._log = None
        view, lines = self.vibe.view, self.query_one(Lines)
        if to == 0 or view is None:
            lines.show([])
            self._news = None
            self.again()
        else:
            name = self._file(view)
            self._log = LogFile(view.run.path, name)
            lines.show(FileLines(self._log))
            self._grow()
        title(lines, "the journal in words" if to == 0 or view is None else self._file(view))
        lines.focus()

    def _file(self, view: View) -> str:
        if self.tab == 2:
            return f"models/{detail.newest_model(view.run) or 'm01'}/train.log"
        return f"logs/{self.TABS[self.tab].lower()}.log"

    def _grow(self) -> None:
        """Look whether the file grew, a part at a time; only the screen that is seen looks."""
        if not self.on_top or self._log is None:
            return
        view, lines = self.vibe.view, self.query_one(Lines)
        if self.tab == 2 and view is not None and self._log.name != self._file(view):
            self.open_tab(2)
            return
        if took := self._log.grow(_AT_ONCE):
            lines.grown()
            if self._follow:
                lines.last()
        if took >= _AT_ONCE:
            self.call_after_refresh(self._grow)
        self._said()

    def _said(self) -> None:
        lines = self.query_one(Lines)
        found = f"   find “{one_line(self._word, 30)}”" if self._word else ""
        legend(lines, f"{lines.position()}{'   following' if self._follow else ''}{found}")

    # -- keys

    def _move(self, rows: int) -> None:
        super()._move(rows)
        self._follow = False if rows < 0 else self._follow
        self._said()

    def do_page_up(self) -> None:
        self._follow = False
        super().do_page_up()
        self._said()

    def do_top(self) -> None:
        self._follow = False
        super().do_top()
        self._said()

    def do_bottom(self) -> None:
        self._follow = True
        super().do_bottom()
        self._said()

    def do_follow(self) -> None:
        self._follow = not self._follow
        if self._follow:
            self.query_one(Lines).last()
        self._said()

    def _search(self, *, back: bool) -> None:
        self._follow = False
        super()._search(back=back)
        self._said()

    def found(self) -> None:
        self._said()

    def do_line(self) -> None:
        self.ask("line", self._go_to)

    def _go_to(self, number: str) -> None:
        if number.strip().isdecimal():
            self._follow = False
            self.query_one(Lines).go_to(int(number.strip()[:12]))
            self._said()
