"""Lines of text with roles: the only form in which anything reaches the terminal. Every span is clean by making.

A line is a tuple of spans, a span is (text, role). No markup is ever parsed. Widths are terminal cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size

from isolation.clean import clean, clean_line
from vibetui.theme import Role, Symbols

Span = tuple[str, Role]
Line = tuple[Span, ...]

MAX_CELLS = 4000  # of one line; the rest of a longer one is cut and says so


def safe(text: str, limit: int | None = MAX_CELLS) -> str:
    """Foreign or own text on one line, spaces kept: no control character, no escape sequence, no bidi mark."""
    return clean(text, limit).replace("\t", "    ").replace("\n", " ")


def one_line(text: str, limit: int = 200) -> str:
    """As :func:`safe` with every run of white space as one space."""
    return clean_line(text, limit)


def line(*spans: Span | str) -> Line:
    """A line from spans; a bare string has the role ``text``."""
    return tuple((safe(part), "text") if isinstance(part, str) else (safe(part[0]), part[1]) for part in spans)


def many(text: str, role: Role = "text", limit: int = 200_000) -> list[Line]:
    """The lines of a longer foreign text, each in one role."""
    return [line((part, role)) for part in clean(text, limit).split("\n")]


def width(of: Line | str) -> int:
    """Cells that a line or a text takes."""
    return cell_len(of) if isinstance(of, str) else sum(cell_len(text) for text, _ in of)


def plain(of: Line) -> str:
    """The line without its roles."""
    return "".join(text for text, _ in of)


def cut(text: str, cells: int) -> str:
    """``text`` in at most ``cells`` cells, with … where something is missing."""
    if cell_len(text) <= cells:
        return text
    return set_cell_size(text, cells - 1).rstrip() + "…" if cells > 1 else "…"[:cells]


def cell(text: str, cells: int, *, right: bool = False) -> str:
    """``text`` in exactly ``cells`` cells."""
    text = cut(text, cells)
    fill = " " * (cells - cell_len(text))
    return fill + text if right else text + fill


def crop(of: Line, cells: int) -> Line:
    """The line in at most ``cells`` cells."""
    if width(of) <= cells:
        return of
    kept: list[Span] = []
    left = cells
    for text, role in of:
        size = cell_len(text)
        if size > left or (size == left and (text, role) is not of[-1]):
            kept.append((cut(text + "  ", left), role))
            break
        kept.append((text, role))
        left -= size
    return tuple(kept)


def spread(left: Line, right: Line, cells: int) -> Line:
    """``left`` at the left, ``right`` at the right; the left gives way."""
    room = cells - width(right)
    if room < 4:
        return crop(left, cells)
    left = crop(left, room - 1)
    return (*left, (" " * (room - width(left)), "text"), *right)


def join(parts: Iterable[Line], between: str = "  ") -> Line:
    """Lines beside each other."""
    joined: list[Span] = []
    for part in parts:
        if part and joined:
            joined.append((between, "muted"))
        joined.extend(part)
    return tuple(joined)


def wrapped(of: Line, cells: int) -> list[Line]:
    """The line folded at ``cells`` cells; words are kept whole where they fit. What goes on is indented by two."""
    if cells < 8 or width(of) <= cells:
        return [of]
    result: list[Line] = []
    current: list[Span] = []
    left = cells
    for text, role in of:
        while text:
            size = cell_len(text)
            if size <= left:
                current.append((text, role))
                left -= size
                break
            piece = set_cell_size(text, left).rstrip(" ") if left > 0 else ""
            space = piece.rfind(" ")
            at = space + 1 if space > left // 2 else len(piece)
            current.append((text[:at], role))
            text = text[at:].lstrip(" ") if at else text
            result.append(tuple(current))
            current, left = [("  ", role)], cells - 2
    if width(tuple(current)) > 2 or not result:
        result.append(tuple(current))
    return result


def gauge(share: float, cells: int, role: Role, symbols: Symbols) -> Line:
    """A thin bar of ``cells`` cells, filled to ``share`` of 0…1."""
    done = round(min(1.0, max(0.0, share)) * cells)
    if share > 0 and done == 0:
        done = 1
    return ((symbols.full * done, role), (symbols.rest * (cells - done), "rail"))


def stacked(parts: Sequence[tuple[float, Role]], cells: int, symbols: Symbols) -> Line:
    """A bar of several parts that together fill it; nothing when there is nothing to show."""
    total = sum(max(0.0, part) for part, _ in parts)
    if total <= 0 or cells < 1:
        return ((symbols.rest * cells, "rail"),)
    spans: list[Span] = []
    drawn, passed = 0, 0.0
    for part, role in parts:
        passed += max(0.0, part)
        upto = round(passed / total * cells)
        spans.append((symbols.full * (upto - drawn), role))
        drawn = upto
    return tuple(spans)
