"""Titles in borders: only ever Content, never a string that could be taken for markup."""

from __future__ import annotations

from textual.content import Content
from textual.widget import Widget

from vibetui.text import one_line
from vibetui.theme import to_ascii
from vibetui.widgets.paint import is_ascii


def title(widget: Widget, text: str) -> None:
    """Put ``text`` into the top border."""
    content = _content(widget, text)
    if content.plain != getattr(widget, "_said_title", None):
        widget._said_title = content.plain  # type: ignore[attr-defined]
        widget.border_title = content


def legend(widget: Widget, text: str) -> None:
    """Put ``text`` into the bottom border."""
    content = _content(widget, text)
    if content.plain != getattr(widget, "_said_legend", None):
        widget._said_legend = content.plain  # type: ignore[attr-defined]
        widget.border_subtitle = content


def _content(widget: Widget, text: str) -> Content:
    text = one_line(text, 200)
    return Content(f" {to_ascii(text) if is_ascii(widget) else text} " if text else "")
