"""A root start: what the dropped child can reach, what it cannot, and what its supervisor does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from isolation import limits, privilege

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can show this")

ENTER = (sys.executable, "-P", "-m", "isolation.privilege")
CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody can reach, unlike pytest's own under root."""
    with tempfile.TemporaryDirectory(prefix="vtb-privilege-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


def dropped(code: str, *options: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs Python code behind the drop."""
    words = {**os.environ, "PYTHONPATH": str(CHECKOUT), **(env or {})}
    command = (*ENTER, *options, "--", sys.executable, "-c", code)
    return subprocess.run(command, env=words, capture_output=True, text=True, timeout=120, check=False)


def test_the_child_is_an_ordinary_user_for_good() -> None:
    code = """
import os
print(os.getresuid(), os.getresgid(), os.getgroups())
for change in (lambda: os.setuid(0), lambda: os.seteuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]),
               lambda: os.chroot("/"), lambda: os.chown("/etc/passwd", 0, 0), lambda: open("/etc/shadow").read()):
    try: change(); print("ROOT")
    except OSError: pass
print([line.split()[1] for line in open("/proc/self/status") if line.startswith(("CapEff", "CapPrm", "NoNewPrivs"))])
"""
    done = dropped(code)
    uid = privilege.ordinary_person(os.environ).uid
    assert done.stdout.splitlines()[0].startswith(f"({uid}, {uid}, {uid})"), done.stderr
    assert done.stdout.splitlines()[1] == f"['{0:016x}', '{0:016x}', '1']"


def test_a_setuid_program_does_not_bring_root_back(place: Path) -> None:
    import shutil

    shutil.copy("/usr/bin/id", place / "id")
    (place / "id").chmod(0o4755)
    done = dropped(
        f"import subprocess; print(subprocess.run(['{place}/id', '-u'], capture_output=True, text=True).stdout)"
    )
    assert done.stdout.strip() != "0" and done.stdout.strip().isdigit()


def test_what_it_needs_is_there_under_a_closed_home_and_the_rest_is_not(place: Path) -> None:
    home = place / "closed"
    (home / "kept").mkdir(parents=True)
    (home / "kept" / "file").write_text("kept")
    (home / "secret").write_text("secret")
    home.chmod(0o700)
    code = f"""
