"""The run folder, its lock between real processes, and what liveness makes of it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from journal_samples import START, started, whole_run, write_run, write_steps

from runner.record import events as ev
from runner.record.journal import JournalError
from runner.record.liveness import QUIET_AFTER_S, Liveness, boot_id, liveness
from runner.record.rundir import RunDir, RunLocked, checked_name, find, holder_alive, list_runs

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
HOLDER = """
import sys
from pathlib import Path
from runner.record.rundir import RunDir
lock = RunDir(Path(sys.argv[1])).acquire()
del lock
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(run: RunDir) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the run's lock until its stdin ends or it is killed."""
    argv = [sys.executable, "-c", HOLDER, str(run.path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir.create(tmp_path / "runs", "aime", NOW)


def test_a_run_folder_is_private_and_has_its_parts(run: RunDir) -> None:
    assert run.task == "aime"
    assert run.name.startswith("2026-11-30T12-00-00-")
    assert len(run.name) == len("2026-11-30T12-00-00-7f3a")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (run.path, run.sealed)]
    assert modes == [0o700, 0o700]
    parts = (run.workspace, run.store, run.snapshots, run.candidates, run.models, run.evals, run.feedback, run.logs)
    assert all(path.is_dir() for path in (*parts, run.control, run.report))
    assert run.evaluation("e001") == run.path / "evals" / "e001"


def test_runs_of_one_second_never_share_a_folder(tmp_path: Path) -> None:
    names = {RunDir.create(tmp_path, "aime", NOW).name for _ in range(50)}
    assert len(names) == 50


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/etc", "a\n", "x" * 200, "-x", "é"])
def test_names_from_a_journal_cannot_leave_the_folder(run: RunDir, name: str) -> None:
    for path_of in (run.candidate, run.model, run.evaluation, run.snapshot, run.feedback_of, run.log):
        with pytest.raises(JournalError):
            path_of(name)
    with pytest.raises(JournalError):
        RunDir.create(run.path, name, NOW)
    assert checked_name("c07") == "c07"


def test_a_root_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="can be written"):
        RunDir.create(tmp_path / "file", "aime", NOW)


def test_finding_runs(tmp_path: Path) -> None:
    old = RunDir.create(tmp_path, "aime", NOW)
    new = RunDir.create(tmp_path, "other", NOW.replace(minute=5))
    (tmp_path / "aime" / "notes").mkdir()
    assert list_runs(tmp_path) == [new, old]
    assert find(tmp_path) == new
    assert find(tmp_path, old.name) == old
    assert find(tmp_path, old.name[-4:] if old.name[-4:] not in new.name else old.name) == old
    write_steps(old.journal_file, [(started(), START, 0.0)]).close()
    assert find(Path("/nonexistent"), str(old.path)).name == old.name
    with pytest.raises(JournalError, match="2 runs fit"):
        find(tmp_path, "2026-11")
    with pytest.raises(JournalError, match="no run is called"):
        find(tmp_path, "zzz")
    with pytest.raises(JournalError, match="no runs here"):
        find(tmp_path / "empty")


def test_the_configuration_comes_back_as_it_was(run: RunDir) -> None:
    text = 'task = "aime"\n[budget]\nwall_s = 60.0\n'
    run.write_config(text, "ab" * 32)
    assert run.read_config() == (text, "ab" * 32)
    assert run.config_file.read_text().startswith('digest = "abab')
    run.config_file.write_text(text)
    with pytest.raises(JournalError, match="no digest"):
        run.read_config()
    run.config_file.write_bytes(b"\xff")
    with pytest.raises(JournalError):
        run.read_config()


# -- lock ------------------------------------------------------------------------------------------------------------


def test_only_one_process_holds_a_run_and_kill_9_frees_it(run: RunDir) -> None:
    with holder(run) as process:
        assert holder_alive(run.lock_file)
        with pytest.raises(RunLocked, match="another process holds this run"):
            run.acquire()
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        assert not holder_alive(run.lock_file)
        run.acquire().release()


