"""Question texts: how they are compared and how they are asked. Only the standard library, for any environment."""

from __future__ import annotations

import re
import unicodedata

INSTRUCTION = "Solve the problem and put the final integer answer in \\boxed{}."
_DELIMITERS = re.compile(r"\\[()\[\]]|\$+")
_SPACE = re.compile(r"\s+")


def normalise(text: str) -> str:
    """The form in which two questions are compared: NFKC, case, spacing and math delimiters do not count."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return _SPACE.sub(" ", _DELIMITERS.sub("", folded)).strip()


def prompt(question: str) -> str:
    """The user message: what the harness that comes with the task sends, and what training rows begin with."""
    return f"{question}\n{INSTRUCTION}"