import os, sys, pydantic
print(open("{home}/kept/file").read(), os.path.exists("{home}/secret"), os.path.exists(sys.base_prefix))
try: open("{home}/kept/new", "w"); print("WRITTEN")
except OSError: pass
print(os.environ["HOME"].startswith("{home}"), os.stat(os.environ["HOME"]).st_uid == os.getuid())
open(os.environ["HOME"] + "/own", "w").write("x")
print(os.stat(os.environ["XDG_RUNTIME_DIR"]).st_mode & 0o777 == 0o700, os.environ["VIBETRAINING_HOME"])
"""
    done = dropped(code, "--keep", str(home / "kept"), env={"HOME": str(home)})
    expected = f"kept False True\nTrue True\nTrue {home}/.cache/vibetraining-bench\n"
    assert done.stdout == expected, done.stderr
    assert (home / "secret").exists() and not list(home.glob(".ordinary/*")), "nothing was left outside"


def test_a_kept_folder_that_cannot_be_entered_is_named(place: Path) -> None:
    (place / "shut").mkdir(0o700)
    done = dropped("print('ran')", "--keep", str(place / "shut"))
    assert done.returncode == 126 and f"chmod o+rx {place}/shut" in done.stderr and not done.stdout


def test_links_on_the_way_are_followed(place: Path) -> None:
    home = place / "closed"
    (home / "real").mkdir(parents=True)
    (home / "real" / "file").write_text("found")
    (home / "link").symlink_to("real")
    home.chmod(0o700)
    done = dropped(f"print(open('{home}/link/file').read())", "--keep", str(home / "link"))
    assert done.stdout == "found\n", done.stderr


def test_a_written_folder_and_what_is_in_it_belong_to_the_child(place: Path) -> None:
    run = place / "closed" / "runs" / "one"
    (run / "sub").mkdir(parents=True)
    (run / "sub" / "file").write_text("x")
    (run / "link").symlink_to("/etc/passwd")
    outside = place / "outside"
    outside.write_text("not ours")
    os.link(outside, run / "hard")
    (place / "closed").chmod(0o700)
    done = dropped(f"import os; open('{run}/sub/file', 'a').write('y'); os.mkdir('{run}/new')", "--write", str(run))
    uid = privilege.ordinary_person(os.environ).uid
    assert done.returncode == 0, done.stderr
    assert {(run / name).stat().st_uid for name in (".", "sub", "sub/file", "new")} == {uid}
    assert (run / "sub" / "file").read_text() == "xy"
    assert outside.stat().st_uid == Path("/etc/passwd").stat().st_uid == 0


@pytest.mark.parametrize("folder", ["/", "/etc", "/usr/local", "/root", "/home", "/tmp", "/proc/self"])
def test_system_folders_are_not_handed_over(folder: str) -> None:
    before = Path(folder).stat().st_uid
    done = dropped("print('ran')", "--write", folder)
    assert done.returncode == 2 and "system folder" in done.stderr and "ran" not in done.stdout
    assert Path(folder).stat().st_uid == before


def test_what_steers_a_loader_or_belongs_to_roots_session_is_cleared() -> None:
    code = "import os; print([n for n in ('BASH_ENV', 'SSH_AUTH_SOCK', 'PYTHONSTARTUP', 'KEY') if n in os.environ])"
    done = dropped(code, env={"BASH_ENV": "/x", "SSH_AUTH_SOCK": "/x", "PYTHONSTARTUP": "/x", "KEY": "stays"})
    assert done.stdout == "['KEY']\n"


@pytest.mark.parametrize(
    ("code", "expected"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_the_exit_code_comes_back(code: str, expected: int) -> None:
    assert dropped(code).returncode == expected


def started(code: str) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    command = (*ENTER, "--", sys.executable, "-u", "-c", code)
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_the_supervisor_forwards_signals(name: str) -> None:
    code = f"""
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.{name}])
print("ready")
print(signal.sigwait([signal.{name}]).name)
raise SystemExit(5)
"""
    process = started(code)
    assert line_of(process) == "ready"
    process.send_signal(getattr(signal, name))
    assert line_of(process) == name and process.wait(60) == 5
    process.communicate()


def test_the_child_dies_with_its_supervisor() -> None:
    process = started("import os, time; print(os.getpid()); time.sleep(1000)")
    handle = os.pidfd_open(int(line_of(process)))
    process.kill()
    process.communicate()
    import select

    assert select.select([handle], [], [], 30)[0] == [handle]
    os.close(handle)


def test_nothing_that_the_child_left_behind_goes_on() -> None:
    orphan = "import os, time; os.setsid(); print(os.getpid(), flush=True); time.sleep(1000)"
    done = started(f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {orphan!r}]).pid)")
    pid = int(line_of(done))
    assert done.wait(60) == 0
    assert not Path(f"/proc/{pid}").exists()
    done.communicate()


def test_the_cgroup_is_the_childs_and_goes_with_it() -> None:
    code = f"""
import os
for name in os.environ.get("{limits.CGROUP_VARIABLE}", "").split(":"):
    if name:
        os.mkdir(name + "/inner"); os.rmdir(name + "/inner"); print(name)
"""
    done = dropped(code)
    assert done.returncode == 0, done.stderr
    if not done.stdout:
        pytest.skip("no cgroup here that root may divide")
    assert not any(Path(name).exists() for name in done.stdout.split())


def test_an_ordinary_start_changes_nothing() -> None:
    code = (
        f"import subprocess; print(subprocess.run({[*ENTER, '--', '/usr/bin/id', '-u']!r}, capture_output=True).stdout)"
    )
    uid = privilege.ordinary_person(os.environ).uid
    assert dropped(code).stdout.strip() == repr(f"{uid}\n".encode())


def test_whom_sudo_names_is_whom_we_become() -> None:
    assert privilege.ordinary_person({"SUDO_UID": "1234", "SUDO_GID": "1235"}).uid == 1234
    for odd in ({"SUDO_UID": "0", "SUDO_GID": "0"}, {"SUDO_UID": "x", "SUDO_GID": "1"}, {}):
        assert privilege.ordinary_person(odd).uid == privilege.NUMERIC_UID
