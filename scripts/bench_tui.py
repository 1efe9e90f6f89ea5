#!/usr/bin/env python
"""The budgets of the viewer, measured on the real command in a pseudo-terminal of 120 × 36.

    scripts/bench_tui.py [--events 10000] [--growth 10] [--seconds 20] [--lines 100000]

first paint   from the start of the process to the whole screen of the run ("READING" in its head), then to its first
              candidates, then to its newest candidate. Beside other programs wall seconds say little: look at the CPU
              seconds, and at what interpreter, textual and record alone take of them
floor         the same of a bare textual app with one Static, in turn with ours, and the ratio
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

STAGES = (
    ("interpreter", "pass"),
    ("with textual, and what it paints with", "import textual.app, textual.scroll_view, textual.widgets._input"),
    ("with pydantic too", "import textual.app, textual.scroll_view, textual.widgets._input, pydantic.main"),
    ("with the record too", "import textual.app, textual.scroll_view, textual.widgets._input, runner.record.describe"),
    ("with the viewer too", "import vibetui.cli, vibetui.app"),
)
BARE = """
from textual.app import App
from textual.widgets import Static

class Bare(App):
    def compose(self):
        yield Static("candidates of")

Bare().run()
"""
TURNS = 5
TICK = os.sysconf("SC_CLK_TCK")
SEQUENCE = re.compile(rb"\x1b\[[0-9;?<>=$ ]*[A-Za-z]|\x1b[78=>]")


def main() -> None:
    """Measure and print each budget beside what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--growth", type=int, default=10, help="then once more with this many times the events")
    parser.add_argument("--lines", type=int, default=100_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as compiled:
        as_installed(compiled)
        for what, words in STAGES:
            print(f"{what:<44} {imports(words):.2f} s of CPU")
        all_of(args)


def as_installed(compiled: str) -> None:
    """What Python compiled is kept, as where the program is installed, whatever this shell says of it."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = compiled


def all_of(args: argparse.Namespace) -> None:
    """Every budget, then once more with more events."""
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

    def __init__(self, *words: str) -> None:
        self.fd, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 36, 120, 0, 0))
        self.began, self.cpu_began = time.monotonic(), os.times()
        known = {**os.environ, "TERM": "xterm-256color"}
        whole = [sys.executable, "-P", *words]
        self.process = subprocess.Popen(
            whole, stdin=child, stdout=child, stderr=child, env=known, start_new_session=True
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

    def cpu(self) -> float:
        """CPU seconds of the viewer so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def end(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()
        os.close(self.fd)

    def memory(self) -> tuple[float, float]:
        """Resident and highest resident memory, in MB."""
        said = dict(line.split(":", 1) for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines())
        return int(said["VmRSS"].split()[0]) / 1024, int(said["VmHWM"].split()[0]) / 1024


def floor(run: RunDir) -> None:
    """CPU seconds to the first paint: the least of some starts of ours and of a bare textual app, in turn."""
    least = {}
    for _ in range(TURNS):
        for name, words in (("bare", ("-c", BARE)), ("ours", ("-m", "vibetui", str(run.path)))):
            screen = Screen(*words)
            screen.until("candidates of")
            least[name] = min(screen.cpu(), least.get(name, 60.0))
            screen.end()
    ratio = least["ours"] / least["bare"]
    print(f"  floor         {least['bare']:.2f} s CPU, ours {least['ours']:.2f}, {ratio:.2f} times (least of {TURNS})")


def measure(run: RunDir, journal: Journal, events: int, args: argparse.Namespace) -> None:
    """All budgets on one run."""
    lock = run.acquire()
    screen = Screen("-m", "vibetui", str(run.path))
    moments = []
    for text in ("candidates of", "c00", "c39"):
        screen.until(text)
        moments.append(f"{screen.painted_at - screen.began:.2f} s ({screen.cpu():.2f} CPU)")
    while screen.read(1.5):
        pass
    print(f"\n{events} events, load {os.getloadavg()[0]:.1f}")
    print(f"  first paint   {moments[0]}, candidates {moments[1]}, the newest {moments[2]} (budget 0.5)")
    floor(run)
    follow(screen, journal, args.seconds)
    now, most = screen.memory()
    print(f"  memory        {now:6.1f} MB resident, at most {most:.1f} (budget 80)")
    start = len(screen.raw)
    os.write(screen.fd, b"l2")
    screen.until("logs/agent.log", start)
    waits = [screen.key(key) for key in ("g", " ", "j", "k", "b", "G", "b", "k") * 5]  # each of them moves
    slow = max(waits) * 1000
    print(f"  key to paint  {median(waits) * 1000:6.1f} ms median, {slow:.0f} worst in {args.lines} lines (budget 50)")
    now, most = screen.memory()
    print(f"  memory then   {now:6.1f} MB resident, at most {most:.1f} (budget 80)")
    os.write(screen.fd, b"q")
    screen.process.wait(timeout=30)
    lock.release()


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
