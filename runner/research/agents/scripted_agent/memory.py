"""What the agent was answered, on disk: started again, it goes through the same search without asking twice."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lab import Refused, Unanswered


class Memory:
    """Answers by question, one JSON line each in ``path``. A line that a crash tore is no answer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: dict[str, dict[str, Any]] = {}
        for line in path.read_bytes().splitlines() if path.exists() else ():
            try:
                row = json.loads(line)
                self.known[row["asked"]] = row
            except (ValueError, KeyError, TypeError):
                continue

    def __len__(self) -> int:
        return len(self.known)

    def knows(self, question: Sequence[object]) -> bool:
        """Whether ``question`` was answered before."""
        return json.dumps(question, sort_keys=True) in self.known

    def once(self, question: Sequence[object], ask: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], float]:
        """The answer to ``question`` and the seconds it took, asked now or before. Raises Refused, then as now."""
        key = json.dumps(question, sort_keys=True)
        if key not in self.known:
            self._keep(key, ask)
        row = self.known[key]
        if "refused" in row:
            raise Refused(str(row["refused"]))
        return row["answer"], float(row["seconds"])

    def _keep(self, key: str, ask: Callable[[], dict[str, Any]]) -> None:
        began = time.monotonic()
        row: dict[str, Any] = {"asked": key}
        try:
            row["answer"] = ask()
        except Unanswered:
            raise
        except Refused as error:
            row["refused"] = str(error)
        row["seconds"] = time.monotonic() - began
        with self.path.open("a", encoding="utf-8") as file:
            file.write("\n" * self._torn() + json.dumps(row) + "\n")
        self.known[key] = row

    def _torn(self) -> bool:
        """The last line was not finished: the next one must not be glued to it."""
        return self.path.exists() and not self.path.read_bytes().endswith(b"\n") and self.path.stat().st_size > 0
