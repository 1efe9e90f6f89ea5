"""Foreign text made safe to show: no escape sequence, control character or invisible direction change survives.

What is left is plain text. Markup (HTML, rich, Markdown, CSV) is the business of whoever renders it.
"""

from __future__ import annotations

import re

_REST = r"[^\x07\x1b\x9c\n]{0,65536}"
_SEQUENCES = re.compile(
    r"(?:\x1b[\]PX^_k]|[\x90\x98\x9d\x9e\x9f])" + _REST + r"(?:\x07|\x1b\\|\x9c|(?=\x1b)|(?=\n)|\Z)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
)
_FORBIDDEN = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and newline, DEL, C1
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # soft hyphen and other invisible marks
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # zero width, bidi, line separators
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"  # fillers, variation selectors, annotations
    "\ud800-\udfff"  # surrogates
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # musical format controls, tags and variation selectors
    "]"
)
_SPACES = re.compile(r"\s+")
_CUT = "…"


def clean(text: str, limit: int | None = None) -> str:
    """``text`` without anything but printable characters, tabs and newlines; at most ``limit`` characters long."""
    if limit is not None:
        text = text[: limit * 4 + 65536]
    return _cut(_FORBIDDEN.sub("", _SEQUENCES.sub("", text)), limit)


def clean_line(text: str, limit: int | None = None) -> str:
    """As :func:`clean`, on one line: every run of white space is one space."""
    return _cut(_SPACES.sub(" ", clean(text, None if limit is None else limit * 4)).strip(), limit)


def _cut(text: str, limit: int | None) -> str:
    if limit is None or len(text) <= limit:
        return text
    return text[: max(0, limit - 1)] + _CUT if limit > 0 else ""
