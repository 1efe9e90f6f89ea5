"""Every text that is in some bytes: as they are, decoded, unpacked. Runs in a sandbox that holds no problem.

Standard library only. What comes in is hostile: each expansion is bounded in size and depth, and what could not be
looked into is said, never passed over.
"""

from __future__ import annotations

import ast
import base64
import binascii
import bz2
import contextlib
import io
import json
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

DEPTH = 4
EXPANSION = 64 << 20
_FEW = 24
_WORDS = 8  # of a row, of which every part is tried

RUN = re.compile(r"((?:[A-Za-z0-9+/_=-]{24,}[\s\"',\\]{0,8})+)([A-Za-z0-9+/_=-]*)")
"""Words that no one writes: what encodings of bytes look like, over any number of lines; and a shorter last one."""
_ESCAPE = re.compile(r"\\(?:(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})|([0-7]{1,3})|.)")
_SPELLED = re.compile(r"(?<!\w)(\w)[ .-](?=\w(?!\w))")
_CODES = re.compile(r"(?:\d{1,3}[\s,]+){24,}\d{1,3}")
_BREAKS = re.compile(r"[\s\"',\\]+")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})+")
_STRINGS = re.compile(rb"[\x20-\x7e\t\n]{32,}")
_PRINTABLE = re.compile(r"[^\x00-\x08\x0e-\x1f\x7f-\x9f\ufffd]")


@dataclass(frozen=True, slots=True)
class View:
    """A text and how it was got (``via``: "" for the file itself, "base64>gzip"). ``line``: where it begins in the
    file; ``moves`` says whether its lines are the file's."""

    text: str
    via: str
    line: int
    moves: bool


@dataclass(slots=True)
class Budget:
    """What may still be unpacked, and what had to be left out."""

    room: int = EXPANSION
    left_out: list[str] = field(default_factory=list)

    def take(self, size: int, what: str) -> bool:
        """Whether ``size`` more bytes fit; what does not fit is noted."""
        if size > self.room:
            self.left_out.append(what)
            return False
        self.room -= size
        return True


def views(data: bytes, budget: Budget, via: str = "", line: int = 1, depth: int = 0) -> Iterator[View]:
    """Every text in ``data``."""
    name = via.rpartition(">")[2] or "the file"
    if depth > DEPTH:
        budget.left_out.append(f"packed more than {DEPTH} times")
        return
    unpacked = list(_unpacked(data, budget))
    if unpacked:
        for how, inner in unpacked:
            yield from views(inner, budget, _chain(via, how), line, depth + 1)
        return
    text = text_of(data)
    if text is None:
        budget.left_out.append(f"{name} is not text")
        for found in _STRINGS.finditer(data):
            yield View(found[0].decode("ascii"), _chain(via, "strings"), line, False)
        return
    yield View("\n".join(map(_said, text.splitlines())), via, line, not via)
    for begin, how, inner in _hidden(text, budget):
        at = line + text.count("\n", 0, begin) if not via else line
        yield from views(inner, budget, _chain(via, how), at, depth + 1)


def _chain(via: str, how: str) -> str:
    return f"{via}>{how}" if via else how


def text_of(data: bytes) -> str | None:
    """``data`` as text, None when it is none."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        with contextlib.suppress(UnicodeDecodeError):
            return data.decode("utf-16")
    with contextlib.suppress(UnicodeDecodeError):
        text = data.decode("utf-8")
        return text if _readable(text) else None
    text = data.decode("latin-1")
    return text if _readable(text[:65536]) and b"\0" not in data else None


def _readable(text: str) -> bool:
    sample = text[:65536]
    return len(_PRINTABLE.findall(sample)) >= 0.9 * len(sample)


def _said(line: str) -> str:
    """What a line says; what is spelled letter by letter in it is said in words, too."""
    text = _texts_of(line)
    if len(_SPELLED.findall(text)) >= _FEW:
        return f"{text} {_SPELLED.sub(_first, text)}"
    return text


def _first(found: re.Match[str]) -> str:
    return found[1]


def _texts_of(line: str) -> str:
    """The texts of a JSON line; of any other the line, and with its escapes resolved beside it."""
    start = line.lstrip()[:1]
    if start in ("{", "["):
        with contextlib.suppress(ValueError, RecursionError):
            return " ".join(" ".join(_texts(json.loads(line))).splitlines())
    if "\\" not in line:
        return line
    return f"{line} {_ESCAPE.sub(_unescaped, line)}"


def _unescaped(found: re.Match[str]) -> str:
    """The character that ``\\x41``, ``\\u0041`` or ``\\101`` stands for; a space for any other escape."""
    code = int(found[1][1:], 16) if found[1] else int(found[2], 8) if found[2] else 32
    return chr(code) if code < 0xD800 else " "


def _texts(value: object) -> Iterator[str]:
    """Every text in a JSON value, keys too, in order."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            stack.extend(part for pair in reversed(item.items()) for part in reversed(pair))
        elif isinstance(item, list):
            stack.extend(reversed(item))