def test_a_query_takes_nothing(run: RunDir) -> None:
    """Many viewers ask, and the runner still gets its lock, at once."""
    run.acquire().release()
    assert [holder_alive(run.lock_file) for _ in range(3)] == [False] * 3
    lock = run.acquire()
    assert holder_alive(run.lock_file)
    with holder_fails(run) as words:
        assert "another process holds this run" in words
    lock.release()
    lock.release()
    assert not holder_alive(run.lock_file)


@contextmanager
def holder_fails(run: RunDir) -> Iterator[str]:
    """What a second runner says."""
    argv = [sys.executable, "-c", HOLDER, str(run.path)]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    yield done.stderr


def test_a_child_does_not_keep_the_lock(run: RunDir) -> None:
    lock = run.acquire()
    argv = [sys.executable, "-c", "print('up', flush=True); input()"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        lock.release()
        assert not holder_alive(run.lock_file)
        child.kill()


def test_no_lock_file_no_holder(tmp_path: Path) -> None:
    assert not holder_alive(tmp_path / "lock")
    os.mkfifo(tmp_path / "fifo")
    assert not holder_alive(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("fifo")
    assert not holder_alive(tmp_path / "link")


# -- liveness --------------------------------------------------------------------------------------------------------


def unfinished(root: Path, boot: str) -> RunDir:
    """A run in the middle of research."""
    return write_run(root, whole_run(2, finish=False, boot_id=boot))


def test_held_is_live_until_it_is_quiet_for_long(tmp_path: Path) -> None:
    run = unfinished(tmp_path, "boot-1")
    written = run.journal_file.stat().st_mtime
    with holder(run):
        assert liveness(run, now=written + 1) is Liveness.LIVE
        assert liveness(run, now=written + QUIET_AFTER_S + 1) is Liveness.QUIET
        assert liveness(run, now=0.0, here="another") is Liveness.LIVE
    assert liveness(run, here="boot-1") is Liveness.CRASHED


def test_unheld_and_unfinished_is_crashed_here_and_copied_elsewhere(tmp_path: Path) -> None:
    run = unfinished(tmp_path, "boot-1")
    assert liveness(run, here="boot-1") is Liveness.CRASHED
    assert liveness(run, here="boot-2") is Liveness.COPIED
    assert liveness(run) is Liveness.COPIED
    mine = unfinished(tmp_path, boot_id()).journal_file
    (run.journal_file).write_bytes(mine.read_bytes())
    resumed_elsewhere = ev.RunResumed(boot_id="boot-1", gap_s=1.0, phase="research")
    assert boot_id() not in ("", resumed_elsewhere.boot_id)


def test_the_newest_boot_is_the_one_that_counts(tmp_path: Path) -> None:
    steps = [(started(boot_id="boot-1"), START, 0.0)]
    run = write_run(tmp_path, [*steps, (ev.RunResumed(boot_id="boot-2", gap_s=1.0, phase="research"), START, 0.0)])
    assert liveness(run, here="boot-2") is Liveness.CRASHED
    assert liveness(run, here="boot-1") is Liveness.COPIED


def test_finished_is_finished_anywhere_and_even_while_held(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    assert liveness(run, here="elsewhere") is Liveness.FINISHED
    with holder(run):
        assert liveness(run) is Liveness.FINISHED


def test_a_run_that_is_starting_is_live(run: RunDir) -> None:
    with holder(run):
        assert liveness(run) is Liveness.LIVE
    assert liveness(run) is Liveness.CRASHED


# -- requests --------------------------------------------------------------------------------------------------------


def test_requests_wait_until_they_are_cleared(run: RunDir) -> None:
    assert not run.stop_requested()
    run.request_stop()
    run.request_stop()
    assert run.requested() == "stop"
    run.request("kill")
    assert run.requested() == "kill"
    run.clear_requests()
    run.clear_requests()
    assert run.requested() is None
