"""Our side of the keeper: a small process that outlives us by a moment, to end what we were just starting.

``--die-with-parent`` is bubblewrap's last step, and a pid namespace's init ignores every signal that the kernel could
send by itself at our death; so between the spawn and that step only another process can end it.
"""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

_INSIDE = Path(__file__).absolute().parent / "inside" / "keeper.py"


class Keeper:
    """The keeper of this process; started when it is first told something, and again should it have died."""

    def __init__(self) -> None:
        self._pid = 0
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def spawned(self, outer: int) -> None:
        """bubblewrap runs as ``outer`` and has not read its options yet."""
        self._tell(f"{outer}\n")

    def born(self, outer: int, init: int) -> None:
        """Its init is ``init`` and waits to be released."""
        self._tell(f"{outer} {init}\n")

    def stands(self, outer: int) -> None:
        """It dies with us by itself, or is dead."""
        self._tell(f"{outer} -\n")

    def _tell(self, line: str) -> None:
        if self._pid != os.getpid() or self._socket is None:
            self._start()
        assert self._socket is not None
        try:
            self._socket.sendall(line.encode("ascii"))
        except OSError:  # it was killed: what it knew is lost, what comes is not
            self._start()
            self._socket.sendall(line.encode("ascii"))

    def _start(self) -> None:
        from isolation.bwrap import base_python

        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [str(base_python()), "-I", "-S", "-B", str(_INSIDE)], stdin=theirs.fileno(), stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, env={}, cwd="/", start_new_session=True,
            )  # fmt: skip
        self._pid, self._socket = os.getpid(), ours


KEEPER = Keeper()
