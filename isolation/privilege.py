"""A root start made ordinary: private mounts, an ordinary uid, the same program again.

``python -P -m isolation.privilege [--write DIR]... [--keep PATH]... -- CMD...`` or :func:`enter`.

Started by root, a supervisor stays behind (it forwards signals, returns the exit code and removes the cgroup) and its
child, in a mount namespace of its own, covers every folder that the ordinary uid could not cross, binds what the
program needs back at its own path, drops to that uid and executes the command. Started by anybody else nothing changes
hands: the command is executed as it is. bwrap must never be started by uid 0, which is why this exists.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import signal
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from isolation import limits
from isolation.mounts import Kept, kept_places
from isolation.problem import SandboxError

NUMERIC_UID = 61234
"""The ordinary uid of a root start without sudo; it needs no passwd entry."""

CGROUP_VARIABLE = limits.CGROUP_VARIABLE
HOME_VARIABLE = "VIBETRAINING_HOME"

_CLONE_NEWNS = 0x00020000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT = 0x1, 0x2, 0x4, 0x20
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 1 << 18
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_DANGEROUS = ("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "BASH_ENV", "ENV", "PYTHONSTARTUP", "PYTHONHOME")
_PERSONAL = ("SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "XAUTHORITY")
_NOT_OURS = ("/", "/home", "/opt", "/root", "/run", "/srv", "/tmp", "/var", "/var/tmp")  # noqa: S108  (refused)
_NOT_OURS_TREES = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr", "/var/lib")


@dataclass(frozen=True, slots=True)
class Person:
    """Whom to become: numeric ids and, when there is one, the passwd name and home."""

    uid: int
    gid: int
    name: str = ""
    home: str = ""


def is_root() -> bool:
    """Whether any of our uids is 0; such a process must not start a sandbox."""
    return 0 in (os.getuid(), os.geteuid())


def ordinary_person(env: Mapping[str, str]) -> Person:
    """The person behind ``sudo``, or the numeric uid 61234."""
    uid, gid = env.get("SUDO_UID", ""), env.get("SUDO_GID", "")
    if not (uid.isdigit() and gid.isdigit()) or int(uid) == 0 or int(gid) == 0:
        return Person(NUMERIC_UID, NUMERIC_UID)
    import pwd

    try:
        entry = pwd.getpwuid(int(uid))
    except KeyError:
        return Person(int(uid), int(gid))
    return Person(int(uid), int(gid), entry.pw_name, entry.pw_dir)


def bench_home(env: Mapping[str, str]) -> Path:
    """The absolute folder of models, data sets and the model environment."""
    named = env.get(HOME_VARIABLE)
    if named:
        return Path(named).absolute()
    return Path(env.get("HOME") or "/root").absolute() / ".cache" / "vibetraining-bench"


def enter(
    keep: Sequence[Path] = (),
    write: Sequence[Path] = (),
    argv: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> NoReturn:
    """Becomes ``argv`` as an ordinary user; never returns.

    ``keep`` stays readable at its own path beside interpreter, environments, checkout and current folder; ``write``
    folders are made where missing and handed to the ordinary uid. Call it before any thread or child exists.
    """
    given = dict(os.environ if env is None else env)
    if not argv:
        raise SandboxError("no command to run", where="privilege", do="Name one after --")
    if not is_root():
        os.execvpe(argv[0], list(argv), given)  # noqa: S606
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    person = ordinary_person(given)
    folders = [_own_folder(path, person) for path in write]
    group = limits.prepare_delegated(person.uid, person.gid)
    if group:
        given[CGROUP_VARIABLE] = group
    os._exit(_supervise(person, [Path(path).absolute() for path in keep], folders, argv, given, group))


def _supervise(
    person: Person, keep: list[Path], write: list[Path], argv: Sequence[str], env: dict[str, str], group: str
) -> int:
    """Forks the child that drops; forwards signals to it; returns its exit code as a shell would.

    As a subreaper it inherits whatever the child leaves behind, and ends it.
    """
    _libc_call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    watched = {*_FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            _become(person, keep, write, argv, env, group, parent)
        except (OSError, SandboxError) as error:
            print(f"could not leave root: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(126)
    try:
        return _wait(child, watched)
    finally:
        _end_orphans()
        limits.remove_delegated(group)


def _wait(child: int, watched: set[signal.Signals]) -> int:
    """Waits for ``child``; a signal from the terminal reached the whole process group already and is not repeated."""
    while True:
        info = signal.sigwaitinfo(watched)
        if info.si_signo != signal.SIGCHLD:
            if info.si_code <= 0:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, info.si_signo)
            continue
        pid = -1
        while pid != 0:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code


def _end_orphans() -> None:
    """Kills and reaps every process that came to us, until there is none."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    with contextlib.suppress(ChildProcessError, OSError):
        while True:
            for pid in children.read_text().split():
                os.kill(int(pid), signal.SIGKILL)
            os.waitpid(-1, 0)


