"""Judges an answer text against an integer gold: a strict extractor first, math-verify only for what it cannot read.

Pure apart from the child process of ``equivalence``, which is used only when the last box holds no integer. Reason
codes: match, match_expr, mismatch, no_box, unterminated_think, not_integer, timeout.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from tasks.aime.equivalence import Relation
from tasks.spec import Verdict

LONGEST_CONTENT = 1000
_OPEN_THINK, _CLOSE_THINK = "<think>", "</think>"

_TOKEN = re.compile(r"(?P<box>\\?\\(?:boxed|fbox)\s*+\{)|\\.|(?P<open>\{)|(?P<close>\})", re.S)
_WRAPPER = re.compile(r"\\(?:boxed|fbox|text|textbf|textrm|textit|mathbf|mathrm|mathit|mathsf|bf|rm)\s*\{(.*)\}", re.S)
_UNIT = re.compile(r"\\(?:text|textrm|mathrm|mbox)\s*\{([^{}0-9]*)\}(?:\^\{?[23]\}?)?")
_DEGREES = re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-zA-Z]))|\\degree(?![a-zA-Z])|°")
_SPACING = re.compile(r"\\[,;:!> ]|~|\\q?quad(?![a-zA-Z])|\\(?:left|right)(?![a-zA-Z])")
_MODULUS = re.compile(r"\\pmod\s*(?:\{\s*[0-9]+\s*\}|[0-9]+)\s*$")
_THOUSANDS = re.compile(r"[0-9]{1,3}(?:(?:,|\{,\})[0-9]{3})+")
_INTEGER = re.compile(r"([+-]?)\s*([0-9]+)(?:\.0*)?")
_DECIMAL = re.compile(r"[+-]?[0-9]*\.[0-9]+")
_SPLIT_DIGITS = re.compile(r"[0-9]\s+[0-9]")
_SCALES = frozenset(("percent", "hundred", "thousand", "million", "dozen"))
_WIDE = str.maketrans({wide: chr(wide - 0xFEE0) for wide in range(0xFF01, 0xFF5F)} | {0x2212: "-", 0x3000: " "})


class Comparer(Protocol):
    """What relates an expression to an integer (``equivalence.Equivalence``)."""

    def compare(self, text: str, gold: int) -> Relation: ...


@dataclass(frozen=True, slots=True)
class Extracted:
    """What the extractor read: an integer, an expression still to be compared, or the code of why neither."""

    integer: int | None = None
    expression: str = ""
    reason: str = ""


def judge(gold: int, text: str, comparer: Comparer) -> Verdict:
    """Reward 1 for an answer equal to ``gold``, else 0, with the reason code. Total: any text has a verdict."""
    found = extract(text)
    if found.integer is not None:
        return _verdict("match" if found.integer == gold else "mismatch")
    if not found.expression:
        return _verdict(found.reason)
    codes = {"equal": "match_expr", "different": "mismatch", "no_number": "not_integer", "timeout": "timeout"}
    return _verdict(codes[comparer.compare(found.expression, gold)])


def _verdict(reason: str) -> Verdict:
    return Verdict(reward=1.0 if reason in ("match", "match_expr") else 0.0, reason=reason)


def extract(text: str) -> Extracted:
    """What the last box after the last ``</think>`` holds. Linear in the length of ``text``."""
    answer = text.rpartition(_CLOSE_THINK)[2]
    if _OPEN_THINK in answer:
        return Extracted(reason="unterminated_think")
    content = last_boxed(answer)
    if content is None:
        return Extracted(reason="no_box")
    return read(content) if len(content) <= LONGEST_CONTENT else Extracted(reason="not_integer")


def last_boxed(text: str) -> str | None:
    """The content of the brace-balanced ``\\boxed{}`` or ``\\fbox{}`` that opens last; None without one."""
    opened: list[int] = []  # where the content begins; negative for a brace that is no box
    last: tuple[int, int] | None = None
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        if kind == "box":
            opened.append(token.end())
        elif kind == "open":
            opened.append(-1)
        elif kind == "close" and opened:
            start = opened.pop()
            if start >= 0 and (last is None or start > last[0]):
                last = start, token.start()
    return text[last[0] : last[1]] if last else None


def read(content: str) -> Extracted:
    """What a box's content says, once wrappers, units and separators are off."""
    bare = _bare(_peel(content.translate(_WIDE).strip()))
    whole = _INTEGER.fullmatch(bare)
    if whole:
        return Extracted(integer=int(whole[2]) * (-1 if whole[1] == "-" else 1))
    if not bare or _refused(bare):
        return Extracted(reason="not_integer")
    return Extracted(expression=bare)


def _peel(content: str) -> str:
    while (wrapped := _WRAPPER.fullmatch(content)) and _balanced(wrapped[1]):
        content = wrapped[1].strip()
    return content


def _bare(content: str) -> str:
    """Units, degree and dollar signs, modulus, spacing and thousands separators removed; the last ``=`` part."""
    content = _UNIT.sub(_without_unit, _DEGREES.sub("", content))
    content = _SPACING.sub(" ", content).replace("\\$", "").replace("$", "").strip()
    content = _MODULUS.sub("", content).strip()
    if not _top_level_comma(content):
        content = _peel(_last_equals_part(content).strip())
    if _THOUSANDS.fullmatch(content):
        content = content.replace("{,}", "").replace(",", "")
    content = content.rstrip(".").strip() if not content.endswith("..") else content
    if re.fullmatch(r"\(\s*[+-]?[0-9]+\s*\)", content):
        content = content[1:-1].strip()
    return content


def _without_unit(unit: re.Match[str]) -> str:
    return unit[0] if _SCALES & set(unit[1].lower().split()) else " "


def _refused(bare: str) -> bool:
    """Is it something that is no single integer, whatever a lenient parser would make of it?"""
    if any(word in bare.lower() for word in _SCALES):
        return True
    return bool("%" in bare or _top_level_comma(bare) or _DECIMAL.fullmatch(bare) or _SPLIT_DIGITS.search(bare))


def _last_equals_part(text: str) -> str:
    """What follows the last ``=`` outside brackets that belongs to no ``<=``, ``>=``, ``!=`` or ``:=``."""
    depth, start = 0, 0
    for index, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if char == "=" and depth <= 0 and text[max(index - 1, 0)] not in "<>!:":
            start = index + 1
    return text[start:]


def _balanced(text: str) -> bool:
    depth = 0
    for char in text:
        depth += (char == "{") - (char == "}")
        if depth < 0:
            return False
    return depth == 0


def _top_level_comma(text: str) -> bool:
    """A comma outside brackets that separates no thousands."""
    if _THOUSANDS.search(text):
        text = _THOUSANDS.sub("0", text)
    depth = 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth <= 0:
            return True
    return False
