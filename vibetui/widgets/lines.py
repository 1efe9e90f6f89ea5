"""Many lines to read: diffs, trajectories, logs. Lines may come from memory or, one by one, from a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from textual.geometry import Size
from textual.strip import Strip

from vibetui.files import LogFile
from vibetui.text import MAX_CELLS, Line, line, plain, width, wrapped
from vibetui.widgets.paint import Scroller, strip_of
from vibetui.widgets.panel import legend

_ASKED = 500  # lines that a search looks at before it asks whether it is still wanted
_WRAPPED = 20_000  # lines that are folded; a longer text is scrolled sideways


class Source(Protocol):
    """Lines by number."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> Line: ...


class FileLines:
    """A log as a source: each line is read and cleaned when it is painted."""

    def __init__(self, log: LogFile) -> None:
        self.log = log

    def __len__(self) -> int:
        return len(self.log)

    def __getitem__(self, number: int, /) -> Line:
        return line(self.log[number])


class Lines(Scroller):
    """A reader of lines with find, follow and folding. ``empty`` is what is shown when there is none."""

    def __init__(
        self, *, empty: str = "nothing here", wrap: bool = False, note: str | None = None, id: str | None = None
    ) -> None:
        """With a ``note``, the border says it, and before it which of the lines are seen where not all of them are."""
        super().__init__(id=id)
        self.empty, self.wrap, self.note = empty, wrap, note
        self._source: Source | Sequence[Line] = ()
        self._shown: Source | Sequence[Line] = ()
        self._marked: int | None = None
        self._folded_at = 0

    def show(self, source: Source | Sequence[Line], *, keep: bool = False) -> None:
        """Show other lines, from the start unless ``keep``."""
        if source is self._source or (isinstance(source, list) and source == self._source):
            return
        self._source = source
        if not keep:
            self._marked = None
            self.scroll_to(0, 0, animate=False)
        self._fold()

    def grown(self) -> None:
        """The source has more lines than before."""
        self._fold()

    def toggle_wrap(self) -> bool:
        """Fold long lines, or stop folding them; returns whether they are folded now."""
        self.wrap = not self.wrap
        self.scroll_to(x=0, animate=False)
        self._fold()
        return self.wrap

    def _fold(self) -> None:
        cells = self.size.width
        self._folded_at = cells
        if self.wrap and cells > 8 and isinstance(self._source, Sequence) and len(self._source) <= _WRAPPED:
            self._shown = [part for one in self._source for part in wrapped(one, cells)]
        else:
            self._shown = self._source
        widest = cells
        if self._shown is self._source:
            widest = max(cells, MAX_CELLS if not isinstance(self._source, Sequence) else self._widest())
        self.virtual_size = Size(widest, max(1, len(self._shown)))
        self._say_place()
        self.refresh()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._say_place()

    def _say_place(self) -> None:
        """There is more below: said where the screen says nothing else in the border."""
        if self.note is not None:
            place = self.position() if len(self._shown) > self.page() else ""
            legend(self, " · ".join(part for part in (place, self.note) if part))

    def _widest(self) -> int:
        assert isinstance(self._source, Sequence)
        return max((width(one) for one in self._source[:2000]), default=0)

    def on_resize(self) -> None:
        if self.size.width != self._folded_at:
            self._fold()
        self._say_place()

    def total(self) -> int:
        return len(self._shown)

    def render_line(self, y: int) -> Strip:
        at = self.scroll_offset.y + y
        cells = self.size.width
        if at >= len(self._shown):
            blank = at == 0 and not len(self._shown)
            return strip_of(self, ((self.empty, "muted"),) if blank else (), cells)
        of = self._shown[at]
        left = self.scroll_offset.x
        if left:
            of = _from(of, left)
        return strip_of(self, of, cells, chosen=at == self._marked)

    def hunt(self, word: str, *, back: bool = False) -> Callable[[Callable[[], bool]], int | None]:
        """A search, to be done in another thread, for the next (or previous) line that holds ``word``, around the end.

        It takes a function that says whether it is still wanted, and gives the line's number from 1.
        """
        step = -1 if back else 1
        start = self.scroll_offset.y if self._marked is None else self._marked + step
        if isinstance(self._shown, FileLines):
            log = self._shown.log.copy()
            return lambda wanted: _search_file(log, word, start, step, wanted)
        shown = self._shown
        return lambda wanted: search(shown, word, start, step, wanted)

    def go_to(self, number: int) -> None:
        """Go to a line by its number from 1."""
        self._marked = min(max(0, number - 1), max(0, len(self._shown) - 1))
        self.scroll_to(y=max(0, self._marked - self.page() // 3), animate=False)
        self.refresh()

    @property
    def at_end(self) -> bool:
        """Is the last line in sight?"""
        return self.scroll_offset.y + self.page() >= len(self._shown)

    def position(self) -> str:
        """``12–34 of 340``."""
        count = len(self._shown)
        first = min(self.scroll_offset.y + 1, count)
        return f"{first}–{min(count, self.scroll_offset.y + self.page())} of {count}" if count else "empty"

    def current(self) -> str:
        at = self.scroll_offset.y if self._marked is None else self._marked
        return plain(self._shown[at]) if at < len(self._shown) else ""


def search(lines: Source | Sequence[Line], word: str, start: int, step: int, wanted: Callable[[], bool]) -> int | None:
    """The number from 1 of the first line from ``start`` on, around the end, with ``word``; asks if ``wanted``."""
    sought, count = word.casefold(), len(lines)
    for i in range(count):
        if i % _ASKED == 0 and not wanted():
            return None
        at = (start + i * step) % count
        if sought in plain(lines[at]).casefold():
            return at + 1
    return None


def _search_file(log: LogFile, word: str, start: int, step: int, wanted: Callable[[], bool]) -> int | None:
    try:
        return search(FileLines(log), word, start, step, wanted)
    finally:
        log.close()


def _from(of: Line, cells: int) -> Line:
    """The line without its first ``cells`` characters."""
    kept = []
    for text, role in of:
        if cells >= len(text):
            cells -= len(text)
            continue
        kept.append((text[cells:], role))
        cells = 0
    return tuple(kept)
