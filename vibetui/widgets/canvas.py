"""A canvas of terminal cells for charts: braille dots for lines (four by two in a cell), marks and text over them."""

from __future__ import annotations

from vibetui.text import Line
from vibetui.theme import Role

_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BLANK = 0x2800


class Canvas:
    """``cells`` × ``rows`` cells; dots are addressed from the top left, 2·cells × 4·rows of them.

    A later mark covers an earlier one, a mark covers dots; of two lines in a cell the later gives the colour.
    With ``coarse`` a line is drawn with whole characters (for terminals without braille).
    """

    def __init__(self, cells: int, rows: int, *, coarse: bool = False) -> None:
        self.cells, self.rows, self.coarse = cells, rows, coarse
        self._dots = [[0] * cells for _ in range(rows)]
        self._roles: list[list[Role]] = [["text"] * cells for _ in range(rows)]
        self._marks: list[list[str]] = [[""] * cells for _ in range(rows)]

    def dot(self, x: int, y: int, role: Role) -> None:
        """One dot; outside is nowhere."""
        column, row = x // 2, y // 4
        if 0 <= column < self.cells and 0 <= row < self.rows:
            self._dots[row][column] |= _BITS[y % 4][x % 2]
            if not self._marks[row][column]:
                self._roles[row][column] = role

    def across(self, x0: int, x1: int, y: int, role: Role, every: int = 1) -> None:
        """A horizontal line; ``every`` > 1 leaves gaps."""
        if self.coarse:
            for column in range(max(0, x0 // 2), min(self.cells - 1, x1 // 2) + 1):
                if every == 1 or column % 2 == 0:
                    self._under(column, y // 4, "-" if every == 1 else ".", role)
            return
        for x in range(max(0, x0), min(2 * self.cells - 1, x1) + 1):
            if x % every == 0:
                self.dot(x, y, role)

    def upright(self, x: int, y0: int, y1: int, role: Role, every: int = 1) -> None:
        """A vertical line."""
        low, high = sorted((max(0, y0), max(0, y1)))
        if self.coarse:
            for row in range(low // 4, min(self.rows - 1, high // 4) + 1):
                self._under(x // 2, row, "|" if every == 1 else ":", role)
            return
        for y in range(low, min(4 * self.rows - 1, high) + 1):
            if y % every == 0:
                self.dot(x, y, role)

    def slope(self, x0: int, y0: int, x1: int, y1: int, role: Role) -> None:
        """A straight line between two dots."""
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for i in range(steps + 1):
            x, y = x0 + (x1 - x0) * i // steps, y0 + (y1 - y0) * i // steps
            if self.coarse:
                self._under(x // 2, y // 4, ".", role)
            else:
                self.dot(x, y, role)

    def _under(self, column: int, row: int, sign: str, role: Role) -> None:
        if 0 <= column < self.cells and 0 <= row < self.rows and self._marks[row][column] in ("", ".", "-", "|", ":"):
            self._marks[row][column], self._roles[row][column] = sign, role

    def mark(self, column: int, row: int, sign: str, role: Role) -> None:
        """A sign in a cell, over everything."""
        if 0 <= column < self.cells and 0 <= row < self.rows:
            self._marks[row][column], self._roles[row][column] = sign, role

    def write(self, column: int, row: int, text: str, role: Role) -> None:
        """A text in a row."""
        for i, sign in enumerate(text):
            self.mark(column + i, row, sign, role)

    def line(self, row: int) -> Line:
        """A row of the canvas as a line, runs of one role together."""
        spans: list[tuple[str, Role]] = []
        for sign, dots, role in zip(self._marks[row], self._dots[row], self._roles[row], strict=True):
            text = sign or (chr(_BLANK + dots) if dots else " ")
            if spans and (spans[-1][1] == role or text == " "):
                spans[-1] = (spans[-1][0] + text, spans[-1][1])
            else:
                spans.append((text, role))
        return tuple(spans)
