"""What things look like: the roles text can have, the one own theme, and the symbols (with their ASCII forms)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from textual.theme import Theme

Role = Literal["text", "muted", "accent", "good", "warn", "bad", "strong", "title", "add", "del", "hunk", "rail"]
ROLES: tuple[Role, ...] = get_args(Role)

NAME = "vibe"
BACKGROUND = "#15171c"
COLORS: dict[str, str] = {
    "text": "#d5d9e0",
    "muted": "#959dab",
    "accent": "#7fc8d8",
    "good": "#9ccf9a",
    "warn": "#e3c07c",
    "bad": "#ec9a90",
}
RAIL = "#3c424d"  # borders and the unused part of gauges: never text
CURSOR = "#272c35"  # behind the row that is chosen


def own() -> Theme:
    """The one theme that is ours: every text has a contrast of at least 4.5 to what is behind it."""
    return Theme(
        name=NAME,
        primary=COLORS["accent"],
        secondary=COLORS["muted"],
        accent=COLORS["accent"],
        foreground=COLORS["text"],
        background=BACKGROUND,
        surface=BACKGROUND,
        panel=CURSOR,
        success=COLORS["good"],
        warning=COLORS["warn"],
        error=COLORS["bad"],
        variables={
            "text-muted": COLORS["muted"],
            "text-accent": COLORS["accent"],
            "text-success": COLORS["good"],
            "text-warning": COLORS["warn"],
            "text-error": COLORS["bad"],
            "rail": RAIL,
            "row": CURSOR,
        },
    )


@dataclass(frozen=True, slots=True)
class Symbols:
    """The marks that carry meaning; every one has a word or another shape beside it."""

    live: str = "●"
    quiet: str = "◌"
    crashed: str = "✗"
    finished: str = "■"
    copied: str = "◇"
    starting: str = "○"
    point: str = "●"
    star: str = "★"
    cross: str = "✗"
    base: str = "┄"
    end: str = "┊"
    full: str = "━"
    rest: str = "─"
    cursor: str = "▸"
    axis: str = "┤"
    rule: str = "│"


UNICODE = Symbols()
ASCII = Symbols(
    live="*", quiet="~", crashed="x", finished="#", copied="=", starting="0", point="o", star="*", cross="x", base=".",
    end=":", full="=", rest="-", cursor=">", axis="|", rule="|",
)  # fmt: skip
_TABLE = str.maketrans("−–—·…±×Δ→←↵“”‘’≤≥∞⏎↑↓●★✗┄┊━─│┤▸■◌◇○═✓⢸⣀", "---..~xd><e\"\"''<>8e^vo*x.:=-||>#~=o=+|-")


def to_ascii(text: str) -> str:
    """``text`` in ASCII, as wide as before: known signs by a like one, anything else as a question mark."""
    return text.translate(_TABLE).encode("ascii", "replace").decode()


def contrast(one: str, other: str) -> float:
    """The WCAG contrast of two colours written as #rrggbb, 1…21."""
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
