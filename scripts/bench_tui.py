#!/usr/bin/env python
"""The budgets of the viewer, measured on the real command in a pseudo-terminal of 120 × 36.

    scripts/bench_tui.py [--events 10000] [--growth 10] [--seconds 20] [--lines 100000]

first paint   from the start of the process to the whole screen of the run ("READING" in its head), then to its first
              candidates, then to its newest candidate; beside it the floor: a program of textual that shows one word.
              The least of several starts in turn. Beside other programs wall seconds say little: look at the CPU
              seconds. Every process has its bytecode, as the second start of an installed program has
following     CPU and bytes to the terminal while a journal grows at 2 Hz; memory then
key to paint  in a log of many lines: median and worst of 40 keys
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path
from statistics import median

from runner.record import events as ev
from runner.record.journal import Journal
from runner.record.rundir import RunDir

TEXTUAL = "import textual.app, textual.scroll_view, textual.widgets._input"
STAGES = (
    ("interpreter", "pass"),
    ("with textual, and what it paints with", TEXTUAL),
    ("with the viewer too (before the first frame)", "import vibetui.cli, vibetui.app"),
    ("with the record too (after it)", "import vibetui.cli, vibetui.app, vibetui.follow"),
)
BARE = """
from textual.app import App
from textual.widgets import Static

class Bare(App):
    def compose(self):
        yield Static("one word")

Bare().run()
"""
TICK = os.sysconf("SC_CLK_TCK")
SEQUENCE = re.compile(rb"\x1b\[[0-9;?<>=$ ]*[A-Za-z]|\x1b[78=>]")


def main() -> None:
    """Measure and print each budget beside what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--growth", type=int, default=10, help="then once more with this many times the events")
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--starts", type=int, default=7, help="of which the quickest counts")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as bytecode:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = bytecode
        show(args)


def show(args: argparse.Namespace) -> None:
    """Everything, one after the other."""
    for what, words in STAGES:
        print(f"{what:<44} {imports(words):.2f} s of CPU")
    for events in sorted({args.events, args.events * args.growth}):
        with tempfile.TemporaryDirectory() as folder:
            run = RunDir(Path(folder) / "runs" / "aime" / "2026-11-30T12-00-00-7f3a")
            journal = write_run(run, events, args.lines)
            measure(run, journal, events, args)
            journal.close()


def imports(words: str) -> float:
    """CPU seconds of a Python that does ``words``, the least of five."""
    took = []
    for _ in range(5):
        before = os.times()
        subprocess.run([sys.executable, "-P", "-c", words], check=True)
        after = os.times()
        took.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return min(took)


