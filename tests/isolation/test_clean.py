"""Foreign text: nothing that acts on a terminal, reorders or hides what is shown."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isolation.clean import clean, clean_line

PIECES = st.sampled_from(
    ["\x1b", "[", "]52;c;", "31m", "\x07", "\x9b", "\x9d", "\x90", "\\", "\u202e", "\u200b", "\ud800", "a", "é",
     "\n", "\t", "\r", "\x00", "\x7f", "P", "X", "^", "_", "\U000e0041", "\ufeff"]
)  # fmt: skip
HOSTILE = st.one_of(st.text(), st.lists(PIECES, max_size=60).map("".join))


@given(HOSTILE)
def test_only_printable_text_tabs_and_newlines_survive(text: str) -> None:
    safe = clean(text)
    for char in safe:
        assert char in "\t\n" or unicodedata.category(char) not in ("Cc", "Cs", "Zl", "Zp"), repr(char)
        assert unicodedata.bidirectional(char) not in ("RLE", "LRE", "RLO", "LRO", "PDF", "RLI", "LRI", "FSI", "PDI")
    safe.encode()


@given(HOSTILE)
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    assert clean(clean(text)) == clean(text)
    assert clean_line(clean_line(text)) == clean_line(text)


@given(HOSTILE, st.integers(0, 50))
def test_the_limit_holds(text: str, limit: int) -> None:
    assert len(clean(text, limit)) <= limit
    line = clean_line(text, limit)
    assert len(line) <= limit and "\n" not in line and "\t" not in line


@given(st.text(st.characters(whitelist_categories=("L", "N", "P", "Sm", "Sc"))))
def test_harmless_text_is_untouched(text: str) -> None:
    kept = "".join(c for c in text if c not in "\u115f\u1160\u3164\uffa0")
    assert clean(text) == kept


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("a\x1b]52;c;ZXZpbA==\x07b", "ab"),
        ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b2Jx", "x"),
        ("\x1bP+q544e\x1b\\x", "x"),
        ("\x1b]0;never ended", ""),
        ("one\x1b]0;title\ntwo", "one\ntwo"),
        ("user\u202etxt.exe", "usertxt.exe"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("lone\ud83dsurrogate", "lonesurrogate"),
        ("a\r\nb", "a\nb"),
        ("日本語 Ω → ≤", "日本語 Ω → ≤"),
    ],
)
def test_known_attacks(text: str, safe: str) -> None:
    assert clean(text) == safe


def test_a_megabyte_of_escapes_is_cleaned_in_linear_time() -> None:
    assert clean("\x1b]" * 500_000) == ""
    assert clean("\x1b[" + "9" * 1_000_000) == ""
