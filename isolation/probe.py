"""Doctor's checks of the walls: they are tried from inside a real sandbox, not guessed from versions.

A finding is ``ok``, ``weak`` (recorded, shown, runs) or ``missing`` (a run is refused without ``--allow-weak NAME``).
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from isolation import bwrap, limits, seccomp
from isolation.clean import clean_line
from isolation.problem import SandboxError
from isolation.sandbox import start
from isolation.spec import Limits, Mount, Profile, SandboxSpec

State = Literal["ok", "weak", "missing"]

_MIB = 1 << 20
_INSIDE = Path(__file__).absolute().parent / "inside" / "probe.py"
_OF_APPARMOR = ("uid map", "RTM_NEWADDR")
_USED_UP = ("ENOSPC", "No space left")
_SYMPTOMS = ("Operation not permitted", "Permission denied", "No permissions", "namespace")
PROFILES: tuple[Profile, ...] = ("research", "intake", "gate", "training", "vault", "engine", "harness")
_SETTINGS = Path("/proc/sys")

APPARMOR_RECIPE = (
    "Ubuntu 24.04 and newer keep user namespaces from programs without an AppArmor profile: "
    "`sudo apt install apparmor-profiles`, "
    "`sudo cp /usr/share/apparmor/extra-profiles/bwrap-userns-restrict /etc/apparmor.d/`, "
    "`sudo apparmor_parser -r /etc/apparmor.d/bwrap-userns-restrict`; "
    "or `sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`"
)


_UPDATE = "Update bubblewrap once your system offers 0.12 or newer; until then there is nothing to do"
_NO_GROUP = "this user has no control group (cgroup) to divide among sandboxes"


@dataclass(frozen=True, slots=True)
class Finding:
    """One wall: its ``name``, its ``state``, ``what`` was seen, ``why`` it matters and what to ``do``."""

    name: str
    state: State
    what: str
    why: str = ""
    do: str = ""


def missing(findings: Iterable[Finding]) -> list[Finding]:
    """The walls without which no run starts."""
    return [finding for finding in findings if finding.state == "missing"]


def weak(findings: Iterable[Finding]) -> list[Finding]:
    """The walls that stand, but with a known flaw."""
    return [finding for finding in findings if finding.state == "weak"]


async def probe() -> list[Finding]:
    """Tries every wall of a sandbox on this machine. Never raises for a missing wall; the finding says it."""
    found = [_user()]
    try:
        program = bwrap.find_bwrap()
    except SandboxError as error:
        return [*found, Finding("bwrap", "missing", error.what, "every sandbox is made by it", error.do), _cgroup()]
    note = bwrap.cve_note(program)
    found.append(Finding("bwrap", "ok", f"{program} {'.'.join(map(str, bwrap.version(program)))}"))
    found.append(Finding("cve", "weak", note, "a planted link could redirect a mount elsewhere", _UPDATE))
    if not note:
        found[-1] = Finding("cve", "ok", "no known fault in this bubblewrap")
    try:
        seccomp.program()
    except SandboxError as error:
        return [
            *found,
            Finding("seccomp", "missing", error.what, "keyrings and sockets cross walls", error.do),
            _cgroup(),
        ]
    if found[0].state == "missing":
        return [*found, _cgroup()]
    return [*found, *await _inside("harness"), _cgroup()]


async def probe_profiles() -> list[Finding]:
    """The same walls in every profile, each tried in a sandbox of its own; one finding for all that stand."""
    fallen: list[Finding] = []
    for profile in PROFILES:
        for finding in missing(await _inside(profile)):
            what = f"in the profile {profile}: {finding.what}"
            fallen.append(Finding(f"{profile}-{finding.name}", "missing", what, finding.why, finding.do))
    return fallen or [Finding("profiles", "ok", f"every wall stands in {', '.join(PROFILES)}")]


def _user() -> Finding:
    if 0 in (os.getuid(), os.geteuid()):
        why = "a sandbox of uid 0 can write kernel settings and leave setuid files"
        return Finding(
            "user", "missing", "this process is root", why, "Start through `python -P -m isolation.privilege`"
        )
    return Finding("user", "ok", f"uid {os.getuid()}, not root")


def _cgroup() -> Finding:
    backend = limits.backend()
    if backend.hard:
        return Finding("cgroup", "ok", f"memory is bounded per sandbox ({backend.kind})")
    why = "memory is bounded for each process, not for a sandbox as a whole"
    session = (
        "Give this user a systemd session (`sudo loginctl enable-linger NAME`, log in anew), or start runs as root"
    )
    do = session if Path("/run/systemd/system").is_dir() else "Start runs as root: they make one, then leave root"
    return Finding("cgroup", "weak", _NO_GROUP, why, do)


async def _inside(profile: Profile) -> list[Finding]:
    """Starts a sandbox of ``profile`` and reads what it could do."""
    python = bwrap.base_python()
    spec = SandboxSpec(
        profile,
        (str(python), "-I", "-S", "-B", "/opt/probe.py"),
        mounts=(*bwrap.python_mounts(python), Mount(_INSIDE, "/opt/probe.py")),
        limits=Limits(tmp_bytes=_MIB, shm_bytes=_MIB, pids=32, idle=profile == "research"),
    )
    with tempfile.TemporaryFile() as words:
        try:
            box = await start(spec, stdout=PIPE, stderr=words)
        except SandboxError as error:
            return [_no_namespaces(_said(words) or error.what)]
        assert box.stdout is not None
        try:
            async with asyncio.timeout(60):
                out = await box.stdout.read(_MIB)
                code = await box.wait()
            err = _said(words)
        except TimeoutError:
            out, err, code = b"", "it did not answer within 60 s", 1
        finally:
            await box.kill()
    try:
        answer = json.loads(out)
    except ValueError:
        answer = None
    if code != 0 or not isinstance(answer, dict):
        return [_no_namespaces(err or box.death(code))]
    return judge(answer)


def _said(words: IO[bytes]) -> str:
    """What bubblewrap, or the probe, wrote to stderr, on one line."""
    return clean_line(os.pread(words.fileno(), 1 << 16, 0).decode(errors="replace"), 300)


def _no_namespaces(what: str) -> Finding:
    if any(symptom in what for symptom in _OF_APPARMOR):
        do = APPARMOR_RECIPE
    elif any(symptom in what for symptom in _USED_UP):
        do = (
            "What is around this program (a container, another sandbox) allows it no user namespaces: "
            "run outside of it, or raise the number there with `sudo sysctl user.max_user_namespaces=15000`"
        )
    else:
        do = recipe() if any(symptom in what for symptom in _SYMPTOMS) else "Mend what that message says"
    why = "every sandbox is made of user namespaces"
    return Finding("namespaces", "missing", f"no sandbox could be started: {what}", why, do)


def recipe() -> str:
    """The command that gives this machine user namespaces, by what its settings say."""
    if _setting("user/max_user_namespaces") == "0":
        return "`sudo sysctl user.max_user_namespaces=15000` (and a line of that in /etc/sysctl.d to keep it)"
    if _setting("kernel/unprivileged_userns_clone") == "0":
        return "`sudo sysctl kernel.unprivileged_userns_clone=1` (and a line of that in /etc/sysctl.d to keep it)"
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return (
            "Inside a container: start it with `--security-opt seccomp=unconfined --security-opt apparmor=unconfined`"
        )
    if _setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return APPARMOR_RECIPE
    return "Run on the host itself: something around this program forbids user namespaces"


def _setting(name: str) -> str:
    try:
        return (_SETTINGS / name).read_text().strip()
    except OSError:
        return ""


def judge(seen: dict[str, Any]) -> list[Finding]:
    """Turns what was seen inside into findings; a field that is not there counts against the wall."""
    zero = [f"{0:016x}"] * 5
    stopped = ("EPERM", "EACCES", "ENOSYS", "EUSERS", "ENOSPC", "EROFS", "EINVAL", "EAFNOSUPPORT")
    no_way_out = seen.get("interfaces") == ["lo"] and seen.get("routes") == 0 and seen.get("connect") == "ENETUNREACH"
    sizes = (seen.get("tmp"), seen.get("shm"))
    checks = (
        ("namespaces", seen.get("pids") in (2, 3), "only its own processes are visible", "others could be read"),
        ("uid", seen.get("uid") == 1000, "it runs as an ordinary user", "root inside reaches more of the kernel"),
        ("capabilities", seen.get("capabilities") == zero, "no capabilities", "they undo other walls"),
        ("privileges", seen.get("no_new_privs") == "1", "no new privileges", "setuid files would work"),
        ("seccomp", seen.get("seccomp") == "2" and seen.get("keyctl") == "EPERM", "system calls are filtered",
         "keyrings carry data from one sandbox to the next"),
        ("vsock", seen.get("vsock") == "EPERM", "no sockets to a hypervisor", "the network block does not cover them"),
        ("network", no_way_out, "no network", "answers could be looked up or sent home"),
        ("userns", seen.get("userns") in stopped, "no namespaces inside", "they give capabilities back"),
        ("environ", seen.get("environ") == 0, "nothing of our environment inside", "it holds keys"),
        ("readonly", seen.get("root") == "EROFS" and seen.get("dev") == "EROFS", "the root is read-only",
         "files could be planted where mounts go"),
        ("sysctl", seen.get("sysctl") in stopped, "kernel settings cannot be written", "they act on the host"),
        ("sizes", all(isinstance(size, int) and 0 < size <= _MIB for size in sizes), "temporary files are bounded",
         "memory could be filled through them"),
    )  # fmt: skip
    return [_verdict(name, bool(stands), what, why) for name, stands, what, why in checks]


def _verdict(name: str, stands: bool, what: str, why: str) -> Finding:
    if stands:
        return Finding(name, "ok", what)
    return Finding(name, "missing", f"not so: {what}", why, "Update the kernel and bubblewrap")
