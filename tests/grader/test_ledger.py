"""One claim of many, durable; torn lines never happened; a changed ledger is refused."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from grader.errors import GraderError
from grader.ledger import Ledger

ROOT = Path(__file__).resolve().parents[2]


def _python(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
    )


def _filled(sealed: Path) -> Ledger:
    ledger = Ledger(sealed)
    ledger.claim("run-1", "c07")
    ledger.record("wave", {"split": "hidden", "wave": 0, "sha256": "ab" * 32})
    ledger.record("finished", {"note": "é \n \ud800 end"})
    return ledger


def test_a_claim_is_recorded_and_the_same_claim_is_a_resume(tmp_path: Path) -> None:
    sealed = tmp_path / "run" / "sealed"
    ledger = Ledger(sealed)
    assert ledger.claimed() is None
    ledger.claim("run-1", "c07")
    ledger.claim("run-1", "c07")
    assert Ledger(sealed).claimed() == "c07"
    assert [(entry.seq, entry.kind) for entry in ledger.read()] == [(0, "claimed")]
    assert sealed.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o077 == 0 for path in sealed.iterdir())


@pytest.mark.parametrize(("run", "candidate"), [("run-1", "c08"), ("run-2", "c07")])
def test_another_candidate_or_run_is_refused_in_one_line(tmp_path: Path, run: str, candidate: str) -> None:
    ledger = _filled(tmp_path / "sealed")
    with pytest.raises(GraderError) as refused:
        ledger.claim(run, candidate)
    assert "\n" not in str(refused.value) and "c07" in str(refused.value)
    assert ledger.claimed() == "c07"


def test_twenty_processes_race_and_one_candidate_wins(tmp_path: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        from grader.errors import GraderError
        from grader.ledger import Ledger
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            Ledger(Path(sys.argv[1])).claim("run", sys.argv[2])
        except GraderError:
            print("refused")
        else:
            print("won")
    """
    sealed = tmp_path / "sealed"
    racers = [_python(code, str(sealed), f"c{number:02}") for number in range(20)]
    for racer in racers:
        assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("\n")
        racer.stdin.flush()
    said = [racer.communicate(timeout=60)[0].strip() for racer in racers]
    assert sorted(said) == ["refused"] * 19 + ["won"]
    assert Ledger(sealed).claimed() == f"c{said.index('won'):02}"
    assert len(Ledger(sealed).read()) == 1


def test_records_come_back_and_survive_any_text(tmp_path: Path) -> None:
    ledger = _filled(tmp_path / "sealed")
    entries = ledger.read()
    assert [entry.kind for entry in entries] == ["claimed", "wave", "finished"]
    assert entries[2].fields == {"note": "é \n \ud800 end"}


def test_nothing_is_recorded_before_a_claim_or_in_its_name(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "sealed")
    with pytest.raises(GraderError):
        ledger.record("wave", {})
    ledger.claim("run", "c00")
    for kind, fields in (("claimed", {}), ("wave", {"prev": "x"})):
        with pytest.raises(ValueError):
            ledger.record(kind, fields)
    with pytest.raises(ValueError):
        ledger.record("wave", {"seconds": float("nan")})
    assert len(ledger.read()) == 1


def test_a_torn_last_line_never_happened_at_any_length(tmp_path: Path) -> None:
    _filled(tmp_path / "sealed")
    path = tmp_path / "sealed" / "ledger.jsonl"
    whole = path.read_bytes()
    last = whole[:-1].rfind(b"\n") + 1
    for cut in range(last, len(whole)):
        path.write_bytes(whole[:cut])
        assert [entry.kind for entry in Ledger(tmp_path / "sealed").read()] == ["claimed", "wave"]
    path.write_bytes(whole[:last] + b"\0" * 700)
    ledger = Ledger(tmp_path / "sealed")
    ledger.record("again", {"n": 1})
    assert [entry.kind for entry in ledger.read()] == ["claimed", "wave", "again"]
    assert b"\0" not in path.read_bytes()


def test_a_claim_whose_line_was_torn_stays_the_claim(tmp_path: Path) -> None:
    sealed = tmp_path / "sealed"
    Ledger(sealed).claim("run", "c03")
    path = sealed / "ledger.jsonl"
    path.write_bytes(path.read_bytes()[:20])
    assert Ledger(sealed).claimed() == "c03"
    with pytest.raises(GraderError):
        Ledger(sealed).claim("run", "c04")
    Ledger(sealed).claim("run", "c03")
    assert [entry.kind for entry in Ledger(sealed).read()] == ["claimed"]