def _become(
    person: Person,
    keep: list[Path],
    write: list[Path],
    argv: Sequence[str],
    env: dict[str, str],
    group: str,
    parent: int,
) -> NoReturn:
    cwd = Path.cwd()
    home = bench_home(env)
    env[HOME_VARIABLE] = str(home)
    wanted = [*_needed(), Path(os.path.realpath(_which(argv[0], env))).parent, home, cwd, *keep]
    for path in (Path(sys.base_prefix), Path(sys.prefix), home, *keep):
        if path.is_dir() and not _enters(path.stat(), person):
            do = f"Run `chmod o+rx {path}`"
            raise SandboxError(f"the ordinary uid {person.uid} cannot enter it", where=str(path), do=do)
    _libc_call("unshare", _CLONE_NEWNS)
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE)
    covered = _cover(person, kept_places(wanted, write), Path(env.get("HOME") or "/root"))
    os.environ.clear()
    os.environ.update(_clean_env(env, person, covered))
    try:
        os.chdir(cwd)
    except OSError:
        os.chdir("/")
    limits.join_delegated(group, os.getpid())
    _drop(person, parent)
    os.execvpe(argv[0], list(argv), os.environ)  # noqa: S606


def _which(program: str, env: Mapping[str, str]) -> str:
    import shutil

    return shutil.which(program, path=env.get("PATH", os.defpath)) or program


def _needed() -> list[Path]:
    """Interpreter, virtual environment, and every folder this program imports from."""
    exe = Path(sys.executable)
    found = [Path(sys.base_prefix), Path(sys.prefix), Path(os.path.realpath(exe)).parent.parent]
    found += [Path(entry) for entry in sys.path if entry and Path(entry).is_dir()]
    found.append(Path(__file__).absolute().parent.parent)
    return [path.absolute() for path in found]


def _drop(person: Person, parent: int) -> None:
    """Gives up root for good. PDEATHSIG is set last: a change of uid clears it."""
    os.setgroups([])
    os.setresgid(person.gid, person.gid, person.gid)
    os.setresuid(person.uid, person.uid, person.uid)
    os.umask(0o022)
    with contextlib.suppress(PermissionError):
        os.setuid(0)
        raise SandboxError("the drop to an ordinary user did not hold", where="privilege")
    _libc_call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    _libc_call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.getppid() != parent:
        raise SandboxError("the supervisor died at the start", where="privilege")


