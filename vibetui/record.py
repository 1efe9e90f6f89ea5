"""What the first frame knows of a run's record, imported when it is first asked for.

The events, their models and their words take more than half as long to import as textual does, and the first frame says
nothing of what they know. So its parts say ``record.count(…)``: the thread that reads the journal imports the record,
after that frame. Screens that are opened later import as usual.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner.record.describe import (
        clock,
        count,
        delta_text,
        diff_cell,
        duration,
        letters,
        money,
        number,
        score_text,
        share,
        tokens,
    )
    from runner.record.events import SCHEMA_VERSION
    from runner.record.liveness import Liveness
    from runner.record.naming import names
    from runner.record.state import INITIAL, chosen, integrity_count

    __all__ = [
        "INITIAL", "SCHEMA_VERSION", "Liveness", "chosen", "clock", "count", "delta_text", "diff_cell", "duration",
        "integrity_count", "letters", "money", "names", "number", "score_text", "share", "tokens",
    ]  # fmt: skip

_ELSEWHERE = {
    "SCHEMA_VERSION": "events",
    "Liveness": "liveness",
    "names": "naming",
    "INITIAL": "state",
    "chosen": "state",
    "integrity_count": "state",
}


def __getattr__(name: str) -> object:
    if name.startswith("_"):
        raise AttributeError(name)
    found = getattr(import_module(f"runner.record.{_ELSEWHERE.get(name, 'describe')}"), name)
    globals()[name] = found
    return found
