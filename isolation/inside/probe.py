"""Inside a sandbox: tries what must not work, and says on stdout, in one JSON object, what did."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import platform
import socket
from collections.abc import Callable

_KEYCTL = {"x86_64": 250, "aarch64": 219}
_NEW_USER = 0x10000000


def status(key: str) -> str:
    """One field of /proc/self/status."""
    with open("/proc/self/status") as lines:  # noqa: PTH123
        for line in lines:
            if line.startswith(f"{key}:"):
                return line.split(":", 1)[1].strip()
    return ""


def refused(call: Callable[[], object]) -> str:
    """The name of the error that ``call`` ends with, "" when it worked."""
    try:
        call()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "OSError")
    return ""


def libc_call(name: str, *arguments: int) -> None:
    """A libc function that returns a negative number for a failure; raises OSError then."""
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    if function(*[ctypes.c_long(value) for value in arguments]) < 0:
        raise OSError(ctypes.get_errno(), name)


def bytes_written(path: str, most: int) -> int:
    """How much a file may hold before the file system refuses."""
    written = 0
    block = b"\0" * (1 << 18)
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as stream:  # noqa: PTH123
        while written < most:
            written += stream.write(block) or 0
    with contextlib.suppress(OSError):
        os.unlink(path)  # noqa: PTH108
    return written


def read(path: str) -> str:
    """A small file as text, "" when it cannot be read."""
    with contextlib.suppress(OSError), open(path, errors="replace") as stream:  # noqa: PTH123
        return stream.read(1 << 16)
    return ""


def create(path: str) -> None:
    """Makes a file that must not be possible."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))


def findings() -> dict[str, object]:
    """Everything that was tried."""
    interfaces = sorted(line.split(":")[0].strip() for line in read("/proc/net/dev").splitlines()[2:])
    return {
        "uid": os.getuid(),
        "capabilities": [status(name) for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb")],
        "no_new_privs": status("NoNewPrivs"),
        "seccomp": status("Seccomp"),
        "pids": len([name for name in os.listdir("/proc") if name.isdigit()]),  # noqa: PTH208
        "interfaces": interfaces,
        "routes": len(read("/proc/net/route").splitlines()[1:]),
        "connect": refused(lambda: socket.create_connection(("192.0.2.1", 80), timeout=2)),
        "vsock": refused(lambda: socket.socket(40, socket.SOCK_STREAM)),
        "keyctl": refused(lambda: libc_call("syscall", _KEYCTL.get(platform.machine(), 250), 0, -3, 0)),
        "userns": refused(lambda: libc_call("unshare", _NEW_USER)),
        "environ": len(read("/proc/1/environ")),
        "root": refused(lambda: create("/planted")),
        "dev": refused(lambda: create("/dev/planted")),
        "sysctl": refused(lambda: os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))),
        "tmp": bytes_written("/tmp/fill", 8 << 20),  # noqa: S108
        "shm": bytes_written("/dev/shm/fill", 8 << 20),  # noqa: S108
    }


if __name__ == "__main__":
    print(json.dumps(findings()))
