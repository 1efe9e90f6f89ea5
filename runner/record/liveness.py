"""Is a run alive? From the lock (asked, never taken), the age of its last event, and the machine's boot id."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path

from runner.record.journal import load
from runner.record.rundir import RunDir, holder_alive
from runner.record.state import RunState

QUIET_AFTER_S = 120.0


class Liveness(StrEnum):
    """LIVE and QUIET: a process holds the run. CRASHED: it died on this machine. COPIED: it ran elsewhere."""

    LIVE = "live"
    QUIET = "quiet"
    CRASHED = "crashed"
    FINISHED = "finished"
    COPIED = "copied"


def boot_id() -> str:
    """This boot of this machine, as run_started and run_resumed record it; empty where the kernel tells none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def liveness(
    run: RunDir, state: RunState | None = None, *, now: float | None = None, here: str | None = None
) -> Liveness:
    """How the run is. ``state`` spares reading the journal again; ``now`` (Unix seconds) and ``here`` (boot id) are
    this moment on this machine unless given."""
    state = load(run.journal_file) if state is None else state
    if state.finished is not None:
        return Liveness.FINISHED
    if holder_alive(run.lock_file):
        age = (time.time() if now is None else now) - max(state.t, _written(run.journal_file))
        return Liveness.QUIET if age > QUIET_AFTER_S else Liveness.LIVE
    here = boot_id() if here is None else here
    return Liveness.CRASHED if state.boot_id in ("", here) else Liveness.COPIED


def _written(path: Path) -> float:
    """When the file last changed; for ever when there is none (a run that is starting)."""
    try:
        return path.stat().st_mtime
    except OSError:
        return float("inf")
