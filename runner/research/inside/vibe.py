"""vibe: what you may ask for in this run. Time left, training, validation, sampling, selection.

This file runs inside the research sandbox and uses the standard library alone. Everything it says comes from the
desk, a socket of the runner; nothing here decides anything.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SOCKET = "/run/vibe-control/desk.sock"
LINE_BYTES = 64 * 1024
PROMPTS_BYTES = 8 * 1024 * 1024
OK, REFUSED, USAGE, TIMEOUT = 0, 1, 2, 3

HELP = """\
How a run goes: edit the files under /lab (data, trainer, harness: those in your scope), then

  vibe train -m "why"        run your trainer on your data: makes a model (m01, m02, ...)
  vibe validate -m "why"     evaluate (newest model, your harness now): makes a candidate (c01, ...) with a score
  vibe select c03            your choice for the one hidden test; the last choice counts
  vibe finish                you are done (the deadline ends the run anyway)

train, validate and sample print a job id first and then wait. The job belongs to the desk: stopping this command
does not stop the job. If your tool calls are killed after some minutes, use --detach, then `vibe wait j003`.
One job runs at a time and one may wait. Validations are not counted, their time is. A candidate that equals an
earlier one gives the recorded result again.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 still running when --timeout passed.
"""


def name(letter: str, digits: int) -> Callable[[str], str]:
    """A check for ids such as m04: a typing error is told here, the desk takes it for an attack."""

    def check(text: str) -> str:
        if not re.fullmatch(f"{letter}[0-9]{{{digits},6}}", text):
            raise argparse.ArgumentTypeError(f"not an id like {letter}{'1':0>{digits}}: {text!r}")
        return text

    return check


def models(text: str) -> list[str]:
    """``m03,m05`` as a list."""
    return [name("m", 2)(part) for part in text.split(",") if part]


def parser() -> argparse.ArgumentParser:
    """The command line; ``vibe VERB --help`` teaches each verb."""
    top = argparse.ArgumentParser("vibe", description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="one JSON object per line; the last is the answer")
    waits = argparse.ArgumentParser(add_help=False)
    waits.add_argument("--timeout", type=float, metavar="S", help="stop waiting after S seconds; the job goes on")
    starts = argparse.ArgumentParser(add_help=False, parents=[waits])
    starts.add_argument("--detach", action="store_true", help="print the job id and return at once")
    note = argparse.ArgumentParser(add_help=False)
    note.add_argument("-m", "--message", default="", metavar="TEXT", help="your hypothesis, kept in the record")

    model, candidate, job = name("m", 2), name("c", 2), name("j", 3)
    verbs.add_parser("status", parents=[common], help="time left, jobs, best candidate, selection")
    train = verbs.add_parser("train", parents=[common, starts, note], help="run /lab/trainer/train.py on /lab/data")
    train.add_argument(
        "--from", dest="parents", type=models, default=["m00"], metavar="M[,M]", help="parent models (default m00)"
    )
    check = verbs.add_parser("validate", parents=[common, starts, note], help="evaluate (model, /lab/harness now)")
    check.add_argument(
        "--model", type=model, metavar="M", help="a model (default: the newest, or the one being trained)"
    )
    check.add_argument(
        "--parent", type=candidate, metavar="C", help="the candidate to compare with (default: the last validated)"
    )
    sample = verbs.add_parser("sample", parents=[common, starts], help="let a model answer your own prompts")
    sample.add_argument("prompts", help='file of {"prompt": text} or {"messages": [...]} lines, at most 8 MiB')
    sample.add_argument("--model", type=model, metavar="M", help="a model (default: the newest)")
    sample.add_argument("--teacher", action="store_true", help="ask the run's teacher, if it has one: it costs money")
    sample.add_argument("-n", type=int, default=1, metavar="N", help="replies per prompt (default 1, at most 64)")
    sample.add_argument("--temperature", type=float, metavar="T", help="default 1.0; of a teacher: its own")
    most = "tokens per reply (default and limit: the task's; of a teacher: 4096, and what its owner allows)"
    sample.add_argument("--max-tokens", type=int, metavar="K", help=most)
    wait = verbs.add_parser("wait", parents=[common, waits], help="wait for a job")
    wait.add_argument("job", type=job, metavar="JOB")
    wait.set_defaults(timeout=540.0)
    cancel = verbs.add_parser("cancel", parents=[common], help="stop a job; its time stays charged")
    cancel.add_argument("job", type=job, metavar="JOB")
    verbs.add_parser("history", parents=[common], help="all candidates and their scores")
    select = verbs.add_parser("select", parents=[common], help="choose the candidate for the hidden test")
    select.add_argument("candidate", type=candidate, metavar="C")
    verbs.add_parser("finish", parents=[common], help="end the research phase now")
    return top


def request(args: argparse.Namespace) -> dict[str, Any]:
    """The first line to the desk."""
    local = ("json", "timeout", "prompts")
    return {key: value for key, value in vars(args).items() if key not in local and value is not None}


def prompt_lines(path: str) -> Iterator[bytes]:
    """The lines that carry a prompts file to the desk; a bad file ends the command before anything is sent."""
    with Path(path).open("rb") as file:
        content = file.read(PROMPTS_BYTES + 1)
    if len(content) > PROMPTS_BYTES:
        sys.exit(usage(f"{path}: more than 8 MiB; split it"))
    lines = []
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            sys.exit(usage(f'{path}:{number}: not JSON; each line is {{"prompt": "..."}}'))
        encoded = encode({"row": row})
        if len(encoded) > LINE_BYTES:
            sys.exit(usage(f"{path}:{number}: a prompt of more than 64 KiB; shorten it"))
        lines.append(encoded)
    yield from lines
    yield encode({"end": True})


def usage(line: str) -> int:
    print(f"vibe: {line}", file=sys.stderr)
    return USAGE


def encode(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


class Call:
    """One connection to the desk: sends a request, shows what comes back, ends with an exit code."""

    def __init__(self, as_json: bool, timeout: float | None, job: str) -> None:
        self.as_json = as_json
        self.until = None if timeout is None else time.monotonic() + timeout
        self.job = job

    def run(self, lines: list[bytes]) -> int:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            try:
                connection.connect(os.environ.get("VIBE_CONTROL", SOCKET))
            except OSError:
                print("vibe: the desk is closed: the research phase has ended", file=sys.stderr)
                return REFUSED
            with contextlib.suppress(OSError):  # the desk may close early: its answer says why
                connection.sendall(b"".join(lines))
            try:
                return self.read(connection)
            except TimeoutError:
                self.say({"type": "timeout", "job": self.job, "text": f"{self.job} goes on: vibe wait {self.job}"})
                return TIMEOUT
            except KeyboardInterrupt:
                self.say({"type": "detached", "job": self.job, "text": f"detached; {self.job or 'nothing'} goes on"})
                return TIMEOUT
            except OSError:
                pass
        print("vibe: the desk closed the connection; try `vibe status`", file=sys.stderr)
        return REFUSED

    def read(self, connection: socket.socket) -> int:
        """Show messages until the answer."""
        rest = b""
        while True:
            connection.settimeout(None if self.until is None else max(0.001, self.until - time.monotonic()))
            chunk = connection.recv(65536)
            if not chunk:
                raise ConnectionError
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                message = json.loads(line)
                self.job = message.get("job") or self.job
                self.say(message)
                if message.get("type") == "answer":
                    return OK if message.get("ok") else REFUSED

    def say(self, message: dict[str, Any]) -> None:
        print(json.dumps(message) if self.as_json else message.get("text", ""), flush=True)


def main() -> int:
    args = parser().parse_args()
    try:
        lines = [encode(request(args)), *(prompt_lines(args.prompts) if args.verb == "sample" else ())]
    except OSError as error:
        return usage(f"{error.filename}: {error.strerror}")
    if len(lines[0]) > LINE_BYTES:
        return usage("the message is too long; keep it under 60,000 characters")
    return Call(args.json, getattr(args, "timeout", None), getattr(args, "job", "")).run(lines)


if __name__ == "__main__":
    sys.exit(main())
