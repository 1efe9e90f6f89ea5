"""status, ls and watch over run folders on the disk."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from journal_samples import START, started, whole_run, write_run, write_steps
from test_record_describe import is_clean

from runner import views
from runner.record import events as ev
from runner.record.journal import Journal, load
from runner.record.liveness import Liveness, boot_id
from runner.record.rundir import RunDir
from runner.report.card import card
from runner.report.document import build, write_report

ROOT = Path(__file__).parents[2]
STABLE = {
    "run", "task", "problems", "model", "agent", "scope", "seed", "isolation", "validation", "hidden", "candidates",
    "budget", "selected_by", "integrity", "protocol", "official",
}  # fmt: skip


@pytest.fixture
def finished(tmp_path: Path) -> RunDir:
    return write_run(tmp_path)


def test_status_has_the_numbers_of_the_report(finished: RunDir) -> None:
    report = write_report(finished, load(finished.journal_file))
    on_disk = json.loads((finished.report / "report.json").read_text())
    told = json.loads(json.dumps(views.status(finished)))
    assert set(on_disk) == STABLE
    assert {key: told[key] for key in STABLE} == on_disk == report.model_dump(mode="json")
    assert (told["liveness"], told["phase"], told["status"]) == ("finished", "finished", "ok")
    assert (told["best"], told["selected"], told["merit"]["peak"]) == ("c03", "c03", 0.537)


def test_status_in_the_middle_of_a_run(tmp_path: Path) -> None:
    steps = list(whole_run(2, finish=False, boot_id=boot_id()))
    while not isinstance(steps[-1][0], ev.ValidationProgress):
        steps.pop()
    run = write_run(tmp_path, steps[:-1])
    told = views.status(run)
    assert told["liveness"] == "crashed"
    assert told["now"]["verb"] == "validate"
    assert told["now"]["candidate"] == "c02"
    assert 0 < told["now"]["done"] < told["now"]["total"] == 112
    assert told["hidden"] == {"initial": None, "selected": None, "delta": None}
    text = views.status_text(run)
    assert text.startswith("CRASHED  phase research: validate c02 (j005, 100/112)")
    assert f"runner resume {run.name}" in text
    assert "hidden not run" in text


def test_status_of_a_run_that_never_started(tmp_path: Path) -> None:
    run = write_run(tmp_path, [])
    assert views.status(run)["run"] == run.name
    assert views.status(run)["liveness"] == "crashed"
    assert "not started" in views.status_text(run)
    run.journal_file.unlink()
    assert views.status(run)["events"] == 0
    run.journal_file.write_bytes(b"\x00garbage\n" * 3)
    assert views.status(run)["unknown"] == 3
    assert is_clean(views.status_text(run))


def test_ls_shows_live_runs_first(tmp_path: Path) -> None:
    old = RunDir.create(tmp_path, "aime", datetime(2025, 1, 1, tzinfo=UTC))
    write_steps(old.journal_file, [(started(boot_id=boot_id()), START, 0.0)]).close()
    done = write_run(tmp_path)
    lock = old.acquire()
    try:
        lines = views.ls(tmp_path).splitlines()
    finally:
        lock.release()
    assert lines[0].split()[:2] == ["run", "state"]
    assert lines[1].startswith(old.name)
    assert lines[2].startswith(done.name)
    assert " ".join(lines[2].split()[1:]) == "finished ok aime scripted 32.9 % 53.7 % +21.5 6 13m32s / 2h00m"
    assert "runner --task" in views.ls(tmp_path / "none")


def test_views_are_pure_readers(finished: RunDir) -> None:
    def everything() -> dict[str, tuple[float, int]]:
        paths = finished.path.rglob("*")
        return {str(path): (path.stat().st_mtime, path.stat().st_size) for path in paths}

    before = everything()
    views.status(finished)
    views.status_text(finished)
    views.ls(finished.path.parent.parent)
    views.watch(finished, io.StringIO())
    assert everything() == before


def test_watching_a_finished_run_ends_with_its_card(finished: RunDir) -> None:
    stream = io.StringIO()
    assert views.watch(finished, stream) is Liveness.FINISHED
    assert stream.getvalue().endswith(card(load(finished.journal_file)))
    assert is_clean(stream.getvalue())


def test_watching_follows_a_live_run_to_its_end(tmp_path: Path) -> None:
    steps = list(whole_run(2))
    run = write_run(tmp_path, steps[:20])
    lock = run.acquire()
    stream, result = io.StringIO(), list[Liveness]()
    watcher = threading.Thread(target=lambda: result.append(views.watch(run, stream, json_lines=True)))
    watcher.start()
    journal = Journal.reopen(run.journal_file, lambda: 0.0, now=lambda: START)
    for payload, _, _ in steps[20:]:
        journal.append(payload)
    journal.close()
    lock.release()
    watcher.join(60)
    assert result == [Liveness.FINISHED]
    assert [json.loads(line)["seq"] for line in stream.getvalue().splitlines()] == list(range(1, len(steps) + 1))


def test_watching_ends_when_the_runner_dies(tmp_path: Path) -> None:
    run = write_run(tmp_path, whole_run(1, finish=False, boot_id=boot_id()))
    stream = io.StringIO()
    assert views.watch(run, stream) is Liveness.CRASHED
    assert "the run is crashed" in stream.getvalue()


def test_ctrl_c_stops_watching_and_not_the_run(tmp_path: Path) -> None:
    run = write_run(tmp_path, whole_run(1, finish=False))
    lock = run.acquire()
    program = (
        "import sys; from pathlib import Path; from runner import views; from runner.record.rundir import RunDir\n"
    )
    program += "print(views.watch(RunDir(Path(sys.argv[1])), sys.stdout))"
    argv = [sys.executable, "-c", program, str(run.path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        seen = [process.stdout.readline() for _ in range(10)]
        process.send_signal(2)
        rest = process.stdout.read()
        assert process.wait(30) == 0
    lock.release()
    assert seen[0].startswith("0:00:00  run ")
    assert "the run goes on" in rest
    assert rest.strip().splitlines()[-1] in ("live", "quiet")
    assert not run.stop_requested()


def test_a_reader_that_goes_away_is_a_broken_pipe(finished: RunDir) -> None:
    stream = io.StringIO()
    stream.close()
    with pytest.raises(BrokenPipeError):
        views.watch(finished, stream)


def test_the_report_is_the_same_however_often_it_is_built(finished: RunDir) -> None:
    state = load(finished.journal_file)
    assert build(state) == build(load(finished.journal_file))
