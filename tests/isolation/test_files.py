"""write_atomic: the old file or the new one."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from isolation.files import fsync_dir, write_atomic


def test_it_replaces_and_sets_the_mode(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_atomic(path, b"one")
    write_atomic(path, b"two", 0o600)
    assert path.read_bytes() == b"two" and path.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    fsync_dir(tmp_path)


def test_a_failure_leaves_the_old_file_and_no_rest(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError):
        write_atomic(tmp_path / "a", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    contents = [bytes([n]) * 100_000 for n in (1, 2)]
    write_atomic(path, contents[0])
    torn: list[bytes] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            data = path.read_bytes()
            if data not in contents:
                torn.append(data[:8])

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(40):
        write_atomic(path, contents[n % 2])
    done.set()
    reader.join()
    assert not torn
