"""From lines with roles to strips on the terminal: the one way by which our widgets paint.

Everything is cleaned here once more, whatever made it, and becomes ASCII where that was asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from rich.segment import Segment
from rich.style import Style
from textual.dom import DOMNode
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from vibetui.text import Line, crop, safe
from vibetui.theme import ASCII, ROLES, UNICODE, Role, Symbols, to_ascii

if TYPE_CHECKING:
    from vibetui.app import VibeApp

COMPONENTS = {f"v--{role}" for role in ROLES} | {"v--cursor"}


class Palette(DOMNode):
    """What has the colours of the roles: a screen, or a box with a background of its own.

    Not each widget for itself: fourteen widgets with thirteen colours each were half of the time to the first paint.
    """

    COMPONENT_CLASSES = COMPONENTS


def symbols_of(widget: Widget) -> Symbols:
    """The symbols that this terminal can show."""
    return ASCII if is_ascii(widget) else UNICODE


def is_ascii(widget: Widget) -> bool:
    """Was --ascii asked for?"""
    return bool(getattr(cast("VibeApp", widget.app), "ascii_only", False))


def style_of(widget: Widget, role: Role) -> Style:
    """The colours of a role in the current theme, on the background of the nearest palette around ``widget``."""
    return _palette(widget).get_component_rich_style(f"v--{role}")


def _palette(widget: Widget) -> Widget:
    return next(node for node in widget.ancestors if isinstance(node, Palette) and isinstance(node, Widget))


def strip_of(widget: Widget, of: Line, cells: int, *, chosen: bool = False) -> Strip:
    """A line as a strip of exactly ``cells`` cells."""
    plain = is_ascii(widget)
    behind = Style(bgcolor=_palette(widget).get_component_rich_style("v--cursor").bgcolor) if chosen else Style()
    segments = []
    for text, role in crop(of, cells):
        text = safe(text)
        segments.append(Segment(to_ascii(text) if plain else text, style_of(widget, role) + behind))
    return Strip(segments).adjust_cell_length(cells, style_of(widget, "text") + behind)


class Block(Widget):
    """A widget of a few lines that are made for its size. Subclasses say :meth:`build`; :meth:`changed` redraws."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._built: list[Line] | None = None
        self._built_for = Size(0, 0)

    def build(self, cells: int, rows: int) -> list[Line]:
        """The lines for this size."""
        raise NotImplementedError

    def changed(self) -> None:
        """Draw anew, but only where the lines became others; what is not in sight is drawn when it comes there."""
        old, self._built = self._built, None
        if not self.display or not self.size:
            return
        if old is not None and self._built_for == self.size:
            self._built = self.build(self.size.width, self.size.height)
            if self._built == old:
                return
        self.refresh()

    def lines(self) -> list[Line]:
        """What is shown now, made if need be."""
        if self._built is None or self._built_for != self.size:
            self._built = self.build(self.size.width, self.size.height)
            self._built_for = self.size
        return self._built

    def render_line(self, y: int) -> Strip:
        lines = self.lines()
        return strip_of(self, lines[y] if y < len(lines) else (), self.size.width)


class Scroller(ScrollView, can_focus=True, inherit_bindings=False):
    """A scrolling widget of many lines, painted one visible line at a time. Keys come from the registry."""

    empty = ""

    def say_if_empty(self, text: str) -> None:
        """What stands there where there are no rows."""
        if text != self.empty:
            self.empty = text
            self.refresh()

    def total(self) -> int:
        """Rows there are."""
        raise NotImplementedError

    def page(self) -> int:
        """Rows that are seen at once."""
        return max(1, self.size.height)

    def move(self, rows: int) -> None:
        """Go down by ``rows`` (up when negative)."""
        self.scroll_to(y=self.scroll_offset.y + rows, animate=False)

    def first(self) -> None:
        """Go to the start."""
        self.scroll_to(y=0, animate=False)

    def last(self) -> None:
        """Go to the end, also of lines that came this moment."""
        self.call_after_refresh(self._to_end)

    def _to_end(self) -> None:
        self.scroll_to(y=max(0, self.total() - self.page()), animate=False)

    def sideways(self, cells: int) -> None:
        """Go right by ``cells`` (left when negative)."""
        self.scroll_to(x=max(0, self.scroll_offset.x + cells), animate=False)

    def current(self) -> str:
        """The text of the row that a copy would take."""
        return ""
