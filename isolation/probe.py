"""Doctor's checks of the walls: they are tried from inside a real sandbox, not guessed from versions.

A finding is ``ok``, ``weak`` (recorded, shown, runs) or ``missing`` (a run is refused without ``--allow-weak NAME``).
"""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import PIPE
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from isolation import bwrap, limits, seccomp
from isolation.clean import clean_line
from isolation.problem import SandboxError
from isolation.sandbox import start
from isolation.spec import Limits, Mount, SandboxSpec

State = Literal["ok", "weak", "missing"]

_MIB = 1 << 20
_INSIDE = Path(__file__).absolute().parent / "inside" / "probe.py"
_SYMPTOMS = ("uid map", "RTM_NEWADDR", "Operation not permitted", "Permission denied", "No permissions")

APPARMOR_RECIPE = (
    "Ubuntu 24.04 and newer keep user namespaces from programs without an AppArmor profile: "
    "`sudo apt install apparmor-profiles`, "
    "`sudo cp /usr/share/apparmor/extra-profiles/bwrap-userns-restrict /etc/apparmor.d/`, "
    "`sudo apparmor_parser -r /etc/apparmor.d/bwrap-userns-restrict`; "
    "or `sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`"
)


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
    found.append(Finding("cve", "weak", note, "a planted link could redirect a mount", "Update bubblewrap"))
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
    return [*found, *await _inside(), _cgroup()]


def _user() -> Finding:
    if 0 in (os.getuid(), os.geteuid()):
        why = "a sandbox of uid 0 can write kernel settings and leave setuid files"
        return Finding(
            "user", "missing", "this process is root", why, "Start through `python -P -m isolation.privilege`"
        )
    return Finding("user", "ok", f"uid {os.getuid()}")


def _cgroup() -> Finding:
    backend = limits.backend()
    if backend.hard:
        return Finding("cgroup", "ok", f"memory is bounded per sandbox ({backend.kind})")
    why = "memory and processes are bounded one by one, not for a sandbox as a whole"
    do = "Start the program with `systemd-run --user --scope -p Delegate=yes`, or as root"
    return Finding("cgroup", "weak", "no cgroup that we may divide", why, do)


async def _inside() -> list[Finding]:
    """Starts the sandbox and reads what it could do."""
    python = bwrap.base_python()
    spec = SandboxSpec(
        "harness",
        (str(python), "-I", "-S", "-B", "/opt/probe.py"),
        mounts=(*bwrap.python_mounts(python), Mount(_INSIDE, "/opt/probe.py")),
        limits=Limits(tmp_bytes=_MIB, shm_bytes=_MIB, pids=32),
    )
    try:
        box = await start(spec, stdout=PIPE, stderr=PIPE)
    except SandboxError as error:
        return [_no_namespaces(str(error))]
    assert box.stdout is not None and box.stderr is not None
    try:
        async with asyncio.timeout(60):
            out, err = await asyncio.gather(box.stdout.read(_MIB), box.stderr.read(1 << 16))
            code = await box.wait()
    except TimeoutError:
        out, err, code = b"", b"it did not answer within 60 s", 1
    finally:
        await box.kill()
    try:
        answer = json.loads(out)
    except ValueError:
        answer = None
    if code != 0 or not isinstance(answer, dict):
        return [_no_namespaces(clean_line(err.decode(errors="replace"), 300) or box.death(code))]
    return judge(answer)


def _no_namespaces(what: str) -> Finding:
    do = APPARMOR_RECIPE if any(symptom in what for symptom in _SYMPTOMS) else "See the message of bubblewrap"
    return Finding("namespaces", "missing", f"no sandbox could be started: {what}", "they are the walls", do)


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
    return Finding(name, "missing", f"not so: {what}", why, "Update kernel and bubblewrap; see docs on isolation")
