"""What hostile code tries inside a real sandbox, and what it gets."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isolation import bwrap
from isolation.problem import SandboxError
from isolation.spec import Limits, Mount

SYSCALL = """
import ctypes, errno, os, platform, socket
libc = ctypes.CDLL(None, use_errno=True)
N = {"x86_64": dict(keyctl=250, add_key=248, request_key=249, ptrace=101, clone=56, unshare=272, io_uring_setup=425,
                    process_vm_readv=310, pidfd_getfd=438, mount=165, setns=308, clone3=435, open_tree_attr=467),
     "aarch64": dict(keyctl=219, add_key=217, request_key=218, ptrace=117, clone=220, unshare=97, io_uring_setup=425,
                     process_vm_readv=270, pidfd_getfd=438, mount=40, setns=268, clone3=435, open_tree_attr=467),
     }[platform.machine()]
def call(name, *args):
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    return errno.errorcode[ctypes.get_errno()] if libc.syscall(ctypes.c_long(N[name]), *words) < 0 else "WORKED"
"""


async def test_nothing_of_our_environment_or_paths_is_inside(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VTB_CANARY_KEY", "sk-canary-4711")
    hidden = tmp_path / "host-place-4711"
    hidden.mkdir()
    code = """
import os, re
seen = b""
for pid in [n for n in os.listdir("/proc") if n.isdigit()]:
    for name in ("environ", "cmdline", "maps", "status", "comm"):
        try: seen += open(f"/proc/{pid}/{name}", "rb").read()
        except OSError: pass
    try: seen += " ".join(os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")).encode()
    except OSError: pass
found = [mark + b"-4711" in seen for mark in (b"canary", b"place")]
print(len(open("/proc/1/environ","rb").read()), *found, dict(os.environ))
"""
    result = await run(code, mounts=(Mount(hidden, "/in"),), env={"GIVEN": "yes"})
    assert result.code == 0, result.err
    assert result.out.startswith("0 False False ")
    assert "canary" not in result.out and "'GIVEN': 'yes'" in result.out


async def test_only_its_own_processes_and_descriptors(run: Callable[..., Any]) -> None:
    secret = os.memfd_create("secret")
    os.set_inheritable(secret, True)
    code = """
import os
mine = os.listdir("/proc/self/fd")
print(sorted(int(n) for n in os.listdir("/proc") if n.isdigit()), len(mine), os.getppid())
"""
    result = await run(code)
    os.close(secret)
    assert result.out.split("]")[0] == "[1, 2"
    assert result.out.split("]")[1].split() == ["4", "1"], "0, 1, 2 and the one that lists"


async def test_passed_descriptors_arrive_under_their_numbers(run: Callable[..., Any]) -> None:
    read, write = os.pipe()
    os.write(write, b"hello")
    result = await run(f"import os; print(os.read({read}, 9))", pass_fds=(read,))
    os.close(read)
    os.close(write)
    assert result.out == "b'hello'\n"


async def test_the_root_is_a_short_allow_list_and_read_only(run: Callable[..., Any]) -> None:
    code = """
import os
print(sorted(os.listdir("/")))
print(sorted(os.listdir("/etc")))
for place in ("/x", "/etc/x", "/dev/x", "/usr/x", "/proc/sys/kernel/core_pattern", "/in/x"):
    try: open(place, "w").write("x"); print(place, "WRITTEN")
    except OSError as e: pass
print(open("/etc/passwd").read().count(":x:"), os.getuid(), os.stat("/etc").st_mode & 0o777 == 0o755)
"""
    result = await run(code, mounts=(Mount(Path(__file__).parent, "/in"),))
    roots, etc, rest = result.out.split("\n", 2)
    libraries = {"lib", "lib32", "lib64", "libx32"}
    above_python = {Path(mount.target).parts[1] for mount in bwrap.python_mounts(bwrap.base_python())}
    assert set(eval(roots)) <= {"bin", "dev", "etc", "in", "proc", "sbin", "tmp", "usr"} | libraries | above_python
    assert set(eval(etc)) <= {"group", "hosts", "ld.so.cache", "nsswitch.conf", "passwd", "resolv.conf"}
    assert rest == "2 1000 True\n", result.out


async def test_our_packages_and_site_packages_are_not_there(run: Callable[..., Any]) -> None:
    code = """
import importlib.util
print([name for name in ("tasks", "grader", "runner", "isolation", "pydantic") if importlib.util.find_spec(name)])
"""
    assert (await run(code)).out == "[]\n"


async def test_kernel_calls_that_cross_walls_are_refused(run: Callable[..., Any]) -> None:
    code = (
        SYSCALL
        + """
print(call("keyctl", 0, -3, 0), call("add_key", b"user", b"k", b"v", 1, -3), call("request_key", b"user", b"k", 0, -3))
print(call("ptrace", 16, 1, 0, 0), call("process_vm_readv", 1, 0, 0, 0, 0, 0), call("pidfd_getfd", 3, 0, 0))
print(call("mount", b"none", b"/tmp", b"tmpfs", 0, 0), call("setns", 0, 0), call("unshare", 0x10000000))
print(call("clone", 0x10000000 | 17, 0, 0, 0, 0), call("clone", 0x40000000 | 17, 0, 0, 0, 0))
print(call("open_tree_attr", 0, 0))
print(call("clone3", 0, 0), call("io_uring_setup", 1, 0))
"""
    )
    lines = (await run(code)).out.splitlines()
    assert [set(line.split()) for line in lines] == [{"EPERM"}] * 5 + [{"ENOSYS"}]


async def test_a_keyring_carries_nothing_to_the_next_sandbox(run: Callable[..., Any]) -> None:
    write = SYSCALL + 'print(call("add_key", b"user", b"vtb-mark", b"secret", 6, -3))'
    read = SYSCALL + 'print(call("request_key", b"user", b"vtb-mark", 0, -3), "vtb-mark" in open("/proc/keys").read())'
    assert (await run(write)).out == "EPERM\n"
    assert (await run(read)).out == "EPERM False\n"


async def test_odd_socket_families_are_refused_also_with_high_bits(run: Callable[..., Any]) -> None:
    code = (
        SYSCALL
        + """
SOCKET = {"x86_64": 41, "aarch64": 198}[platform.machine()]
def family(number):
    fd = libc.syscall(ctypes.c_long(SOCKET), ctypes.c_long(number), ctypes.c_long(1), ctypes.c_long(0))
    return errno.errorcode[ctypes.get_errno()] if fd < 0 else "WORKED"
bad = [40, 38, 17, 15, 21, 29, 30, 31, 39, 41, 42, 43, 44]
print({family(number) for number in bad}, {family(number | 1 << 32) for number in bad})
print({family(number) for number in (1, 2)})
a, b = socket.socketpair(); a.send(b"x"); print(b.recv(1), os.memfd_create("x") > 0)
"""
    )
    assert (await run(code)).out == "{'EPERM'} {'EPERM'}\n{'WORKED'}\nb'x' True\n"


async def test_terminal_injection_is_refused(run: Callable[..., Any]) -> None:
    code = """
import fcntl, os, pty, errno
main, side = pty.openpty()
for request in (0x5412, 0x541C, 0x5412 | 1 << 32, 0x541C | 1 << 32):
    try: fcntl.ioctl(side, request & 0xffffffff, b"x"); print("INJECTED")
    except OSError as e: print(errno.errorcode[e.errno])
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
done = libc.syscall(ctypes.c_long({"x86_64": 16, "aarch64": 29}[os.uname().machine]), ctypes.c_long(side),
                    ctypes.c_long(0x5412 | 1 << 32), ctypes.c_char_p(b"x"))
print(done, errno.errorcode[ctypes.get_errno()])
"""
    assert (await run(code)).out == "EPERM\n" * 4 + "-1 EPERM\n"


async def test_no_network_and_no_abstract_socket_of_the_host(run: Callable[..., Any]) -> None:
    name = f"\0vtb-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket() as tcp:
        abstract.bind(name)
        abstract.listen()
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        code = f"""
import socket, errno
def go(family, address):
    s = socket.socket(family); s.settimeout(3)
    try: s.connect(address); return "CONNECTED"
    except OSError as e: return errno.errorcode.get(e.errno, str(e))
print(go(socket.AF_UNIX, {name!r}), go(socket.AF_INET, ("127.0.0.1", {tcp.getsockname()[1]})))
places = [(socket.AF_INET, "192.0.2.1"), (socket.AF_INET, "169.254.169.254"), (socket.AF_INET6, "2001:db8::1")]
print(*[go(family, (address, 80)) for family, address in places])
devices = [line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]]
print(devices, open("/proc/net/route").read().count("\\n"))
"""
        lines = (await run(code)).out.splitlines()
    assert lines[0] == "ECONNREFUSED ECONNREFUSED"
    assert set(lines[1].split()) <= {"ENETUNREACH", "EADDRNOTAVAIL", "EACCES"}
    assert lines[2] == "['lo'] 1"


async def test_a_socket_in_a_read_only_folder_is_reachable(run: Callable[..., Any]) -> None:
    with tempfile.TemporaryDirectory() as place, socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{place}/s")
        server.listen()
        code = 'import socket; s = socket.socket(socket.AF_UNIX); s.connect("/run/vibe/s"); print("connected")'
        result = await run(code, mounts=(Mount(Path(os.path.realpath(place)), "/run/vibe"),))
    assert result.out == "connected\n", result.err


async def test_setuid_files_have_no_effect_and_the_user_is_fixed(run: Callable[..., Any], tmp_path: Path) -> None:
    code = """
