"""How many rows of training data are a teacher's words, inside an intake sandbox: both sides are foreign text.

stdin: {"data": [sha256, ...], "samples": ["s001", ...]}; objects at /in/objects/<aa>/<sha256>, replies at
/in/samples/<sample>.jsonl. stdout: {"rows": rows with a value that is a reply as a whole, "of": rows}. Spaces at both
ends do not count. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LINE_BYTES = 16 * 1024 * 1024
DEPTH = 5


def rows_of(path: Path) -> Iterator[Any]:
    """The JSON objects of a file, a line each; other lines are passed over."""
    with path.open("rb") as file:
        while line := file.readline(LINE_BYTES):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict):
                yield row


def texts(value: Any, depth: int = DEPTH) -> Iterator[str]:
    """Every text in a row."""
    if isinstance(value, str):
        yield value
    elif depth and isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from texts(part, depth - 1)


def mark(text: str) -> bytes:
    return hashlib.blake2b(text.strip().encode("utf-8", "replace"), digest_size=16).digest()


def main() -> None:
    task = json.loads(sys.stdin.buffer.read())
    known = {
        mark(row["text"])
        for name in task["samples"]
        for row in rows_of(Path("/in/samples") / f"{name}.jsonl")
        if isinstance(row.get("text"), str) and row["text"].strip()
    }
    of = found = 0
    for digest in task["data"]:
        for row in rows_of(Path("/in/objects") / digest[:2] / digest):
            of += 1
            found += any(mark(text) in known for text in texts(row))
    json.dump({"rows": found, "of": of}, sys.stdout)


if __name__ == "__main__":
    main()