def write_run(run: RunDir, events: int, lines: int) -> Journal:
    """A live run: mostly progress and ticks, as in reality; 40 candidates; a long agent log."""
    (run.path / "logs").mkdir(parents=True)
    (run.path / "control").mkdir()
    (run.path / "logs" / "agent.log").write_text(
        "".join(f"line {i} of the agent's log, some words\n" for i in range(lines))
    )
    clock = [0.0]
    journal = Journal.create(run.journal_file, lambda: clock[0])
    journal.append(
        ev.RunStarted(
            run=run.name, task="aime", problems="mini", model="tiny", agent="scripted", scope=("data",), seed=0,
            samples=1, profile="laptop", protocol="vibetraining",
            budget=ev.BudgetLimits(wall_s=43_200.0, tokens=500_000), config_digest="d", boot_id="",
            version="0.1.0", comparable=True,
        )
    )  # fmt: skip
    every = max(10, events // 40)
    for i in range(events):
        clock[0] = i * 36_000 / events
        if i % every == 0:
            n = i // every
            name, score = f"c{n:02d}", 0.3 + 0.005 * n
            parent = f"c{n - 1:02d}" if n else None
            journal.append(
                ev.CandidateCreated(candidate=name, parent=parent, model="m00", data="d", trainer="t", harness="h")
            )
            whole = ev.Score(score=score, low=score - 0.08, high=score + 0.08, n=120, samples=1)
            journal.append(
                ev.ValidationFinished(job=f"j{n}", candidate=name, eval="e001", status="ok", seconds=60.0, score=whole)
            )
            journal.append(ev.TrainStarted(job=f"t{n}", parents=("m00",), data="d", trainer="t"))
        elif i % 10 == 0:
            journal.append(ev.BudgetTick(wall_s=clock[0], split=ev.Split(train=clock[0]), tokens=i))
        else:
            journal.append(ev.TrainProgress(job=f"t{i // every}", step=i % every, steps=every, loss=2.0))
    return journal


class Screen:
    """`vibetui` in a pseudo-terminal; a thread keeps what it paints and when."""

    def __init__(self, words: list[str]) -> None:
        self.fd, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 36, 120, 0, 0))
        self.began, self.cpu_began = time.monotonic(), os.times()
        known = {**os.environ, "TERM": "xterm-256color"}
        self.process = subprocess.Popen(
            [sys.executable, "-P", *words], stdin=child, stdout=child, stderr=child, env=known, start_new_session=True
        )
        os.close(child)
        self.raw = b""
        self.painted_at = 0.0

    def read(self, seconds: float) -> bool:
        """Take in what is painted within ``seconds``."""
        ready, _, _ = select.select([self.fd], [], [], seconds)
        if ready:
            self.raw += os.read(self.fd, 1 << 20)
            self.painted_at = time.monotonic()
        return bool(ready)

    def until(self, text: str, start: int = 0) -> float:
        """Wait for a text; returns the moment."""
        end = time.monotonic() + 120
        while time.monotonic() < end:
            self.read(0.05)
            if text in SEQUENCE.sub(b"", self.raw[start:]).decode("utf-8", "replace"):
                return self.painted_at
        raise SystemExit(f"{text!r} never came:\n{self.raw[-2000:]!r}")

    def key(self, keys: str) -> float:
        """Seconds from a key to the first bytes painted because of it."""
        while self.read(0.05):
            pass
        began = time.monotonic()
        os.write(self.fd, keys.encode())
        while not self.read(1.0):
            if time.monotonic() - began > 10:
                return 10.0
        return self.painted_at - began

    def end(self) -> None:
        """Kill it and let its terminal go."""
        self.process.kill()
        self.process.wait()
        os.close(self.fd)

    def cpu(self) -> float:
        """CPU seconds of the viewer so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def memory(self) -> tuple[float, float]:
        """Resident and highest resident memory, in MB."""
        said = dict(line.split(":", 1) for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines())
        return int(said["VmRSS"].split()[0]) / 1024, int(said["VmHWM"].split()[0]) / 1024


def measure(run: RunDir, journal: Journal, events: int, args: argparse.Namespace) -> None:
    """All budgets on one run."""
    lock = run.acquire()
    print(f"\n{events} events, load {os.getloadavg()[0]:.1f}")
    words = ["-m", "vibetui", str(run.path)]
    floor, first, read, newest = starts(words, args.starts)
    print(f"  first paint   {said(first)}, candidates {said(read)}, the newest {said(newest)} (budget 0.5)")
    print(
        f"  the floor     {said(floor)}: textual with one word; first paint is {first[0] / floor[0]:.2f} × that in CPU"
    )
    screen = Screen(words)
    screen.until("c39")
    while screen.read(1.5):
        pass
    follow(screen, journal, args.seconds)
    now, most = screen.memory()
    print(f"  memory        {now:6.1f} MB resident, at most {most:.1f} (budget 80)")
    start = len(screen.raw)
    os.write(screen.fd, b"l2")
    screen.until("logs/agent.log", start)
    cpu = screen.cpu()
    waits = [screen.key(key) for key in ("g", " ", "j", "k", "b", "G", "b", "k") * 5]  # each of them moves
    slow = max(waits) * 1000
    each = (screen.cpu() - cpu) / len(waits) * 1000
    print(f"  key to paint  {median(waits) * 1000:6.1f} ms median, {slow:.0f} worst in {args.lines} lines (budget 50)")
    print(f"  a key takes   {each:6.1f} ms of CPU: what the wait would be on an idle machine")
    now, most = screen.memory()
    print(f"  memory then   {now:6.1f} MB resident, at most {most:.1f} (budget 80)")
    os.write(screen.fd, b"q")
    screen.process.wait(timeout=30)
    lock.release()


def starts(words: list[str], times: int) -> list[tuple[float, float]]:
    """CPU and wall seconds to the floor's only word and to the viewer's three moments, each the least of ``times``."""
    found: list[list[tuple[float, float]]] = []
    for _ in range(times + 1):  # the first writes the bytecode
        moments = []
        for command, texts in ((["-c", BARE], ("one word",)), (words, ("candidates of", "c00", "c39"))):
            screen = Screen(command)
            for text in texts:
                screen.until(text)
                moments.append((screen.cpu(), screen.painted_at - screen.began))
            screen.end()
        found.append(moments)
    return [(min(cpu for cpu, _ in moment), min(wall for _, wall in moment)) for moment in zip(*found[1:], strict=True)]


def said(moment: tuple[float, float]) -> str:
    """CPU and wall seconds in words."""
    return f"{moment[0]:.2f} s of CPU ({moment[1]:.2f} wall)"


def follow(screen: Screen, journal: Journal, seconds: float) -> None:
    """CPU and bytes while two events a second come in."""
    over = threading.Event()

    def write() -> None:
        step = 0
        while not over.wait(0.5):
            step += 1
            journal.append(ev.TrainProgress(job="t39", step=step, steps=500, loss=1.5))

    writer = threading.Thread(target=write)
    writer.start()
    began, cpu, size = time.monotonic(), screen.cpu(), len(screen.raw)
    while time.monotonic() - began < seconds:
        screen.read(0.2)
    took = time.monotonic() - began
    over.set()
    writer.join()
    print(f"  following     {(screen.cpu() - cpu) / took * 100:6.2f} % of a core (budget 3)")
    print(f"  to terminal   {(len(screen.raw) - size) / took / 1000:6.2f} KB/s (budget 60)")


if __name__ == "__main__":
    main()
