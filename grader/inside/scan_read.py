"""The reader: walks folders of snapshots and prints every text in them as JSON lines. Runs in a sandbox of its own.

    python scan_read.py '{"parts": ["/in/0"], "replies": ["/in/1"]}'

Lines: ``{"part", "path", "line", "moves", "via", "text"}`` (a piece of a file), ``{"part", "path", "weights"}``,
``{"part", "path", "opaque"}``, ``{"part", "path", "left_out"}``, ``{"problem", "text"}`` (a reply in a trajectory),
and ``{"done": bytes}`` at the end. It holds no problem, so what hostile bytes make of it reaches none.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grader.inside.scan_blobs import opaque_bytes, weights_kind
    from grader.inside.scan_views import Budget, View, literal_text, views
else:  # the folder holds just these three files, and no package of ours
    from scan_blobs import opaque_bytes, weights_kind
    from scan_views import Budget, View, literal_text, views

PIECE = 128 << 10
OVERLAP = 4 << 10
"""Characters of a piece that the next one repeats, so that no question lies on a border. No question is longer."""
LARGEST_FILE = 512 << 20


def files(folder: str) -> Iterator[tuple[str, str]]:
    """(relative path, path) of every regular file below ``folder``, or the file itself; sorted."""
    if os.path.isfile(folder):  # noqa: PTH113
        yield os.path.basename(folder), folder  # noqa: PTH119
        return
    for top, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = f"{top}/{name}"
            if os.path.isfile(path) and not os.path.islink(path):  # noqa: PTH113, PTH114
                yield os.path.relpath(path, folder), path


def of_file(path: str, shown: str) -> Iterator[dict[str, Any]]:
    """Everything there is to say of one file."""
    size = os.path.getsize(path)  # noqa: PTH202
    if size > LARGEST_FILE:
        yield {"left_out": f"larger than {LARGEST_FILE >> 20} MiB"}
        yield {"opaque": size}
        return
    data = Path(path).read_bytes()
    if kind := weights_kind(data):
        yield {"weights": kind}
    if opaque := opaque_bytes(data):
        yield {"opaque": opaque}
    budget = Budget()
    for view in views(data, budget):
        yield from pieces(view)
    if shown.endswith(".py"):
        yield from pieces(View(literal_text(data.decode("utf-8", "replace")), "texts of the program", 1, False))
    for what in dict.fromkeys(budget.left_out):
        yield {"left_out": what}


def pieces(view: View) -> Iterator[dict[str, Any]]:
    """A view in pieces that overlap; each with the line of the file where it begins."""
    text, begin, line = view.text, 0, view.line
    while begin < len(text):
        piece = text[begin : begin + PIECE]
        yield {"line": line, "moves": view.moves, "via": view.via, "text": piece}
        if begin + PIECE >= len(text):
            return
        step = PIECE - OVERLAP
        line += piece.count("\n", 0, step) if view.moves else 0
        begin += step


def replies(folder: str) -> Iterator[dict[str, Any]]:
    """What the model wrote in the trajectories below ``folder``."""
    for _, path in files(folder):
        with open(path, "rb") as lines:  # noqa: PTH123
            for line in lines:
                try:
                    step = json.loads(line)
                except ValueError:
                    continue
                if isinstance(step, dict) and step.get("kind") == "call" and isinstance(step.get("reply"), str):
                    yield {"problem": str(step.get("problem", "")), "text": step["reply"]}


def main() -> None:
    """One request in the arguments; JSON lines on stdout."""
    request = json.loads(sys.argv[1])
    out = sys.stdout
    total = 0
    for number, folder in enumerate(request["parts"]):
        for shown, path in files(folder):
            total += os.path.getsize(path)  # noqa: PTH202
            for fact in of_file(path, shown):
                out.write(json.dumps({"part": number, "path": shown, **fact}) + "\n")
    for folder in request["replies"]:
        for reply in replies(folder):
            out.write(json.dumps(reply) + "\n")
    out.write(json.dumps({"done": total}) + "\n")
    out.flush()


if __name__ == "__main__":
    main()
