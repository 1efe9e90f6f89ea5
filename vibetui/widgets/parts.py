"""Small parts of several screens: a few lines of facts, and the names of the parts of a screen with their keys."""

from __future__ import annotations

from vibetui.text import Line, line, width
from vibetui.theme import Role
from vibetui.widgets.paint import Block


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
        under.append(("─" * (cells - width(tuple(under))), "rail"))
        return [line(*spans), line(*under)]
