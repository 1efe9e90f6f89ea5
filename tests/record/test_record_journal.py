"""The journal: chained, tamper-evident, readable whatever the bytes are."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_samples import HOSTILE, START, started, whole_run, write_steps

from runner.record import events as ev
from runner.record.events import SCHEMA_VERSION, Unknown
from runner.record.fold import fold
from runner.record.follow import Follower
from runner.record.journal import GENESIS, Journal, JournalError, load, read, verify
from runner.record.line import MAX_LINE, MAX_WRITE, encode, parse_line
from runner.record.state import RunState


def small(path: Path) -> bytes:
    """The bytes of a short journal."""
    write_steps(path, list(whole_run(1, steps=2, finish=False))[:8]).close()
    return path.read_bytes()


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return small(tmp_path_factory.mktemp("journal") / "journal.jsonl")


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    steps = list(whole_run())
    journal = write_steps(tmp_path / "j", steps)
    events = list(read(tmp_path / "j"))
    assert [event.payload for event in events] == [payload for payload, _, _ in steps]
    assert [event.seq for event in events] == list(range(1, len(steps) + 1))
    assert [(event.t, event.el) for event in events] == [(round(t, 3), round(el, 3)) for _, t, el in steps]
    assert journal.state == load(tmp_path / "j")


def test_each_line_names_the_sha256_of_the_line_before(raw: bytes) -> None:
    lines = raw.splitlines()
    assert json.loads(lines[0])["prev"] == GENESIS
    for before, line in itertools.pairwise(lines):
        assert json.loads(line)["prev"] == hashlib.sha256(before).hexdigest()


def test_a_line_is_ascii_and_flat_and_in_the_documented_order(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "j", lambda: 1.5, now=lambda: START)
    journal.append(ev.Warned(what=HOSTILE, where="\ud800"))
    line = (tmp_path / "j").read_bytes()
    assert line.isascii()
    assert b"\x1b" not in line
    assert list(json.loads(line))[:6] == ["v", "seq", "t", "el", "kind", "prev"]
    assert next(read(tmp_path / "j")).payload == ev.Warned(what=HOSTILE, where="\ud800")


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_flipped_byte_is_found_wherever_it_is(
    raw: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Only the very last newline can be lost unseen: then the last line is torn and is not there."""
    place = data.draw(st.integers(0, len(raw) - 1))
    bit = data.draw(st.integers(0, 7))
    broken = bytearray(raw)
    broken[place] ^= 1 << bit
    path = tmp_path_factory.mktemp("flip") / "j"
    path.write_bytes(bytes(broken))
    chain = verify(path)
    lines = raw.count(b"\n")
    if place == len(raw) - 1:
        assert (chain.ok, chain.torn, chain.lines) == (True, True, lines - 1)
        return
    assert not chain.ok
    assert chain.first_bad == raw[:place].count(b"\n") + 1
    with pytest.raises(JournalError, match=rf"line {chain.first_bad}"):
        Journal.reopen(path, lambda: 0.0)
    assert path.read_bytes() == bytes(broken), "a refused journal stays as it was"


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_cut_anywhere_it_reads_up_to_the_cut_and_goes_on_from_there(
    raw: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(raw)))
    path = tmp_path_factory.mktemp("cut") / "j"
    path.write_bytes(raw[:cut])
    whole = raw[:cut].count(b"\n")
    assert len(list(read(path))) == whole
    chain = verify(path)
    assert (chain.ok, chain.lines, chain.torn) == (True, whole, not (cut == 0 or raw[:cut].endswith(b"\n")))
    journal = Journal.reopen(path, lambda: 9.0, now=lambda: START)
    assert journal.state == load(path)
    journal.append(ev.RunResumed(boot_id="b", gap_s=1.0, phase="research"))
    journal.close()
    assert verify(path).ok
    assert [event.seq for event in read(path)] == list(range(1, whole + 2))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400) | st.lists(st.binary(max_size=60)).map(b"\n".join))