def test_nothing_follows_a_claim_whose_name_is_not_on_the_disk(tmp_path: Path) -> None:
    """One that died right after link(2) left a claim that a power failure still took; the next one went on from it."""
    code = """
        import os, sys
        from pathlib import Path
        from grader.ledger import Ledger
        sealed = Path(sys.argv[1])
        ledger, opened = Ledger(sealed), []
        sys.addaudithook(lambda event, given: event == "open" and opened.append(str(given[0])))
        ledger.claim("run", "c03")
        print(opened.count(str(sealed)))
    """
    sealed = tmp_path / "sealed"
    Ledger(sealed).claim("run", "c03")
    (sealed / "ledger.jsonl").write_bytes(b"")
    assert _python(code, str(sealed)).communicate(timeout=60)[0] == "1\n"
    assert [entry.kind for entry in Ledger(sealed).read()] == ["claimed"]


def test_a_ledger_begins_with_its_claim_whatever_its_first_line_is_called(tmp_path: Path) -> None:
    sealed = tmp_path / "sealed"
    ledger = Ledger(sealed)
    first = {"v": 1, "seq": 0, "kind": "opened", "prev": "0" * 64}
    (sealed / "ledger.jsonl").write_text(json.dumps(first) + "\n")
    for attempt in (ledger.claimed, ledger.read, lambda: ledger.claim("run", "c01")):
        with pytest.raises(GraderError, match="changed by something else"):
            attempt()
    assert not (sealed / "claim.json").exists()


def test_a_writer_killed_at_any_moment_leaves_a_usable_ledger(tmp_path: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        from grader.ledger import Ledger
        ledger = Ledger(Path(sys.argv[1]))
        ledger.claim("run", "c01")
        for number in range(100_000):
            ledger.record("wave", {"number": number})
            print(number, flush=True)
    """
    sealed = tmp_path / "sealed"
    done = 0
    for _ in range(5):
        writer = _python(code, str(sealed))
        assert writer.stdout is not None
        for _ in range(5):
            assert writer.stdout.readline()
        writer.kill()
        done += 5 + len(writer.stdout.read().split())
        writer.wait()
        assert len(Ledger(sealed).read()) - 1 >= done  # what was answered is there
        done = len(Ledger(sealed).read()) - 1
    assert Ledger(sealed).claimed() == "c01"


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(b"hidden") + 1] ^= 1
    path.write_bytes(bytes(data))


def _drop_a_line(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[2])


def _rewrite_the_claim(path: Path) -> None:
    claim = path.parent / "claim.json"
    claim.unlink()
    claim.write_text(json.dumps({"run": "run-1", "candidate": "c09"}))


def _remove_the_claim(path: Path) -> None:
    (path.parent / "claim.json").unlink()


def _garble_the_claim(path: Path) -> None:
    (path.parent / "claim.json").write_bytes(b"\xff{}")


def _append_a_line(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(b'{"v":1,"seq":3,"kind":"claimed","run":"run-1","candidate":"c09","prev":"00"}\n')


def _empty_a_line(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


def _point_elsewhere(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


@pytest.mark.parametrize(
    "change",
    [
        _flip,
        _drop_a_line,
        _rewrite_the_claim,
        _remove_the_claim,
        _garble_the_claim,
        _append_a_line,
        _empty_a_line,
        _point_elsewhere,
    ],
)
def test_a_changed_ledger_is_refused_by_every_method(tmp_path: Path, change: Callable[[Path], None]) -> None:
    ledger = _filled(tmp_path / "sealed")
    change(tmp_path / "sealed" / "ledger.jsonl")
    for use in (
        ledger.read,
        ledger.claimed,
        lambda: ledger.claim("run-1", "c07"),
        lambda: ledger.record("wave", {}),
    ):
        with pytest.raises(GraderError):
            use()


def test_a_sealed_folder_that_is_a_link_or_open_to_others(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "sealed").symlink_to("elsewhere")
    with pytest.raises(GraderError):
        Ledger(tmp_path / "sealed")
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "open").chmod(0o755)
    Ledger(tmp_path / "open")
    assert (tmp_path / "open").stat().st_mode & 0o777 == 0o700
