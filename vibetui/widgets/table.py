"""A table with a chosen row: runs, candidates, problems. Cells are lines with roles; numbers stand right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from vibetui.text import Line, Span, cell, plain, safe, width
from vibetui.theme import Role
from vibetui.widgets.paint import Scroller, strip_of, symbols_of

_MEASURED = 500  # rows whose width decides the columns


@dataclass(frozen=True, slots=True)
class Column:
    """``flex`` takes what is left, ``least`` or more; ``drop`` > 0 leaves a narrow terminal, the highest first."""

    label: str
    right: bool = False
    flex: bool = False
    drop: int = 0
    most: int = 40
    least: int = 18


@dataclass(frozen=True, slots=True)
class Row:
    """``key`` names the row for ever, so that the choice stays where rows move. A cell is (text, role)."""

    key: str
    cells: tuple[tuple[str, Role], ...]
    mark: tuple[str, Role] = (" ", "text")


class Table(Scroller):
    """Rows under a header, one of them chosen."""

    class Chosen(Message):
        """Enter or a second click on a row."""

        def __init__(self, table: Table, key: str) -> None:
            super().__init__()
            self.table, self.key = table, key

        @property
        def control(self) -> Table:
            return self.table

    class Moved(Message):
        """Another row is chosen."""

        def __init__(self, table: Table, key: str) -> None:
            super().__init__()
            self.table, self.key = table, key

    def __init__(self, columns: Sequence[Column], *, empty: str = "none yet", id: str | None = None) -> None:
        super().__init__(id=id)
        self.columns, self.empty = tuple(columns), empty
        self.rows: tuple[Row, ...] = ()
        self._at = 0
        self._widths: list[int] = []

    def show(self, rows: Sequence[Row]) -> None:
        """Show these rows; the chosen row stays chosen by its key."""
        rows = tuple(rows)
        if rows == self.rows:
            return
        key = self.key
        self.rows = rows
        self._at = next((i for i, row in enumerate(rows) if row.key == key), min(self._at, max(0, len(rows) - 1)))
        self._measure()

    def _measure(self) -> None:
        seen = self.rows[:_MEASURED]
        wide = [
            min(column.most, max([len(column.label), *(width(row.cells[i][0]) for row in seen)]))
            for i, column in enumerate(self.columns)
        ]
        room = self.size.width - 3
        order = sorted((i for i, column in enumerate(self.columns) if column.drop), key=self._drop, reverse=True)
        while order and self._needed(wide) > room:
            wide[order.pop(0)] = 0
        for i, column in enumerate(self.columns):
            if column.flex and wide[i]:
                wide[i] = max(6, room - self._needed(wide) + column.least)
        self._widths = wide
        self.virtual_size = Size(self.size.width, max(2, len(self.rows) + 1))
        self._keep_in_sight()
        self.refresh()

    def _drop(self, i: int) -> int:
        return self.columns[i].drop

    def _needed(self, wide: list[int]) -> int:
        """Cells that the columns take; a flexible one is content with a few."""
        sizes = (self.columns[i].least if self.columns[i].flex else size for i, size in enumerate(wide) if size)
        return sum(size + 2 for size in sizes)

    def on_resize(self) -> None:
        self._measure()

    @property
    def key(self) -> str | None:
        """The chosen row."""
        return self.rows[self._at].key if self._at < len(self.rows) else None

    def choose(self, key: str) -> None:
        """Choose a row by its key."""
        for i, row in enumerate(self.rows):
            if row.key == key:
                self._go(i)

    def total(self) -> int:
        return len(self.rows) + 1

    def page(self) -> int:
        return max(1, self.size.height - 2)

    def move(self, rows: int) -> None:
        self._go(self._at + rows)

    def first(self) -> None:
        self._go(0)

    def last(self) -> None:
        self._go(len(self.rows) - 1)

    def _go(self, at: int) -> None:
        at = min(max(0, at), max(0, len(self.rows) - 1))
        if at != self._at:
            self._at = at
            self._keep_in_sight()
            self.refresh()
            if self.key is not None:
                self.post_message(self.Moved(self, self.key))

    def _keep_in_sight(self) -> None:
        top, seen = self.scroll_offset.y, max(1, self.size.height - 1)
        if self._at < top:
            self.scroll_to(y=self._at, animate=False)
        elif self._at >= top + seen:
            self.scroll_to(y=self._at - seen + 1, animate=False)

    def open(self) -> None:
        """Open the chosen row."""
        if self.key is not None:
            self.post_message(self.Chosen(self, self.key))

    def on_click(self, event: events.Click) -> None:
        at = self.scroll_offset.y + event.y - 1
        if event.y < 1 or at >= len(self.rows):
            return
        if at == self._at and event.chain > 1:
            self.open()
        self._go(at)

    def current(self) -> str:
        if self._at >= len(self.rows):
            return ""
        return "  ".join(text for text, _ in self.rows[self._at].cells)

    def render_line(self, y: int) -> Strip:
        cells = self.size.width
        if y == 0:
            return strip_of(self, self._head(), cells)
        at = self.scroll_offset.y + y - 1
        if at >= len(self.rows):
            return strip_of(self, ((f"   {self.empty}", "muted"),) if y == 1 and not self.rows else (), cells)
        chosen = at == self._at
        return strip_of(self, self._line(self.rows[at], chosen), cells, chosen=chosen and self.has_focus)

    def _head(self) -> Line:
        parts: list[Span] = [
            (cell(column.label, wide, right=column.right) + "  ", "muted")
            for column, wide in zip(self.columns, self._widths, strict=False)
            if wide
        ]
        return (("   ", "muted"), *parts)

    def _line(self, row: Row, chosen: bool) -> Line:
        pointer = symbols_of(self).cursor if chosen else " "
        spans: list[tuple[str, Role]] = [(pointer, "accent"), row.mark, (" ", "text")]
        for column, wide, (text, role) in zip(self.columns, self._widths, row.cells, strict=False):
            if wide:
                spans.append((cell(safe(text), wide, right=column.right) + "  ", role))
        return tuple(spans)

    def text(self) -> str:
        """All rows as plain text, for tests and copies."""
        return "\n".join(plain(self._line(row, False)) for row in self.rows)
