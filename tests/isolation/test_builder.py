"""The argument builder refuses every unsafe plan, and says the walls in the right order."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isolation import bwrap
from isolation.problem import SandboxError
from isolation.spec import Limits, Mount, SandboxSpec

TARGETS = ("/in", "/in/a", "/in/a/b", "/out", "/out/x", "/lab", "/lab/data", "/lab/data/d", "/tmp/w", "/tmp/w/v")
SOURCES = ("s", "s/a", "s/a/b", "t", "t/x", "u")


def plan(*mounts: Mount, **more: object) -> SandboxSpec:
    return SandboxSpec("harness", ("/usr/bin/true",), mounts=mounts, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = Path(os.path.realpath(tmp_path_factory.mktemp("tree")))
    for name in (*SOURCES, "s/data", "s/data/d", "u/a/b", "u/x", "u/data/d", "u/v", "t/a/b"):
        (root / name).mkdir(parents=True, exist_ok=True)
    return root


def inside(lower: str, upper: str) -> bool:
    """Said independently of the builder: whether path ``lower`` is strictly below ``upper``."""
    return Path(upper) in Path(lower).parents


mounts = st.lists(st.tuples(st.sampled_from(SOURCES), st.sampled_from(TARGETS), st.booleans()), max_size=5)


@given(rows=mounts)
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_accepted_plan_has_anything_below_a_writable_mount(tree: Path, rows: list[tuple[str, str, bool]]) -> None:
    chosen = [Mount(tree / source, target, writable) for source, target, writable in rows]
    unsafe = len({mount.target for mount in chosen}) != len(chosen) or any(
        upper.writable
        and (
            inside(lower.target, upper.target)
            or lower.source == upper.source
            or inside(str(lower.source), str(upper.source))
        )
        for upper in chosen
        for lower in chosen
        if upper is not lower
    )
    try:
        words = bwrap.arguments(plan(*chosen))
    except SandboxError:
        return
    assert not unsafe
    binds = [(words[i], words[i + 2]) for i, word in enumerate(words) if word in ("--bind", "--ro-bind")]
    kinds = [kind for kind, _ in binds]
    assert "--ro-bind" not in kinds[kinds.index("--bind") :] if "--bind" in kinds else True


@given(rows=mounts, target=st.sampled_from(TARGETS))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_mount_below_a_writable_one_is_always_refused(
    tree: Path, rows: list[tuple[str, str, bool]], target: str
) -> None:
    chosen = [Mount(tree / source, place, writable) for source, place, writable in rows]
    with pytest.raises(SandboxError):
        bwrap.arguments(plan(*chosen, Mount(tree / "t", target, True), Mount(tree / "u", f"{target}/deeper")))


@pytest.mark.parametrize(
    "target",
    ["/", "in", "", "/in/", "//in", "/in/../etc", "/in/.", "/proc", "/proc/sys", "/dev/shm/x", "/sys", "/usr/x", "/etc",
     "/etc/passwd", "/bin/x", "/lib64", "/tmp", "/in\n", "/in\x1b[m", "/in\0"],
)  # fmt: skip
def test_bad_targets_are_refused(tree: Path, target: str) -> None:
    with pytest.raises(SandboxError, match="unsafe sandbox plan"):
        bwrap.arguments(plan(Mount(tree / "s", target)))


@pytest.mark.parametrize(
    "source", ["/", "/etc", "/home", "/root", "/tmp", "/proc", "/proc/self", "/sys/fs", "/run", "/usr"]
)
@pytest.mark.parametrize("writable", [False, True])
def test_whole_host_folders_are_refused(source: str, writable: bool) -> None:
    with pytest.raises(SandboxError):
        bwrap.arguments(plan(Mount(Path(source), "/in", writable)))


def test_sources_must_be_there_and_be_no_links_or_pipes(tree: Path) -> None:
    link, pipe, plain = tree / "link", tree / "pipe", tree / "plain"
    link.symlink_to("/etc")
    os.mkfifo(pipe)
    plain.write_text("x")
    for source in (link, pipe, tree / "missing", Path("relative"), tree / "s" / ".." / "t"):
        with pytest.raises(SandboxError):
            bwrap.arguments(plan(Mount(source, "/in")))
    bwrap.arguments(plan(Mount(plain, "/in")))
    with pytest.raises(SandboxError):
        bwrap.arguments(plan(Mount(plain, "/in", writable=True)))


def test_a_mount_point_inside_a_read_only_mount_must_exist_and_be_no_link(tree: Path) -> None:
    base = tree / "models"
    (base / "m00" / "weights").mkdir(parents=True)
    (base / "bad").symlink_to("/oldroot/etc")
    good = bwrap.arguments(plan(Mount(base, "/models"), Mount(tree / "s", "/models/m00/weights")))
    assert good.index("/models") < good.index("/models/m00/weights")
    for place in ("/models/none", "/models/bad", "/models/bad/deeper"):
        with pytest.raises(SandboxError, match="mount point"):
            bwrap.arguments(plan(Mount(base, "/models"), Mount(tree / "s", place)))


@pytest.mark.parametrize(
    "change",
    [{"env": {"A=B": "x"}}, {"env": {"": "x"}}, {"env": {"A": "x\0y"}}, {"cwd": "relative"}, {"cwd": "/tmp/.."},
     {"hostname": "a b"}, {"hostname": "-x"}, {"pass_fds": (1,)}, {"pass_fds": (7, 7)}, {"limits": Limits(tmp_bytes=0)},
     {"limits": Limits(pids=0)}, {"env": {"HOME": "/a:0:0"}}],
)  # fmt: skip
def test_bad_words_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(SandboxError):
        bwrap.arguments(plan(**change))


def test_every_wall_is_named_and_the_root_is_sealed_after_the_last_bind(tree: Path) -> None:
    words = bwrap.arguments(plan(Mount(tree / "s", "/out", True), Mount(tree / "t", "/in")))
    for wall in ("user", "ipc", "pid", "net", "uts"):
        assert f"--unshare-{wall}" in words
    for option in ("--disable-userns", "--die-with-parent", "--new-session", "--clearenv"):
        assert option in words
    assert words[words.index("--cap-drop") + 1] == "ALL"
    binds = [
        i for i, word in enumerate(words) if word in ("--bind", "--ro-bind", "--ro-bind-try", "--tmpfs", "--symlink")
    ]
    seals = [i for i, word in enumerate(words) if word == "--remount-ro"]
    assert words[seals[-1] + 1] == "/" and seals[0] > max(binds)
    sources = [words[i + 1] for i in binds if words[i].endswith("bind")]
    assert "/" not in sources and "/etc" not in sources and "/home" not in sources
    assert "--share-net" not in words and "--dev-bind" not in words


def test_the_accelerator_comes_with_sys_and_its_nodes_after_dev(tree: Path) -> None:
    words = bwrap.arguments(SandboxSpec("training", ("/usr/bin/true",), accelerator=True))
    assert words.index("/sys") > words.index("--dev")
    assert "/sys" not in bwrap.arguments(SandboxSpec("research", ("/usr/bin/true",)))


def test_a_setuid_or_old_bubblewrap_is_not_used(tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho bubblewrap 0.11.0\n")
    program.chmod(0o755)
    assert bwrap.objection(program) == ""
    program.chmod(0o4755)
    assert "setuid" in bwrap.objection(program)
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\necho bubblewrap 0.6.2\n")
    old.chmod(0o755)
    assert "older" in bwrap.objection(old)
    assert "not installed" in bwrap.objection(tmp_path / "none")


def test_a_named_bubblewrap_is_used_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho bubblewrap 0.11.0\n")
    program.chmod(0o755)
    monkeypatch.setenv(bwrap.BWRAP_VARIABLE, str(program))
    bwrap.find_bwrap.cache_clear()
    try:
        assert bwrap.find_bwrap() == program
        monkeypatch.setenv(bwrap.BWRAP_VARIABLE, str(tmp_path / "none"))
        bwrap.find_bwrap.cache_clear()
        with pytest.raises(SandboxError, match="none: not installed"):
            bwrap.find_bwrap()
    finally:
        monkeypatch.undo()
        bwrap.find_bwrap.cache_clear()


def test_the_known_fault_is_noted_until_it_is_fixed(tmp_path: Path) -> None:
    for release, noted in (("0.11.9", True), ("0.12.0", False), ("1.0.0", False)):
        program = tmp_path / release
        program.write_text(f"#!/bin/sh\necho bubblewrap {release}\n")
        program.chmod(0o755)
        assert ("CVE-2026-87766" in bwrap.cve_note(program)) is noted


def test_an_interpreter_behind_links_is_mounted_under_every_name(tmp_path: Path) -> None:
    tmp_path = Path(os.path.realpath(tmp_path))
    real = tmp_path / "pythons" / "3.11.7"
    (real / "bin").mkdir(parents=True)
    (real / "bin" / "python3.11").write_text("")
    (tmp_path / "pythons" / "3.11").symlink_to("3.11.7")
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(tmp_path / "pythons" / "3.11" / "bin" / "python3.11")
    (venv / "pyvenv.cfg").write_text(f"home = {tmp_path}/pythons/3.11/bin\n")
    found = {(str(mount.source), mount.target) for mount in bwrap.python_mounts(venv / "bin" / "python")}
    assert found == {
        (str(venv), str(venv)),
        (str(real), str(real)),
        (str(real), str(tmp_path / "pythons" / "3.11")),
    }
    with pytest.raises(SandboxError, match="no such interpreter"):
        bwrap.python_mounts(tmp_path / "venv" / "bin" / "nothing")


def calls_to_check(folders: list[Path]) -> int:
    """How many Python functions are called to check a plan with a mount for each folder."""
    count = 0

    def seen(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    spec = plan(*(Mount(folder, f"/in/{number}") for number, folder in enumerate(folders)))
    sys.setprofile(seen)
    try:
        bwrap.check(spec)
    finally:
        sys.setprofile(None)
    return count


def test_twice_the_mounts_are_twice_the_work(tmp_path: Path) -> None:
    """A comparison mounts every evaluation there was: by pairs, a few hundred held the grader up for half a minute."""
    folders = [tmp_path / f"e{number:03d}" for number in range(240)]
    for folder in folders:
        folder.mkdir()
    assert calls_to_check(folders) < 2.5 * calls_to_check(folders[:120])