def test_any_bytes_can_be_read(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("bytes") / "j"
    path.write_bytes(data)
    events = list(read(path))
    assert len(events) == data.count(b"\n")
    state = load(path)
    assert state.unknown_count == len(events)
    assert verify(path).ok is (data.count(b"\n") == 0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters()), inner, max_size=3),
    max_leaves=8,
)
KINDS = st.sampled_from(["run_started", "budget_tick", "validation_finished", "selected", "no_such_kind"])


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["job", "score", "candidate", "wall_s", "el", "t", "v", "prev", "x\ud800"]), JSON),
    KINDS,
)
def test_any_json_object_is_an_event(fields: dict[str, object], kind: str) -> None:
    whole = {"v": 1, "seq": 3, "t": 1.0, "el": 2.0, "prev": "", "kind": kind, **fields}
    event = parse_line(json.dumps(whole).encode(), 3)
    fold(RunState(), event)
    if event.v:
        assert parse_line(encode(event), 3).seq == event.seq


@pytest.mark.parametrize(
    "line",
    [
        b'{"v":1,"seq":true,"t":1,"el":1,"prev":""}',
        b'{"v":0,"seq":1,"t":1,"el":1,"prev":"","kind":"selected"}',
        b'{"v":1,"seq":1e3,"t":1,"el":1,"prev":""}',
        b'{"v":1,"seq":1,"t":NaN,"el":1,"prev":""}',
        b'{"v":1,"seq":1,"t":1e999,"el":1,"prev":""}',
        b'{"v":1,"seq":1' + b"0" * 5000 + b',"t":1,"el":1,"prev":""}',
        b'{"v":1,"seq":99999999999999999999,"t":1,"el":1,"prev":""}',
        b"[" * 200_000,
        b"[]",
        b"\xff\xfe{}",
        b"",
    ],
)
def test_a_line_without_a_whole_envelope_is_damaged(line: bytes) -> None:
    event = parse_line(line, 7)
    assert (event.v, event.seq) == (0, 7)
    assert isinstance(event.payload, Unknown)


def test_a_damaged_line_hides_nothing_after_it(tmp_path: Path, raw: bytes) -> None:
    lines = raw.splitlines(keepends=True)
    path = tmp_path / "j"
    path.write_bytes(b"".join([*lines[:3], b"garbage\n", b"more\n", *lines[3:]]))
    state, clean = load(path), tmp_path / "clean"
    clean.write_bytes(raw)
    assert state.unknown_count == 2
    assert state.candidates == load(clean).candidates
    assert state.seq == len(lines)


def test_a_line_longer_than_any_reader_takes_is_skipped(tmp_path: Path, raw: bytes) -> None:
    lines = raw.splitlines(keepends=True)
    path = tmp_path / "j"
    path.write_bytes(lines[0] + b"x" * (MAX_LINE * 2 + 17) + b"\n" + lines[1] + b"y" * (MAX_LINE + 1))
    events = list(read(path))
    assert [event.v for event in events] == [1, 0, 1]
    assert verify(path).first_bad == 2


def test_unknown_kinds_and_newer_schemas_are_kept_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "j"
    line = {"v": SCHEMA_VERSION + 1, "seq": 1, "t": 1.0, "el": 0.0, "prev": GENESIS, "kind": "dream", "of": [1]}
    path.write_text(json.dumps(line) + "\n")
    (event,) = read(path)
    assert isinstance(event.payload, Unknown)
    assert event.payload.fields == {"kind": "dream", "of": [1]}
    assert load(path).notes.unknown == {"dream": 1}


def test_a_newer_schema_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "j"
    event = ev.Event(v=SCHEMA_VERSION + 1, seq=1, t=1.0, el=0.0, prev=GENESIS, payload=started())
    path.write_bytes(encode(event) + b"\n")
    assert verify(path).ok
    with pytest.raises(JournalError, match="newer"):
        Journal.reopen(path, lambda: 0.0)


def test_a_journal_is_never_begun_twice(tmp_path: Path) -> None:
    Journal.create(tmp_path / "j", lambda: 0.0).close()
    with pytest.raises(JournalError, match="resume"):
        Journal.create(tmp_path / "j", lambda: 0.0)
    with pytest.raises(JournalError):
        Journal.reopen(tmp_path / "absent", lambda: 0.0)


