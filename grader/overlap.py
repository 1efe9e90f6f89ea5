"""Which graded problems occur in a text. Runs inside the vault, beside the problems; standard library and tasks only.

Three comparisons. *question*: the whole question, without anything but its letters and numbers, forwards, backwards or
in ROT13. *words*: 13 words of a question in a row. *reply*: a passage of what the model wrote in a validation. Problems
made from a template share their words with clean ones of the same kind, so of those only whole questions count. What
occurs in the material that every agent is given, or in three problems, says nothing and is dropped.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tasks.spec import Problem

WORDS = 13
ANCHOR = 24
SHORTEST = 12
"""Letters and digits below which a question is too common to be looked for."""
SHARED_BY = 3
PASSAGE = 4
"""Distinct sampled 13-grams (one in eight) that make a passage: some 45 words of a reply, word for word."""
NEAR = 400
REPLY_GRAMS = 2_000_000
_SAMPLED = 7

_WORD = re.compile(r"[^\W_]+")
_BETWEEN_NUMBERS = re.compile(r"(?<=\d)[\W_]+(?=\d)")
_REST = re.compile(r"[^\w|]+|_+")
_ASCII_REST = bytes(code for code in range(128) if not (chr(code).isalnum() or chr(code) == "|"))


@dataclass(frozen=True, slots=True)
class Hit:
    """A problem in a text: at which of its lines (from 0), and how it was recognised."""

    line: int
    problem: str
    how: str


def fold(text: str) -> str:
    """The text as it is compared: compatibility forms and case do not count."""
    return unicodedata.normalize("NFKC", text).casefold()


def squeeze(folded: str) -> str:
    """Letters and digits alone, and a bar where two numbers meet: 12 + 3 is not 1 + 23."""
    apart = _BETWEEN_NUMBERS.sub("|", folded.replace("|", " "))
    if apart.isascii():  # the common case, four times as fast
        return apart.encode("ascii").translate(None, _ASCII_REST).decode("ascii")
    return _REST.sub("", apart)


def grams(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Every run of 13 words."""
    return zip(*(words[start:] for start in range(WORDS)), strict=False)


@dataclass(slots=True)
class _Whole:
    """Whole questions, by their first letters."""

    patterns: dict[str, tuple[str, str]] = field(default_factory=dict)  # pattern → problem, how
    anchors: dict[str, list[str]] = field(default_factory=dict)
    short: set[str] = field(default_factory=set)

    def add(self, pattern: str, problem: str, how: str) -> None:
        if pattern in self.patterns or len(pattern) < SHORTEST:
            return
        self.patterns[pattern] = problem, how
        if len(pattern) < ANCHOR:
            self.short.add(pattern)
        else:
            self.anchors.setdefault(pattern[:ANCHOR], []).append(pattern)

    def find(self, text: str) -> Iterator[tuple[int, str]]:
        """(where, pattern) for each pattern in the squeezed ``text``."""
        anchors = self.anchors
        for at in [at for at in range(len(text) - ANCHOR + 1) if text[at : at + ANCHOR] in anchors] if anchors else ():
            for pattern in anchors[text[at : at + ANCHOR]]:
                if text.startswith(pattern, at) and _bounded(text, at, pattern):
                    yield at, pattern
        for pattern in self.short:
            at = text.find(pattern)
            while at >= 0:
                if _bounded(text, at, pattern):
                    yield at, pattern
                at = text.find(pattern, at + 1)


def _bounded(text: str, at: int, pattern: str) -> bool:
    """Whether no number goes on beyond the pattern's ends."""
    end = at + len(pattern)
    before = at > 0 and pattern[0].isdigit() and text[at - 1].isdigit()
    return not before and not (end < len(text) and pattern[-1].isdigit() and text[end].isdigit())


