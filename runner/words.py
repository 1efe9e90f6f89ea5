"""Advice for a person who mistyped."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Advice that names what is known, nearest first."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(names)}"