def test_a_huge_string_is_cut_so_that_every_reader_can_read_the_line(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "j", lambda: 0.0)
    journal.append(ev.Warned(what="w", where="x" * (MAX_WRITE * 3)))
    journal.append(ev.Warned(what="after"))
    first, second = read(tmp_path / "j")
    assert isinstance(first.payload, ev.Warned)
    assert len(first.payload.where) < 3000
    assert second.payload == ev.Warned(what="after")
    assert verify(tmp_path / "j").ok


def test_a_full_disk_is_one_line() -> None:
    fd = os.open("/dev/full", os.O_WRONLY)
    try:
        journal = Journal(Path("/dev/full"), fd, lambda: 0.0, lambda: 0.0, verify(Path("/dev/null")), RunState())
        with pytest.raises(JournalError, match=r"no space left.*free disk space"):
            journal.append(started())
        assert journal.state.seq == 0
    finally:
        os.close(fd)


def test_subscribers_hear_what_was_written_with_the_state_after_it(tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    journal = Journal.create(tmp_path / "j", lambda: 0.0)
    journal.subscribe(lambda event, state: heard.append((event.seq, state.seq)))
    journal.append(started(), sync=True)
    journal.append(ev.PhaseChanged(phase="baseline"))
    assert heard == [(1, 1), (2, 2)]


# -- following -------------------------------------------------------------------------------------------------------


def test_a_follower_gets_each_event_once_however_the_bytes_arrive(tmp_path: Path, raw: bytes) -> None:
    path, seen = tmp_path / "j", []
    with Follower(path) as follower:
        assert follower.poll() == []
        for start in range(0, len(raw), 97):
            with path.open("ab") as file:
                file.write(raw[start : start + 97])
            seen += follower.poll()
        assert [event.seq for event in seen] == list(range(1, raw.count(b"\n") + 1))
        assert follower.poll() == []
        assert follower.restarts == 0


def test_a_follower_takes_no_more_than_it_was_asked_to(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "j"
    path.write_bytes(raw)
    with Follower(path) as follower:
        sizes = [len(follower.poll(3)) for _ in range(4)]
    assert sizes == [3, 3, 2, 0]


def test_a_follower_starts_over_when_the_file_is_cut_replaced_or_gone(tmp_path: Path, raw: bytes) -> None:
    path, count = tmp_path / "j", raw.count(b"\n")
    path.write_bytes(raw)
    with Follower(path) as follower:
        assert len(follower.poll()) == count
        path.write_bytes(raw[: raw.index(b"\n") + 1])
        assert [event.seq for event in follower.poll()] == [1]
        other = tmp_path / "other"
        other.write_bytes(raw)
        other.replace(path)
        assert len(follower.poll()) == count
        path.unlink()
        assert follower.poll() == []
        path.write_bytes(raw)
        assert len(follower.poll()) == count
        assert follower.restarts == 3


def test_a_follower_stays_in_place_when_a_torn_tail_is_cut_by_resume(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "j"
    path.write_bytes(raw[:-5])
    with Follower(path) as follower:
        before = len(follower.poll())
        journal = Journal.reopen(path, lambda: 0.0, now=lambda: START)
        journal.append(ev.RunResumed(boot_id="b", gap_s=1.0, phase="research"))
        (event,) = follower.poll()
        assert event.seq == before + 1
        assert follower.restarts == 0


def test_kinds_can_be_left_out_unread(tmp_path: Path) -> None:
    steps = list(whole_run())
    write_steps(tmp_path / "j", steps).close()
    kinds = {event.payload.kind for event in read(tmp_path / "j", skip=frozenset({"train_progress"}))}
    assert kinds == {payload.kind for payload, _, _ in steps} - {"train_progress"}


def test_a_link_and_a_pipe_are_no_journals(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "elsewhere").write_bytes(raw)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with Follower(tmp_path / name) as follower:
            assert follower.poll() == []