class Index:
    """What to look for, of one split."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self._whole = _Whole()
        self._grams: dict[tuple[str, ...], str] = {}
        self._replies: dict[int, str] = {}
        self._common: set[int] = set()
        self._twice: set[int] = set()
        self._known: set[int] = set()
        self.given: set[str] = set()
        """Problems that occur in the given material: they are not looked for."""
        self.of_templates = True
        shared: dict[tuple[str, ...], set[str]] = {}
        for problem in problems:
            self._add_whole(problem)
            if not problem.kind:
                self.of_templates = False
                for gram in grams(_WORD.findall(fold(problem.question))):
                    shared.setdefault(gram, set()).add(problem.id)
        self._grams = {gram: min(ids) for gram, ids in shared.items() if len(ids) < SHARED_BY}

    def _add_whole(self, problem: Problem) -> None:
        pattern = squeeze(fold(problem.question))
        for how, form in (
            ("question", str),
            ("question, backwards", lambda text: text[::-1]),
            ("question, in ROT13", lambda text: codecs.encode(text, "rot13")),
        ):
            self._whole.add(form(pattern), problem.id, how)

    def know(self, text: str) -> None:
        """``text`` is given to every agent: what is in it is no evidence."""
        folded = fold(text)
        for _, pattern in self._whole.find(squeeze(folded)):
            self.given.add(self._whole.patterns[pattern][0])
        if self._grams or not self.of_templates:
            for gram in grams(_WORD.findall(folded)):
                self._grams.pop(gram, None)
                if (mark := _mark(gram)) is not None:
                    self._known.add(mark)

    def reply(self, problem: str, text: str) -> bool:
        """What the model wrote for a validation problem; False when no more of it can be kept."""
        if self.of_templates:
            return True
        for mark in set(filter(None, map(_mark, grams(_WORD.findall(fold(text)))))):
            if mark in self._known or mark in self._common:
                continue
            owner = self._replies.get(mark)
            if owner is None:
                if len(self._replies) >= REPLY_GRAMS:
                    return False
                self._replies[mark] = problem
            elif owner != problem:
                # The second problem makes it doubtful, the third makes it common.
                if mark in self._twice:
                    self._common.add(mark)
                    del self._replies[mark]
                self._twice.add(mark)
        return True

    def find(self, text: str) -> list[Hit]:
        """Every problem in ``text``, each once a line."""
        folded = fold(text)
        hits = dict.fromkeys(self._whole_hits(folded))
        if self._grams or self._replies:
            hits.update(dict.fromkeys(self._word_hits(folded)))
        return [hit for hit in hits if hit.problem not in self.given]

    def _whole_hits(self, folded: str) -> Iterator[Hit]:
        for at, pattern in self._whole.find(squeeze(folded)):
            problem, how = self._whole.patterns[pattern]
            yield Hit(_line_of(folded, at), problem, how)

    def _word_hits(self, folded: str) -> Iterator[Hit]:
        words = _WORD.findall(folded)
        at_words: list[tuple[int, str]] = []
        marked: list[tuple[int, int]] = []
        for at, gram in enumerate(grams(words)):
            if gram in self._grams:
                at_words.append((at, self._grams[gram]))
            if self._replies and (mark := _mark(gram)) is not None and mark in self._replies:
                marked.append((at, mark))
        lines = _lines_of_words(folded) if at_words or marked else []
        for at, problem in at_words:
            yield Hit(lines[at], problem, f"{WORDS} words of the question")
        for first, (at, mark) in enumerate(marked):
            near = {other for place, other in marked[first : first + NEAR] if place - at <= NEAR}
            if len(near) >= PASSAGE:
                yield Hit(lines[at], self._replies[mark], "the model's reply in a validation")


def _mark(gram: tuple[str, ...]) -> int | None:
    """A number for one gram in eight, None for the others; the same in every process."""
    number = zlib.crc32(" ".join(gram).encode("utf-8", "replace"))
    return number if not number & _SAMPLED else None


def _line_of(folded: str, at: int) -> int:
    """The line of ``folded`` in which the letter ``at`` of its squeezed form lies."""
    passed, before = 0, ""
    lines = folded.split("\n")
    for number, line in enumerate(lines):
        squeezed = squeeze(line)
        if squeezed:
            passed += len(squeezed) + (before.isdigit() and squeezed[0].isdigit())
            before = squeezed[-1]
        if passed > at:
            return number
    return len(lines) - 1


def _lines_of_words(folded: str) -> list[int]:
    """The line of each word."""
    return [number for number, line in enumerate(folded.split("\n")) for _ in _WORD.findall(line)]
