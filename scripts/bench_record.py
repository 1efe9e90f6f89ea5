"""How long the record takes: reading, folding and describing journals of 10k and 100k events, and the peak memory.

    python scripts/bench_record.py [EVENTS ...]

Each size runs in a process of its own, so that its peak RSS is its own. Time should grow as the number of events
does, and memory should stay flat.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "record")]

from journal_samples import whole_run, write_steps  # noqa: E402

from runner.record.describe import describe  # noqa: E402
from runner.record.fold import fold  # noqa: E402
from runner.record.journal import read, verify  # noqa: E402
from runner.record.state import RunState  # noqa: E402


def write(path: Path, events: int) -> None:
    """A journal of ``events`` events: trials of 500 steps each, as many as are needed."""
    write_steps(path, islice(whole_run(trials=events // 1000 + 1, steps=500), events)).close()


def measure(path: Path) -> None:
    """Print one line of figures for one journal."""
    start = time.process_time()
    events = 0
    state = RunState()
    for event in read(path):
        state = fold(state, event)
        events += 1
    folded = time.process_time()
    for event in read(path):
        describe(event, state)
    described = time.process_time()
    verify(path)
    verified = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{events:>8} events  read+fold {folded - start:6.2f} s ({(folded - start) / events * 1e6:5.1f} µs each)"
        f"  read+describe {described - folded:6.2f} s  verify {verified - described:6.2f} s"
        f"  peak RSS {peak:5.0f} MB  candidates {len(state.candidates)}"
    )


def main(words: list[str]) -> None:
    """Write and measure each size."""
    if words[:1] == ["--measure"]:
        measure(Path(words[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        for events in [int(word) for word in words] or [10_000, 100_000]:
            path = Path(folder) / f"{events}.jsonl"
            write(path, events)
            subprocess.run([sys.executable, __file__, "--measure", str(path)], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
