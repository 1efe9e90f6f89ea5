"""Snapshots of hostile folders: refused with a name, or exactly what was copied."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isolation import intake
from isolation.clean import clean
from isolation.inside import intake as walker
from isolation.problem import IntakeError

MIB = 1 << 20


@pytest.fixture
def source(tmp_path: Path) -> Path:
    place = tmp_path / "source"
    (place / "a" / "b").mkdir(parents=True)
    (place / "main.py").write_text("print(1)\n")
    (place / "a" / "b" / "data.jsonl").write_text("{}\n")
    return place


@pytest.fixture
def store(tmp_path: Path) -> Path:
    if os.getuid() == 0:
        pytest.skip("sandboxes are never started by root")
    return tmp_path / "store"


async def test_a_snapshot_is_its_content_and_comes_out_the_same(source: Path, store: Path, tmp_path: Path) -> None:
    (source / "main.py").chmod(0o4777)
    (source / "empty").mkdir()
    (source / "a" / "__pycache__").mkdir()
    (source / "a" / "__pycache__" / "x.pyc").write_bytes(b"\0")
    first = await intake.snapshot(source, store, max_bytes=MIB, max_files=100)
    assert [(entry.path, entry.size) for entry in first.files] == [("a/b/data.jsonl", 3), ("main.py", 9)]
    assert first.bytes == 12 and intake.load_manifest(store, first.id) == first
    os.utime(source / "main.py", (1, 1))
    assert (await intake.snapshot_trusted(source, store)).id == first.id
    intake.materialise(store, first.id, tmp_path / "out")
    assert (tmp_path / "out" / "main.py").read_text() == "print(1)\n"
    assert (tmp_path / "out" / "main.py").stat().st_mode & 0o7777 == 0o644
    assert (tmp_path / "out" / "a" / "b").stat().st_mode & 0o7777 == 0o755
    (source / "main.py").write_text("print(2)\n")
    assert (await intake.snapshot(source, store, max_bytes=MIB, max_files=100)).id != first.id
    assert not list(store.glob("staging-*"))


def plant_link(place: Path) -> None:
    (place / "x").symlink_to("/etc/passwd")


def plant_folder_link(place: Path) -> None:
    (place / "x").symlink_to("/etc", target_is_directory=True)


def plant_socket(place: Path) -> None:
    here = Path.cwd()
    os.chdir(place)  # a socket's path is at most 108 bytes long
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("x")
    finally:
        os.chdir(here)


def plant_sparse(place: Path) -> None:
    (place / "x").touch()
    os.truncate(place / "x", 7 << 40)


def plant_deep(place: Path) -> None:
    handle = os.open(place, os.O_RDONLY)
    for _ in range(900):
        os.mkdir("d", dir_fd=handle)
        deeper = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = deeper
    os.close(handle)


def remove_deep(place: Path) -> None:
    """rmtree recurses; a tree of 900 levels is taken apart from below."""
    for _ in range(900):
        (place / "d" / "d").rename(place / "next") if (place / "d" / "d").exists() else None
        (place / "d").rmdir()
        if not (place / "next").exists():
            return
        (place / "next").rename(place / "d")


def plant_many(place: Path) -> None:
    for number in range(150):
        (place / str(number)).touch()


def plant_bytes(place: Path) -> None:
    os.close(os.open(os.fsencode(place) + b"/\xff\xfe", os.O_CREAT | os.O_WRONLY))


PLANTED = {
    "a link is not allowed": plant_link,
    "a link  is not allowed": plant_folder_link,
    "a FIFO is not allowed": lambda place: os.mkfifo(place / "x"),
    "a socket is not allowed": plant_socket,
    "more than 1048576 bytes in all": plant_sparse,
    "deeper than 32": plant_deep,
    "too many files": plant_many,
    "not UTF-8": plant_bytes,
    "cannot be printed": lambda place: (place / "a\x1b[31mb\nc").touch(),
    "Unicode normal form": lambda place: (place / "e\u0301").touch(),
    "longer than 1024": lambda place: (place / "/".join(["y" * 250] * 5)).mkdir(parents=True),
    "cannot be read": lambda place: (place / "x").touch(0o000),
}


@pytest.mark.parametrize("words", list(PLANTED))
async def test_whatever_is_no_plain_file_is_refused_by_name(words: str, source: Path, store: Path) -> None:
    PLANTED[words](source)
    with pytest.raises(IntakeError) as caught:
        await intake.snapshot(source, store, max_bytes=MIB, max_files=100)
    assert words.replace("  ", " ") in caught.value.what
    assert caught.value.where and clean(str(caught.value)) == str(caught.value)
    assert not list((store / "manifests").iterdir()) and not list(store.glob("staging-*"))
    if words == "deeper than 32":
        remove_deep(source)


async def test_a_source_that_is_a_link_or_nothing_is_refused(source: Path, store: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(source)
    for place in (tmp_path / "link", tmp_path / "nothing", source / "main.py"):
        with pytest.raises(IntakeError, match="not a folder"):
            await intake.snapshot(place, store, max_bytes=MIB, max_files=10)


@contextmanager
def running(step: object) -> Iterator[None]:
    """Calls ``step`` in a thread, again and again, until the block is left."""
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            step()  # type: ignore[operator]

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def swapper(place: Path, secret: str) -> object:
    """Changes ``place/x`` between a plain file and a link to ``secret``, as fast as it can."""
    good, bad, name = place.parent / "good", place.parent / "bad", place / "x"

    def step() -> None:
        good.write_text("harmless")
        good.replace(name)
        bad.unlink(missing_ok=True)
        bad.symlink_to(secret)
        bad.replace(name)

    return step


def test_a_link_swapped_in_leaks_nothing_in_4000_walks(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (place / "x").write_text("harmless")
    (tmp_path / "secret").write_text("SECRET")
    root = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    seen: dict[str, int] = {}
    with running(swapper(place, str(tmp_path / "secret"))):
        for _ in range(4000):
            try:
                for _, handle, _ in walker.walk(root, 10):
                    text = os.read(handle, 100).decode()
                    seen[text] = seen.get(text, 0) + 1
            except walker.Refused as refusal:
                seen[refusal.why.split()[-1]] = seen.get(refusal.why.split()[-1], 0) + 1
    os.close(root)
    assert set(seen) <= {"harmless", "allowed", "directory)"}, seen
    assert seen.get("harmless", 0) > 0 and seen.get("allowed", 0) > 0, "the race was never tried"


async def test_a_link_swapped_in_leaks_nothing_through_the_sandbox(source: Path, store: Path) -> None:
    taken = refused = 0
    with running(swapper(source, "/etc/hosts")):
        for _ in range(60):
            try:
                manifest = await intake.snapshot(source, store, max_bytes=MIB, max_files=100)
            except IntakeError:
                refused += 1
                continue
            taken += 1
            entry = next(entry for entry in manifest.files if entry.path == "x")
            assert entry.sha256 == hashlib.sha256(b"harmless").hexdigest()
    assert taken + refused == 60


async def test_a_file_that_grows_while_it_is_copied_stays_within_its_size(source: Path, store: Path) -> None:
    path = source / "grow"
    path.write_bytes(b"x" * 1000)

    def grow() -> None:
        with path.open("ab") as stream:
            stream.write(b"y" * 4096)
        if path.stat().st_size > 4 * MIB:
            os.truncate(path, 1000)

    with running(grow):
        for _ in range(15):
            try:
                manifest = await intake.snapshot(source, store, max_bytes=8 * MIB, max_files=100)
            except IntakeError as error:
                assert "bytes in all" in str(error)
                continue
            entry = next(entry for entry in manifest.files if entry.path == "grow")
            stored = store / "objects" / entry.sha256[:2] / entry.sha256
            data = stored.read_bytes()
            assert len(data) == entry.size and hashlib.sha256(data).hexdigest() == entry.sha256


def test_a_copy_stops_at_the_size_that_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "grown").write_bytes(b"x" * 5000)
    with (tmp_path / "grown").open("rb") as source, (tmp_path / "out").open("wb") as target:
        digest, size = walker.copy(source.fileno(), target.fileno(), 1000)
    assert (tmp_path / "out").read_bytes() == b"x" * 1000
    assert (digest, size) == (hashlib.sha256(b"x" * 1000).hexdigest(), 1000)


async def test_a_changed_store_is_noticed(source: Path, store: Path, tmp_path: Path) -> None:
    manifest = await intake.snapshot(source, store, max_bytes=MIB, max_files=100)
    entry = manifest.files[0]
    stored = store / "objects" / entry.sha256[:2] / entry.sha256
    assert stored.stat().st_mode & 0o222 == 0
    with pytest.raises(PermissionError):
        stored.write_text("other")
    stored.chmod(0o644)
    stored.write_text("[]\n")
    with pytest.raises(IntakeError, match="changed after the snapshot"):
        intake.materialise(store, manifest.id, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    path = store / "manifests" / f"{manifest.id}.json"
    path.chmod(0o644)
    body = json.loads(path.read_text())
    body["files"][0][0] = "../../escape"
    path.write_text(json.dumps(body))
    with pytest.raises(IntakeError, match="manifest was changed"):
        intake.load_manifest(store, manifest.id)


@pytest.mark.parametrize("name", ["", "../x", "0" * 15, "G" * 16, "0" * 16, "0" * 16 + "\n", "a/../../etc/passwd"])
def test_an_id_is_an_id(name: str, tmp_path: Path) -> None:
    with pytest.raises(IntakeError):
        intake.load_manifest(tmp_path, name)


async def test_it_never_writes_into_what_is_already_there(source: Path, store: Path, tmp_path: Path) -> None:
    manifest = await intake.snapshot(source, store, max_bytes=MIB, max_files=100)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "empty").mkdir()
    for place in ("link", "full"):
        with pytest.raises(IntakeError, match="not an empty folder"):
            intake.materialise(store, manifest.id, tmp_path / place)
    intake.materialise(store, manifest.id, tmp_path / "empty")
    assert (tmp_path / "empty" / "main.py").is_file()


@given(
    st.text(max_size=40) | st.lists(st.sampled_from(["..", ".", "", "a", "/", "\0", "\n"]), max_size=6).map("/".join)
)
def test_an_accepted_path_stays_below_its_folder(path: str) -> None:
    try:
        intake.check_path(path)
    except IntakeError:
        return
    assert os.path.normpath(os.path.join("/base", path)).startswith("/base/") and not path.startswith("/")  # noqa: PTH118
    assert clean(path) == path or any(ord(c) > 127 for c in path)


@pytest.mark.parametrize(
    "answer",
    [{"path": "a", "size": 3, "sha256": "x"}, {"path": "../a", "size": 3, "sha256": "0" * 64}, {"path": 1},
     {"path": "a", "size": -1, "sha256": "0" * 64}, {"path": "a", "size": "3", "sha256": "0" * 64}],
)  # fmt: skip
def test_what_the_sandbox_says_is_a_claim(answer: dict[str, object]) -> None:
    with pytest.raises(IntakeError):
        intake._entry(answer)


def test_a_staged_file_that_is_not_as_announced_is_refused(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"real")
    (tmp_path / "1").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "2")
    folder = os.open(tmp_path, os.O_RDONLY)
    digest = hashlib.sha256(b"real").hexdigest()
    intake._verify(folder, "0", intake.FileEntry("a", digest, 4))
    for name, size, said in (
        ("0", 5, digest),
        ("0", 4, "0" * 64),
        ("1", 4, digest),
        ("2", 0, digest),
        ("3", 4, digest),
    ):
        with pytest.raises(IntakeError):
            intake._verify(folder, name, intake.FileEntry("a", said, size))
    os.link(tmp_path / "0", tmp_path / "second-name")
    with pytest.raises(IntakeError):
        intake._verify(folder, "0", intake.FileEntry("a", digest, 4))
    os.close(folder)