import os, shutil, subprocess
shutil.copy("/usr/bin/id", "/out/id"); os.chmod("/out/id", 0o6755)
print(subprocess.run(["/out/id", "-u"], capture_output=True, text=True).stdout.strip())
for change in (lambda: os.setuid(0), lambda: os.chown("/out/id", 0, 0), lambda: os.setgroups([0])):
    try: change(); print("CHANGED")
    except OSError: pass
print([line.split()[1] for line in open("/proc/self/status") if line.startswith(("NoNewPrivs", "CapEff", "CapBnd"))])
"""
    result = await run(code, mounts=(Mount(tmp_path, "/out", writable=True),))
    assert result.out == f"1000\n['{0:016x}', '{0:016x}', '1']\n"
    assert (tmp_path / "id").stat().st_uid == os.getuid() != 0


async def test_temporary_file_systems_are_bounded_and_fresh(run: Callable[..., Any]) -> None:
    code = """
import os
def fill(path):
    n = 0
    try:
        with open(path, "wb", buffering=0) as f:
            while n < 64 << 20: n += f.write(b"x" * 65536)
    except OSError: pass
    return n
print(os.listdir("/tmp"), os.listdir("/dev/shm"), fill("/tmp/a"), fill("/dev/shm/a"))
"""
    limits = Limits(tmp_bytes=2 << 20, shm_bytes=1 << 20)
    for _ in range(2):
        assert (await run(code, limits=limits)).out == f"[] [] {2 << 20} {1 << 20}\n"


async def test_a_link_to_oldroot_planted_in_a_writable_folder_moves_nothing(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    canary = Path(tempfile.mkdtemp(prefix="vtb-canary-"))
    plant = f'import os; os.symlink("/oldroot{canary}", "/out/x"); os.symlink("/oldroot{canary}", "/out/sub")'
    out, other = tmp_path / "out", tmp_path / "in"
    out.mkdir()
    other.mkdir()
    assert (await run(plant, mounts=(Mount(out, "/out", writable=True),))).code == 0
    try:
        for target in ("/out/x", "/out/x/y", "/out/sub/z"):
            with pytest.raises(SandboxError, match="below the writable"):
                await run("pass", mounts=(Mount(out, "/out", writable=True), Mount(other, target)))
        again = await run('import os; print(os.path.exists("/out/x"))', mounts=(Mount(out, "/out", writable=True),))
        assert again.out == "False\n" and list(canary.iterdir()) == []
    finally:
        canary.rmdir()


async def test_core_dumps_are_off_and_the_command_sees_its_limits(run: Callable[..., Any]) -> None:
    code = """
import resource as r
print(*[r.getrlimit(which) for which in (r.RLIMIT_CORE, r.RLIMIT_NPROC, r.RLIMIT_NOFILE, r.RLIMIT_FSIZE)])
print(*[r.getrlimit(which) for which in (r.RLIMIT_RTPRIO, r.RLIMIT_NICE)])
try: r.setrlimit(r.RLIMIT_NPROC, (9999, 9999)); print("RAISED")
except (ValueError, OSError): pass
import os; print(os.sched_getscheduler(0) == os.SCHED_IDLE, open("/proc/self/oom_score_adj").read().strip())
"""
    limits = Limits(pids=33, open_files=99, file_bytes=1000, idle=True, oom_score_adj=700)
    assert (await run(code, limits=limits)).out == "(0, 0) (33, 33) (99, 99) (1000, 1000)\n(0, 0) (0, 0)\nTrue 700\n"
