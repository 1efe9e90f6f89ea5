"""The system calls that no sandbox may make. A deny list; anything that cannot be compiled is an error, never a gap."""

from __future__ import annotations

import errno
import functools
import os
from typing import Any

from isolation.problem import SandboxError

_DENIED = """
    keyctl add_key request_key
    ptrace process_vm_readv process_vm_writev process_madvise kcmp
    bpf perf_event_open userfaultfd fanotify_init memfd_secret
    mount umount2 pivot_root move_mount open_tree fsopen fsconfig fsmount fspick mount_setattr chroot setns unshare
    open_by_handle_at name_to_handle_at lookup_dcookie
    kexec_load kexec_file_load init_module finit_module delete_module swapon swapoff reboot
    settimeofday clock_settime adjtimex clock_adjtime acct quotactl quotactl_fd syslog vhangup nfsservctl iopl ioperm
"""
_DENIED_NUMBERS = (467,)
"""open_tree_attr: newer than many a libseccomp; such numbers are the same on every architecture."""

_MISSING = "clone3 io_uring_setup io_uring_enter io_uring_register"
"""Answered with ENOSYS: callers fall back (glibc to clone, libuv and others to plain reads)."""

_FAMILIES = {
    "AX25": 3, "IPX": 4, "APPLETALK": 5, "NETROM": 6, "X25": 9, "ROSE": 11, "KEY": 15, "PACKET": 17, "RDS": 21,
    "LLC": 26, "IB": 27, "CAN": 29, "TIPC": 30, "BLUETOOTH": 31, "ALG": 38, "NFC": 39, "VSOCK": 40, "KCM": 41,
    "QIPCRTR": 42, "SMC": 43, "XDP": 44, "MCTP": 45,
}  # fmt: skip
_NEW_NAMESPACES = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
_TERMINAL_INJECTION = (0x5412, 0x541C)
_INT = 0xFFFFFFFF
"""The kernel reads these arguments as 32-bit ints; a plain comparison would be passed by setting a higher bit."""


@functools.cache
def program(*, accelerator: bool = False) -> bytes:
    """The compiled filter (classic BPF). ``accelerator`` keeps pidfd_getfd, which GPU runtimes use between processes.

    Raises SandboxError when libseccomp is missing or any rule cannot be added.
    """
    try:
        import pyseccomp  # type: ignore[import-untyped]
    except Exception as error:
        raise SandboxError(f"no system call filter ({error})", where="seccomp", do="Install libseccomp2") from error
    try:
        return _compile(pyseccomp, accelerator)
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        do = "Update libseccomp2"
        raise SandboxError(f"the system call filter does not compile: {error}", where="seccomp", do=do) from error


def _compile(lib: Any, accelerator: bool) -> bytes:
    rules = lib.SyscallFilter(defaction=lib.ALLOW)
    rules.set_attr(lib.Attr.ACT_BADARCH, lib.KILL_PROCESS)
    refused, missing = lib.ERRNO(errno.EPERM), lib.ERRNO(errno.ENOSYS)
    for call in (*_DENIED.split(), *_DENIED_NUMBERS, *(() if accelerator else ("pidfd_getfd",))):
        rules.add_rule(refused, call)
    for call in _MISSING.split():
        rules.add_rule(missing, call)
    for flag in _NEW_NAMESPACES:
        rules.add_rule(refused, "clone", lib.Arg(0, lib.MASKED_EQ, flag, flag))
    for family in _FAMILIES.values():
        rules.add_rule(refused, "socket", lib.Arg(0, lib.MASKED_EQ, _INT, family))
        rules.add_rule(refused, "socketpair", lib.Arg(0, lib.MASKED_EQ, _INT, family))
    for request in _TERMINAL_INJECTION:
        rules.add_rule(refused, "ioctl", lib.Arg(1, lib.MASKED_EQ, _INT, request))
    return _exported(rules)


def _exported(rules: Any) -> bytes:
    handle = os.memfd_create("filter", os.MFD_CLOEXEC)
    with os.fdopen(handle, "w+b") as stream:
        rules.export_bpf(stream)
        return os.pread(handle, os.fstat(handle).st_size, 0)