def _unpacked(data: bytes, budget: Budget) -> Iterator[tuple[str, bytes]]:
    """What is in an archive or a compressed stream; nothing for anything else."""
    streams: tuple[tuple[bytes, str, Callable[[], object]], ...] = (
        (b"\x1f\x8b", "gzip", lambda: zlib.decompressobj(31)),
        (b"BZh", "bzip2", bz2.BZ2Decompressor),
        (b"\xfd7zXZ\x00", "xz", lambda: lzma.LZMADecompressor(memlimit=256 << 20)),
        (b"x", "zlib", zlib.decompressobj),
    )
    for magic, how, make in streams:
        if data.startswith(magic) and (inner := _inflated(data, make(), budget, how)) is not None:
            yield how, inner
            return
    if data.startswith(b"(\xb5/\xfd"):
        budget.left_out.append("zstd cannot be unpacked here")
    elif data.startswith(b"PK\x03\x04"):
        yield from _members(data, budget)


def _inflated(data: bytes, stream: object, budget: Budget, how: str) -> bytes | None:
    """The whole of a compressed stream, as far as there is room."""
    try:
        inner: bytes = stream.decompress(data, budget.room + 1)  # type: ignore[attr-defined]
    except (zlib.error, OSError, ValueError, EOFError, lzma.LZMAError):
        return None
    inner = inner[: budget.room] if not budget.take(len(inner), f"{how} larger than {EXPANSION >> 20} MiB") else inner
    return inner


def _members(data: bytes, budget: Budget) -> Iterator[tuple[str, bytes]]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.infolist()[:1000]:
                if member.flag_bits & 1 or not budget.take(member.file_size, "a zip that is locked or too large"):
                    budget.left_out.append("a zip that is locked or too large")
                    continue
                with archive.open(member) as stream:
                    yield "zip", stream.read(member.file_size)
            if len(archive.infolist()) > 1000:
                budget.left_out.append("a zip of more than 1000 files")
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError, zlib.error, ValueError):
        budget.left_out.append("a zip that cannot be read")


def _hidden(text: str, budget: Budget) -> Iterator[tuple[int, str, bytes]]:
    """Bytes that are written in a text: base64, base32, base85, hex, lists of character codes; and where."""
    for found in RUN.finditer(text):
        for how, inner in _joined(found):
            if budget.take(len(inner), "encoded text larger than there is room for"):
                yield found.start(), how, inner
    for found in _CODES.finditer(text):
        codes = [int(code) for code in re.findall(r"\d+", found[0])]
        if max(codes) < 256 and (inner := bytes(codes)) and _worth(inner):
            yield found.start(), "character codes", inner


def _joined(found: re.Match[str]) -> Iterator[tuple[str, bytes]]:
    """What a row of encoded words says: all together, with or without the shorter last one; else every longest part of
    the row that says something, because a neighbour may be noise that was put there to spoil the whole."""
    for word in (_BREAKS.sub("", found[0]), _BREAKS.sub("", found[1])):
        if said := next(_decoded(word), None):
            yield said
            return
    words = [word for word in _BREAKS.split(found[0]) if word]
    count = len(words)
    parts = [(begin, begin + size) for size in range(count - 1, 0, -1) for begin in range(count - size + 1)]
    if count > _WORDS:  # without the first, the last, both; and each alone
        parts = [(1, count), (0, count - 1), (1, count - 1), *((n, n + 1) for n in range(count))]
    taken: set[int] = set()
    for begin, end in parts:
        if taken.isdisjoint(range(begin, end)) and (said := next(_decoded("".join(words[begin:end])), None)):
            taken.update(range(begin, end))
            yield said


def _decoded(word: str) -> Iterator[tuple[str, bytes]]:
    """Readings of one encoded word that give text or something packed."""
    if _HEX.fullmatch(word) and _worth(inner := bytes.fromhex(word)):
        yield "hex", inner
    plain = word.replace("-", "+").replace("_", "/").rstrip("=")
    for skip in range(4):
        part = plain[skip:]
        part = part[: len(part) - (len(part) % 4 == 1)]
        with contextlib.suppress(binascii.Error, ValueError):
            inner = base64.b64decode(part + "=" * (-len(part) % 4))
            if _worth(inner):
                yield "base64", inner
                return
    with contextlib.suppress(binascii.Error, ValueError):
        inner = base64.b32decode(plain + "=" * (-len(plain) % 8), casefold=True)
        if _worth(inner):
            yield "base32", inner


def _worth(inner: bytes) -> bool:
    """Whether decoded bytes are a text of some length, or packed: chance gives neither."""
    if inner.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"PK\x03\x04", b"x\x9c", b"x\xda", b"x\x01", b"x^")):
        return True
    if len(inner) < _FEW or sum(byte in b"\t\n\r" or 32 <= byte < 127 for byte in inner[:4096]) < 0.8 * len(
        inner[:4096]
    ):
        return False
    return text_of(inner) is not None


def literal_text(source: str) -> str:
    """The texts of a Python program, constant by constant, joined: strings that are put together there are whole."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    found = [(node.lineno, node.col_offset, node.value) for node in ast.walk(tree)
             if isinstance(node, ast.Constant) and isinstance(node.value, str)]  # fmt: skip
    return " ".join(" ".join(value.split()) for _, _, value in sorted(found))
