"""JSON that hostile code wrote: parsed strictly, bounded in depth, and never an exception other than StrictError."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Never

MAX_DEPTH = 32
MAX_LINE = 1 << 20
_CHUNK = 1 << 16


class StrictError(ValueError):
    """The text is not JSON as we accept it; the message is ours and quotes nothing."""


def _constant(name: str) -> Never:
    raise StrictError("NaN and Infinity are not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise StrictError("a key occurs twice")
    return fields


def parse_object(data: bytes, max_depth: int = MAX_DEPTH) -> dict[str, Any]:
    """The JSON object in ``data`` (UTF-8): no key twice, no NaN, no lone surrogates, at most ``max_depth`` deep."""
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_constant)
    except StrictError:
        raise
    except RecursionError:
        raise StrictError(f"nested deeper than {max_depth}") from None
    except ValueError:
        raise StrictError("not JSON") from None
    if not isinstance(value, dict):
        raise StrictError("not a JSON object")
    _check(value, max_depth)
    return value


def _check(value: object, max_depth: int) -> None:
    """Breadth first, so that depth costs no stack."""
    level: list[object] = [value]
    for _ in range(max_depth):
        below: list[object] = []
        for item in level:
            if isinstance(item, str):
                _encodable(item)
            elif isinstance(item, dict):
                for key in item:
                    _encodable(key)
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        if not below:
            return
        level = below
    if any(isinstance(item, dict | list) for item in level):
        raise StrictError(f"nested deeper than {max_depth}")
    for item in level:
        if isinstance(item, str):
            _encodable(item)


def _encodable(text: str) -> None:
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise StrictError("a lone surrogate") from None


def shorten(text: str, limit: int) -> str:
    """``text`` cut to ``limit`` characters, saying how many are missing."""
    return text if len(text) <= limit else f"{text[:limit]}… [{len(text) - limit} characters cut]"


class LineReader:
    """Lines of a stream, each at most ``limit`` bytes; memory never exceeds a line and a chunk."""

    def __init__(self, stream: asyncio.StreamReader, limit: int = MAX_LINE) -> None:
        self._stream = stream
        self._limit = limit
        self._buffer = bytearray()
        self._searched = 0

    async def line(self) -> bytes | None:
        """The next line without its end, or None at the end of the stream (an unfinished line does not count).

        Raises StrictError when a line is too long.
        """
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if end >= 0:
                found = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                self._searched = 0
                self._bounded(len(found))
                return found
            self._searched = len(self._buffer)
            self._bounded(self._searched)
            chunk = await self._stream.read(_CHUNK)
            if not chunk:
                return None
            self._buffer += chunk

    def _bounded(self, size: int) -> None:
        if size > self._limit:
            raise StrictError(f"a line longer than {self._limit} bytes")