def _clean_env(env: Mapping[str, str], person: Person, home: str) -> dict[str, str]:
    """The environment of the ordinary user: nothing that steers a loader, nothing of root's session."""
    dropped = {*_DANGEROUS, *_PERSONAL, "XDG_RUNTIME_DIR"}
    kept = {k: v for k, v in env.items() if k not in dropped and not k.startswith("SUDO_")}
    kept["HOME"] = home or person.home or "/nonexistent"
    kept["USER"] = kept["LOGNAME"] = person.name or f"uid{person.uid}"
    runtime = f"{home}/run" if home else f"/run/user/{person.uid}"
    if crosses(Path(runtime), person) and Path(runtime).stat().st_uid == person.uid:
        kept["XDG_RUNTIME_DIR"] = runtime
    for name in ("TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        if name in kept and not crosses(Path(kept[name]), person):
            del kept[name]
    return kept


def crosses(path: Path, person: Person) -> bool:
    """Whether ``person`` may enter the folder ``path`` and everything above it."""
    return path.is_dir() and first_closed(path, person) is None


def first_closed(path: Path, person: Person) -> Path | None:
    """The highest folder on the way to ``path``, itself included, that ``person`` cannot enter."""
    for folder in (*reversed(path.parents), path):
        try:
            entry = folder.stat()
        except OSError:
            return None
        if stat.S_ISDIR(entry.st_mode) and not _enters(entry, person):
            return folder
    return None


def _enters(entry: os.stat_result, person: Person) -> bool:
    if entry.st_uid == person.uid:
        return bool(entry.st_mode & stat.S_IXUSR)
    if entry.st_gid == person.gid:
        return bool(entry.st_mode & stat.S_IXGRP)
    return bool(entry.st_mode & stat.S_IXOTH)


def _cover(person: Person, places: list[Kept], home: Path) -> str:
    """Hides each closed folder under a 0755 tmpfs and binds the kept places back; returns the new HOME, if any."""
    closed = {cover for place in places if (cover := first_closed(place.target.parent, person))}
    hidden_home = first_closed(home, person)
    if hidden_home:
        closed.add(hidden_home)
    tops = [path for path in sorted(closed) if not any(other in path.parents for other in closed)]
    returning = [place for place in places if any(top in place.target.parents for top in tops)]
    handles = [(place, os.open(place.source, os.O_PATH | os.O_CLOEXEC)) for place in returning]
    for top in tops:
        _mount("tmpfs", str(top), "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755,size=4m")
    for place, handle in handles:
        _bind_back(place, handle, person)
    if not hidden_home:
        return ""
    fresh = home / ".ordinary"
    fresh.mkdir(parents=True, exist_ok=True)
    options = f"mode=0700,uid={person.uid},gid={person.gid},size=256m"
    _mount("tmpfs", str(fresh), "tmpfs", _MS_NOSUID | _MS_NODEV, options)
    (fresh / "run").mkdir(mode=0o700)
    os.chown(fresh / "run", person.uid, person.gid)
    return str(fresh)


def _bind_back(place: Kept, handle: int, person: Person) -> None:
    """Puts one kept folder (or file) back at its own path; the handle survives the cover above it."""
    info = os.fstat(handle)
    if stat.S_ISDIR(info.st_mode):
        place.target.mkdir(parents=True, exist_ok=True)
        if not _enters(info, person):
            os.close(handle)
            return
    else:
        place.target.parent.mkdir(parents=True, exist_ok=True)
        if not place.target.exists():  # a file inside a kept folder is there already, and may be a running program
            place.target.touch()
    _mount(f"/proc/self/fd/{handle}", str(place.target), "", _MS_BIND | _MS_REC)
    flags = _MS_BIND | _MS_REMOUNT | _MS_NOSUID | (0 if place.writable else _MS_RDONLY)
    with contextlib.suppress(PermissionError):
        _mount("none", str(place.target), "", flags)
    os.close(handle)


def _own_folder(path: Path, person: Person) -> Path:
    """Makes ``path`` where missing and hands it, with what root left in it, to ``person``. Returns the real path."""
    path.absolute().mkdir(parents=True, exist_ok=True)
    real = Path(os.path.realpath(path))
    trees = any(str(real) == tree or Path(tree) in real.parents for tree in _NOT_OURS_TREES)
    if str(real) in _NOT_OURS or trees:
        raise SandboxError("a system folder is not handed to another user", where=str(real), do="Name a run folder")
    for _, _, names, folder in os.fwalk(real, follow_symlinks=False):
        _hand_over("", folder, person)
        for name in names:
            _hand_over(name, folder, person)
    return real


def _hand_over(name: str, folder: int, person: Person) -> None:
    """Changes the owner of one entry that root owns; never through a link, never of a file with a second name."""
    info = os.stat(name, dir_fd=folder, follow_symlinks=False) if name else os.fstat(folder)
    if info.st_uid != 0 or (stat.S_ISREG(info.st_mode) and info.st_nlink > 1):
        return
    if name:
        os.chown(name, person.uid, person.gid, dir_fd=folder, follow_symlinks=False)
    else:
        os.fchown(folder, person.uid, person.gid)


def _libc_call(name: str, *arguments: int) -> None:
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    if function(*[ctypes.c_ulong(value) for value in arguments]) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    data = options.encode() if options else None
    done = libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data)
    if done != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mount: {os.strerror(code)}", target)


def _arguments(argv: Iterable[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="isolation.privilege", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--write", action="append", default=[], type=Path, metavar="DIR", help="handed to the user")
    parser.add_argument("--keep", action="append", default=[], type=Path, metavar="PATH", help="stays readable")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser.parse_args(list(argv))


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """The command line; exits 2 with one line where the plan is refused."""
    options = _arguments(sys.argv[1:] if argv is None else argv)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    try:
        enter(options.keep, options.write, command)
    except (SandboxError, OSError) as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
