"""Tables as plain text, Markdown and CSV. What others wrote can be no markup, no formula and no second column."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from unicodedata import east_asian_width

from runner.record.describe import foreign
from runner.report.markdown import escape

Cell = str | int | float | None
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "−", "＝", "＋", "－", "＠")


def text_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns of clean text, two spaces apart."""
    table = [list(head), *([foreign(cell, 200) for cell in row] for row in rows)]
    widths = [max(_width(row[i]) for row in table) for i in range(len(head))]
    lines = ("  ".join(cell + " " * (w - _width(cell)) for cell, w in zip(row, widths, strict=True)) for row in table)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _width(text: str) -> int:
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; every cell is escaped here."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(escape(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def csv_table(head: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """CSV that a spreadsheet shows and does not run: text that could be a formula begins with an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    for row in rows:
        writer.writerow([_csv_cell(cell) for cell in row])
    return out.getvalue()


def _csv_cell(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, int | float):
        return repr(cell)
    text = foreign(cell, 300)
    return f"'{text}" if text.startswith(_FORMULA) else text
