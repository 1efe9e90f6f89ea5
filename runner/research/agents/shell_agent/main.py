"""Inside the research sandbox: an interactive bash on a pseudo-terminal of the sandbox, carried over stdin and stdout.

Runs on the standard library alone. The end of stdin is typed on as the terminal's end of input.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import sys
import termios

EOT = b"\x04"


def start() -> tuple[int, int]:
    """bash on a new terminal: its pid and our side."""
    pid, master = pty.fork()
    if pid == 0:
        os.chdir("/lab")
        prompt = r"\[\e[1m\]lab\[\e[0m\]:\w\$ "
        os.execve("/bin/bash", ["bash", "--norc", "-i"], {**os.environ, "PS1": prompt, "SHELL": "/bin/bash"})  # noqa: S606
    rows, columns = (int(os.environ.get(name, "0") or 0) for name in ("LINES", "COLUMNS"))
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows or 24, columns or 80, 0, 0))
    return pid, master


def carry(master: int) -> None:
    """Bytes both ways until the shell has closed its side."""
    sources = [master, 0]
    while True:
        ready, _, _ = select.select(sources, [], [])
        if 0 in ready:
            typed = os.read(0, 65536)
            if not typed:
                sources.remove(0)
            os.write(master, typed or EOT)
        if master in ready:
            try:
                shown = os.read(master, 65536)
            except OSError:
                return
            if not shown:
                return
            os.write(1, shown)


def main() -> int:
    welcome = os.environ.pop("VIBE_WELCOME", "")
    os.write(1, welcome.encode() + b"\r\n")
    pid, master = start()
    carry(master)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0x7F


if __name__ == "__main__":
    sys.exit(main())
