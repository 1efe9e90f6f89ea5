"""Compare two snapshots of one component, inside an intake sandbox: both sides are hostile text.

stdin: {"kind": "code" | "data", "files": [{"path", "old": sha256 | null, "new": sha256 | null}, ...]}, objects at
/in/objects/<aa>/<sha256>. stdout: one JSON object {"added", "removed", "files", "patch", "notes", "data"}. Counts are
lines (code) or rows (data). Standard library only.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OBJECTS = Path("/in/objects")
FILE_BYTES = 256 * 1024  # a larger text file is counted, not shown
FILE_LINES = 20_000  # difflib is quadratic at worst
PATCH_CHARS = 1024 * 1024
LINE_BYTES = 16 * 1024 * 1024
SAMPLES = 20
SAMPLE_CHARS = 2000


def main() -> None:
    task = json.loads(sys.stdin.buffer.read())
    compare = compare_data if task["kind"] == "data" else compare_code
    json.dump(compare(task["files"]), sys.stdout)


def open_object(digest: str | None) -> Path | None:
    return None if digest is None else OBJECTS / digest[:2] / digest


def lines_of(path: Path | None) -> Iterator[bytes]:
    """The lines of a file in pieces of bounded size; nothing for a missing side."""
    if path is None:
        return
    with path.open("rb") as file:
        while line := file.readline(LINE_BYTES):
            yield line.rstrip(b"\r\n")


def counts(path: Path | None) -> Counter[bytes]:
    return Counter(hashlib.blake2b(line, digest_size=12).digest() for line in lines_of(path) if line)


def text_of(path: Path | None) -> list[str] | None:
    """The lines of a text small enough to compare line by line, else None."""
    if path is None:
        return []
    if path.stat().st_size > FILE_BYTES:
        return None
    content = path.read_bytes()
    if b"\0" in content:
        return None
    try:
        lines = content.decode().splitlines(keepends=True)
    except UnicodeDecodeError:
        return None
    return lines if len(lines) <= FILE_LINES else None


def compare_code(files: list[dict[str, Any]]) -> dict[str, Any]:
    """Unified patches and line counts."""
    added = removed = 0
    patch: list[str] = []
    room = PATCH_CHARS
    notes: list[str] = []
    for file in files:
        old, new = open_object(file["old"]), open_object(file["new"])
        before, after = text_of(old), text_of(new)
        if before is None or after is None:
            gone, come = counts(old), counts(new)
            added += (come - gone).total()
            removed += (gone - come).total()
            notes.append(f"{file['path']}: not shown (binary, or more than 256 KiB)")
            continue
        lines = [
            line if line.endswith("\n") else line + "\n"
            for line in difflib.unified_diff(before, after, f"a/{file['path']}", f"b/{file['path']}")
        ]
        added += sum(line[0] == "+" for line in lines[2:])
        removed += sum(line[0] == "-" for line in lines[2:])
        text = "".join(lines)
        patch.append(text[:room])
        if len(text) > room:
            notes.append(f"{file['path']}: the patch is cut here")
        room = max(0, room - len(text))
    return {"added": added, "removed": removed, "files": len(files), "patch": "".join(patch), "notes": notes}


def compare_data(files: list[dict[str, Any]]) -> dict[str, Any]:
    """Rows by hash over all files: added, removed, changed (same prompt, other completion), lengths, samples."""
    before: Counter[bytes] = Counter()
    after: Counter[bytes] = Counter()
    for file in files:
        before.update(counts(open_object(file["old"])))
        after.update(counts(open_object(file["new"])))
    come, gone = after - before, before - after
    shown = {"added": samples(files, "new", come), "removed": samples(files, "old", gone)}
    prompts = {side: prompt_counts(files, side, rows) for side, rows in (("new", come), ("old", gone))}
    summary = {
        "rows_before": before.total(),
        "rows_after": after.total(),
        "changed": (prompts["new"] & prompts["old"]).total(),
        "lengths": {side: lengths(files, side) for side in ("old", "new")},
        "samples": shown,
    }
    size = {"added": come.total(), "removed": gone.total(), "files": len(files)}
    return {**size, "patch": "", "notes": [], "data": {**size, **summary}}


def rows_in(files: list[dict[str, Any]], side: str, wanted: Counter[bytes]) -> Iterator[bytes]:
    """The lines of ``side`` that ``wanted`` counts."""
    left = Counter(wanted)
    for file in files:
        for line in lines_of(open_object(file[side])):
            key = hashlib.blake2b(line, digest_size=12).digest()
            if line and left[key] > 0:
                left[key] -= 1
                yield line


def samples(files: list[dict[str, Any]], side: str, wanted: Counter[bytes]) -> list[str]:
    chosen: list[str] = []
    for line in rows_in(files, side, wanted):
        if len(chosen) == SAMPLES // 2:
            break
        chosen.append(line[: SAMPLE_CHARS * 4].decode("utf-8", "replace")[:SAMPLE_CHARS])
    return chosen


def prompt_counts(files: list[dict[str, Any]], side: str, wanted: Counter[bytes]) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    for line in rows_in(files, side, wanted):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and isinstance(row.get("prompt"), str):
            found[hashlib.blake2b(row["prompt"].encode("utf-8", "replace"), digest_size=12).digest()] += 1
    return found


def lengths(files: list[dict[str, Any]], side: str) -> dict[str, float]:
    """Bytes per row: mean and longest."""
    total = rows = longest = 0
    for file in files:
        for line in lines_of(open_object(file[side])):
            if line:
                total, rows, longest = total + len(line), rows + 1, max(longest, len(line))
    return {"mean": round(total / rows, 1) if rows else 0.0, "longest": longest}


if __name__ == "__main__":
    main()
