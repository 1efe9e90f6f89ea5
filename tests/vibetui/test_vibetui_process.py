"""The viewer as a process: it leaves the terminal as it was, never holds a run, and does without a terminal."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from looking import until, viewing
from terminal import Terminal

from runner.record.rundir import RunDir
from vibetui import recorded as archive
from vibetui.demo import Replay
from vibetui.start import StartError, command, start

COMMAND = [sys.executable, "-P", "-m", "vibetui"]
CRASH = """
import sys
from pathlib import Path
import vibetui.app
from vibetui.app import VibeApp, run_app
from vibetui.screens.run import RunScreen
from runner.record.rundir import RunDir
class Broken(VibeApp):
    CSS_PATH = Path(vibetui.app.__file__).with_name("style.tcss")
    def open_log(self):
        secret = "sk-" + "very" + "secret"
        raise RuntimeError("it broke")
run = RunDir(Path(sys.argv[1]))
raise SystemExit(run_app(Broken(run.path.parent.parent, run), mouse=True))
"""
WRITER = """
import sys, time
from pathlib import Path
from runner.record import events as ev
from runner.record.journal import Journal
from runner.record.liveness import boot_id
from runner.record.rundir import RunDir
run = RunDir(Path(sys.argv[1]))
lock = run.acquire()
journal = Journal.reopen(run.journal_file, lambda: 400.0) if run.journal_file.exists() else None
journal.append(ev.RunResumed(boot_id=boot_id(), gap_s=1.0, phase="research"))
print("held", flush=True)
for line in sys.stdin:
    journal.append(ev.RunFinished(status="ok"))
    print("finished", flush=True)
"""


def writer(run: RunDir) -> subprocess.Popen[str]:
    """A process that holds a run as the runner does, until it is killed or told to finish."""
    words = [sys.executable, "-P", "-c", WRITER, str(run.path)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(number: signal.Signals, recorded: RunDir, tmp_path: Path) -> None:
    with Terminal([str(recorded.path)], tmp_path) as terminal:
        terminal.until(" valid of")
        terminal.signal(number)
        assert terminal.ended() == 128 + number
        assert terminal.restored()


def test_a_fault_of_ours_leaves_the_terminal_and_a_trace_without_values(recorded: RunDir, tmp_path: Path) -> None:
    program = tmp_path / "broken.py"
    program.write_text(CRASH)
    with Terminal([str(recorded.path)], tmp_path, command=[sys.executable, str(program)]) as terminal:
        terminal.until(" valid of")
        terminal.press("l")
        assert terminal.ended() == 1
        assert terminal.restored()
        assert "fault.txt" in terminal.painted().replace("\r\n", ""), "a long path goes over two lines"
        assert b"verysecret" not in terminal.everything
    trace = (tmp_path / "state" / "vibetraining-bench" / "fault.txt").read_text()
    assert "it broke" in trace and "verysecret" not in trace


def test_q_detaches_and_a_killed_viewer_leaves_the_run_alone(cut: RunDir, tmp_path: Path) -> None:
    process = writer(cut)
    with Terminal([str(cut.path)], tmp_path) as terminal:
        terminal.until("LIVE")
        terminal.press("q")
        assert terminal.ended() == 0 and terminal.restored()
    with Terminal([str(cut.path)], tmp_path) as terminal:
        terminal.until("LIVE")
        terminal.process.kill()
        terminal.process.wait()
    assert process.poll() is None
    with Terminal([str(cut.path)], tmp_path) as terminal:
        terminal.until("LIVE")
        terminal.press("s")
        terminal.until("stop this run?")
        terminal.press("y")
        terminal.until("a stop was asked for")
        terminal.press("q")
        assert terminal.ended() == 0
    assert cut.requested() == "stop"
    process.kill()
    process.wait()


async def test_the_viewer_tells_the_truth_about_a_run_that_dies_and_goes_on(cut: RunDir, tmp_path: Path) -> None:
    """LIVE → killed: CRASHED → resumed: LIVE → FINISHED, each as soon as it is so."""
    process = writer(cut)
    async with viewing(cut, tmp_path) as pilot:
        await until(pilot, "LIVE")
        process.kill()
        process.wait()
        await until(pilot, "CRASHED")
        process = writer(cut)
        await until(pilot, "LIVE")
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "finished\n"
        await until(pilot, "FINISHED")
    process.kill()
    process.wait()


@pytest.mark.parametrize("words", [["demo"], []], ids=["demo", "run"])
def test_without_a_terminal_it_prints_the_plain_status(
    words: tuple[str, ...], recorded: RunDir, tmp_path: Path
) -> None:
    words = words or [str(recorded.path)]
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and "\x1b" not in done.stdout
    assert "FINISHED" in done.stdout and "38.0 % [29.4, 47.4] n=108" in done.stdout


def test_a_dumb_terminal_gets_the_plain_status_too(recorded: RunDir, tmp_path: Path) -> None:
    command = ["env", "TERM=dumb", *COMMAND]
    with Terminal([str(recorded.path)], tmp_path, command=command) as terminal:
        assert terminal.ended() == 0
        assert "\x1b" not in terminal.painted() and "FINISHED" in terminal.painted()


def test_a_run_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    done = subprocess.run([*COMMAND, "nope", "--runs", "here"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("vibetui: ") and done.stderr.count("\n") == 1


def test_a_run_that_cannot_start_says_what_runner_says(tmp_path: Path) -> None:
    done = subprocess.run([*COMMAND, "start", "--task", "chess"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2 and "chess" in done.stderr
    with pytest.raises(StartError, match="chess"):
        start(["--task", "chess"], tmp_path)
    assert command(["--task", "aime"])[1:] == ["-P", "-m", "runner", "--task", "aime"]


def test_the_demo_writes_the_recorded_journal_and_lets_go(tmp_path: Path) -> None:
    replay = Replay(tmp_path, speed=10_000)
    replay.start()
    replay.join(timeout=30)
    assert replay.run_dir.journal_file.read_bytes() == archive.journal()
    replay.run_dir.acquire().release()
    replay.stop()


def test_the_demo_is_a_live_run_and_lasts_less_than_a_minute(tmp_path: Path) -> None:
    replay = Replay(tmp_path)
    assert replay._at[-1] / replay.speed <= 60
    replay.start()
    end = time.monotonic() + 30
    while not replay.run_dir.journal_file.exists() and time.monotonic() < end:
        replay._over.wait(0.01)
    from runner.record.liveness import Liveness, liveness

    assert liveness(replay.run_dir) is Liveness.LIVE
    replay.stop()
    assert not replay.is_alive()


def test_the_mouse_is_left_to_the_terminal_where_that_was_asked_for(recorded: RunDir, tmp_path: Path) -> None:
    with Terminal([str(recorded.path), "--no-mouse", "--ascii"], tmp_path) as terminal:
        terminal.until(" valid of")
        terminal.press("q")
        assert terminal.ended() == 0
    assert b"?1000h" not in terminal.everything and terminal.everything.isascii()


def test_a_viewer_whose_terminal_is_gone_ends(recorded: RunDir, tmp_path: Path) -> None:
    """Without a controlling terminal no signal tells it; Textual's writer would wait for ever."""
    with Terminal([str(recorded.path)], tmp_path) as terminal:
        terminal.until(" valid of")
        terminal.hang_up()
        assert terminal.process.wait(timeout=60) == 128 + signal.SIGHUP
