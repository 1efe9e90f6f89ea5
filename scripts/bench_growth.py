"""Ten times the events, the candidates or the problems: how the time grows, and whether the memory stays flat.

    python scripts/bench_growth.py [events|candidates|problems ...]

Each line is measured in a process of its own, so that its peak RSS is its own.

events: reading and folding, describing and verifying a journal, as every view of a run does.
candidates: the same for a journal with ever more candidates, and building its report.
problems: the grader's side of an evaluation, each problem in a real sandbox with its gateway and its harness, over an
engine that only adds (so that the model's time does not hide ours). Run it as an ordinary user, or through
``python -P -m isolation.privilege -- python scripts/bench_growth.py problems``.
"""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "record"), str(ROOT / "tests" / "grader")]

from journal_samples import whole_run, write_steps  # noqa: E402

from runner.record.describe import describe  # noqa: E402
from runner.record.journal import load, read, verify  # noqa: E402
from runner.report.document import build  # noqa: E402

SIZES = {"events": (10_000, 100_000), "candidates": (100, 1_000), "problems": (100, 1_000)}


def told(what: str, count: int, *columns: tuple[str, float]) -> None:
    """One line of figures: seconds, what one of them costs, and the peak memory."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    total = sum(seconds for _, seconds in columns)
    parts = "  ".join(f"{name} {seconds:6.2f} s" for name, seconds in columns)
    print(f"{count:>8} {what:<10}  {parts}  {total / count * 1e3:8.3f} ms each  peak RSS {peak:5.0f} MB", flush=True)


def events(count: int, folder: Path) -> None:
    """A journal of ``count`` events: trials of 500 steps each, as many as are needed."""
    path = folder / "journal.jsonl"
    write_steps(path, islice(whole_run(trials=count // 1000 + 1, steps=500), count)).close()
    start = time.process_time()
    state = load(path)
    folded = time.process_time()
    for event in read(path):
        describe(event, state)
    described = time.process_time()
    verify(path)
    done = time.process_time()
    told("events", count, ("fold", folded - start), ("describe", described - folded), ("verify", done - described))


def candidates(count: int, folder: Path) -> None:
    """A finished run with ``count`` candidates, read and reported."""
    path = folder / "journal.jsonl"
    write_steps(path, whole_run(trials=count, steps=2)).close()
    start = time.process_time()
    state = load(path)
    folded = time.process_time()
    build(state)
    told("candidates", count, ("fold", folded - start), ("report", time.process_time() - folded))


def problems(count: int, folder: Path) -> None:
    """One evaluation of ``count`` problems in waves of 64 sandboxes."""
    from eval_kit import HONEST, Kit

    kit = Kit(folder, problems=count, wave=64)
    start = time.monotonic()
    score = asyncio.run(kit.run(HONEST)).score.score
    if score != 1.0:
        sys.exit(f"bench_growth: a score of {score} where every answer is right")
    told("problems", count, ("evaluate", time.monotonic() - start))


def main(words: list[str]) -> None:
    """Measure each size of what was asked for in a child of its own."""
    if words[:1] == ["--measure"]:
        with tempfile.TemporaryDirectory() as folder:
            globals()[words[1]](int(words[2]), Path(folder))
        return
    unknown = [word for word in words if word not in SIZES]
    if unknown:
        sys.exit(f"bench_growth: no {unknown[0]!r} here; choose from {', '.join(SIZES)}")
    for what in words or SIZES:
        if what == "problems" and os.getuid() == 0:
            sys.exit("bench_growth: sandboxes are never started by root: see --help for the command")
        for count in SIZES[what]:
            subprocess.run([sys.executable, __file__, "--measure", what, str(count)], check=True)


if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv):
        sys.exit(__doc__)
    main(sys.argv[1:])
