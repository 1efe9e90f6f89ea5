"""Times and peak memory of the reports: one run's whole report, and the leaderboard over many recorded runs.

Usage: bench_report.py [RUN_FOLDER] [--runs 200] [--hours 12]. The many runs are made up: each is a whole run with a
budget tick every five seconds for that many hours.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "record"), str(ROOT / "tests" / "report")]

from journal_samples import whole_run, write_run  # noqa: E402

from runner.record import events as ev  # noqa: E402
from runner.record.journal import load  # noqa: E402
from runner.record.rundir import RunDir  # noqa: E402
from runner.report.board_views import as_text  # noqa: E402
from runner.report.gather import chosen_runs, summaries  # noqa: E402
from runner.report.leaderboard import boards, means  # noqa: E402
from runner.report.publish import publish  # noqa: E402
from runner.report.searches import tables  # noqa: E402


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def told(what: str, started: float, cpu: float, before: float) -> None:
    wall, used = time.perf_counter() - started, time.process_time() - cpu
    print(f"{what:<34} {wall:7.2f} s wall {used:7.2f} s cpu, peak {before:.0f} -> {peak():.0f} MB")


def clocks() -> tuple[float, float, float]:
    return time.perf_counter(), time.process_time(), peak()


def record(root: Path, count: int, hours: float) -> None:
    ticks = int(hours * 720)
    for seed in range(count):
        steps = list(whole_run(trials=10, seed=seed))
        _, t, el = steps[-3]
        more = [(ev.BudgetTick(wall_s=el, split=ev.Split(think=el)), t, el)] * ticks
        write_run(root, steps[:-3] + more + steps[-3:])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", nargs="?")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--hours", type=float, default=0.5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        record(root, args.runs, args.hours)
        size = sum(path.stat().st_size for path in root.rglob("journal.jsonl")) / 1e6
        for count in (max(1, args.runs // 10), args.runs):
            before = clocks()
            found = list(summaries(chosen_runs(root, [])[:count]))
            every = boards(found)
            as_text(every, means(every), tables(found), [])
            told(f"leaderboard of {count} runs", *before)
        print(f"journals: {size:.0f} MB")
    if args.run:
        run = RunDir(Path(args.run))
        before = clocks()
        publish(run, load(run.journal_file))
        told("the whole report of one run", *before)


main()
