"""Is a LaTeX expression equal to an integer? Asked of math-verify's parser in a child process that can be killed.

The text was written by a model, so it may make sympy spin or eat memory: the child has a memory limit, a limit of
processor time per question by which the kernel ends it (a busy machine changes no verdict), and a parent that kills it
when it is silent all the same. The next question starts another child. ``python -P -m tasks.aime.equivalence`` is the
child: one JSON object a line, ``{"gold", "text", "cpu_s"}`` in, ``{"is"}`` out, until its stdin ends.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final, Literal

from tasks.spec import TaskError

Relation = Literal["equal", "different", "no_number", "timeout"]

CPU_S: Final = 4.0
WALL_S: Final = 20.0
START_S: Final = 45.0
MEMORY_BYTES: Final = 2 << 30
_DIGITS = 40
_ROOT = Path(__file__).resolve().parents[2]


class Equivalence:
    """A lazily started child that compares expressions with integers. Usable from any thread, one question at a time.

    ``cpu_s`` is the processor time and ``wall_s`` the time that one answer may take; a child that needs more is dead.
    """

    def __init__(self, cpu_s: float = CPU_S, wall_s: float = WALL_S) -> None:
        self.cpu_s = cpu_s
        self.wall_s = wall_s
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def compare(self, text: str, gold: int) -> Relation:
        """How the LaTeX ``text`` relates to ``gold``. TaskError when the child cannot be started at all."""
        question = {"gold": gold, "text": text, "cpu_s": self.cpu_s}
        with self._lock:
            found: Relation = "timeout"
            try:
                child = self._child if self._child and self._child.poll() is None else self._start()
                found = _ask(child, question, self.wall_s).get("is", "timeout")
            finally:
                if found == "timeout":  # also when a signal handler raised: its answer must meet no later question
                    self._stop()
            return found

    def close(self) -> None:
        """End the child; the next comparison starts another."""
        with self._lock:
            self._stop()

    @property
    def pid(self) -> int | None:
        """The child's process id, while there is one."""
        return self._child.pid if self._child else None

    def _start(self) -> subprocess.Popen[bytes]:
        self._stop()
        command = [sys.executable, "-P", "-m", "tasks.aime.equivalence"]
        pipe = subprocess.PIPE
        child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=_environment())
        self._child = child
        if _read(child, time.monotonic() + START_S).get("is") != "ready":
            self._stop()
            raise TaskError(
                "the process that compares expressions did not start",
                where=" ".join(command),
                do="Check that math-verify can be imported by this interpreter",
            )
        return child

    def _stop(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe:
                pipe.close()


def _environment() -> dict[str, str]:
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PATH": os.defpath, "HOME": "/nonexistent", "PYTHONPATH": os.pathsep.join(paths)}


def _ask(child: subprocess.Popen[bytes], question: dict[str, Any], seconds: float) -> dict[str, Any]:
    assert child.stdin is not None
    deadline = time.monotonic() + seconds
    try:
        child.stdin.write(json.dumps(question).encode() + b"\n")  # far below PIPE_BUF: the text is short
        child.stdin.flush()
    except OSError:
        return {}
    return _read(child, deadline)


def _read(child: subprocess.Popen[bytes], deadline: float) -> dict[str, Any]:
    """The child's next line; {} when it is late, ends or writes something else."""
    assert child.stdout is not None
    poller, line = select.poll(), b""
    poller.register(child.stdout, select.POLLIN)
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not poller.poll(left * 1000):
            return {}
        part = os.read(child.stdout.fileno(), 4096)
        if not part:
            return {}
        line += part
    answer = json.loads(line)
    return answer if isinstance(answer, dict) else {}


def relation(text: str, gold: int) -> Relation:
    """The comparison itself, without a limit on time: runs in the child only.

    Only a real number counts; sets, intervals and relations do not. Decimals are taken as exact.
    """
    import sympy  # type: ignore[import-untyped]
    from math_verify import LatexExtractionConfig, parse  # type: ignore[import-untyped]

    # No timeout of its own: it counts wall clock, and takes SIGALRM.
    found = parse(f"${text}$", [LatexExtractionConfig()], fallback_mode="no_fallback", parsing_timeout=0)
    if not found or not isinstance(found[0], sympy.Expr) or not found[0].is_number:
        return "no_number"
    floats = {value: sympy.Rational(str(value)) for value in found[0].atoms(sympy.Float)}
    value = found[0].xreplace(floats).doit()
    if value.is_Rational:
        return "equal" if value == gold else "different"
    distance = sympy.N(sympy.Abs(value - gold), _DIGITS)
    return "equal" if distance.is_comparable and distance < sympy.Float(10) ** (10 - _DIGITS) else "different"


def _serve() -> None:
    replies = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # whatever a library prints does not reach the parent
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    memory = MEMORY_BYTES if most == resource.RLIM_INFINITY else min(most, MEMORY_BYTES)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    relation("1", 1)  # imports are not on the first question's clock
    print(json.dumps({"is": "ready"}), file=replies, flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, question["cpu_s"])  # SIGPROF ends the process, in C code too
        found = _safely(question["text"], question["gold"])
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps({"is": found}), file=replies, flush=True)


def _safely(text: str, gold: int) -> Relation:
    try:
        return relation(text, gold)
    except Exception:  # sympy raises anything on odd input; only the verdict counts
        return "no_number"


if __name__ == "__main__":
    _serve()
