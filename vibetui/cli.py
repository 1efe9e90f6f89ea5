"""The command ``vibetui``: arguments in, an exit status out. Without a terminal it prints the plain status."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from isolation.clean import clean_line
from runner.record.error import JournalError
from runner.record.rundir import RunDir, find, list_runs

EPILOG = """\
examples:
  vibetui                         the newest run, live or not (r: all runs, ?: all keys)
  vibetui 7f3a                    a run by a part of its name, or by its folder
  vibetui demo                    a recorded run, played in less than a minute
  vibetui start --task aime       start a run as a process of its own and watch it

q leaves; the run goes on. Everything after `start` is what `runner` takes.
"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="vibetui",
        usage="vibetui [RUN | latest | demo | start --task NAME ...] [options]",
        description="See a run: budget, validation curve, what each candidate changed and did.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("run", nargs="?", default="latest", help="a run's name, a part of it, its folder, or latest")
    top.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="where run folders lie (runs)")
    top.add_argument("--ascii", action="store_true", help="only ASCII signs")
    top.add_argument("--no-mouse", action="store_true", help="leave the mouse to the terminal")
    top.add_argument("--keys", type=Path, metavar="FILE", help='a TOML file with your own keys: stop = "ctrl+x"')
    top.add_argument("--speed", type=float, metavar="X", help="demo: times as fast as it was")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; every refusal is one line on stderr."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if words[:1] == ["start"]:
            return _start(words[1:])
        args = parser().parse_args(words)
        if args.speed is not None and not 0.01 <= args.speed <= 10_000:
            raise JournalError(
                "a speed is between 0.01 and 10000", where="--speed", do="leave it out for a minute's show"
            )
        if args.run == "demo":
            return _demo(args)
        return _view(_wanted(args), args)
    except JournalError as error:
        sys.stderr.write(f"vibetui: {clean_line(str(error), 2000)}\n")
        return 2
    except KeyboardInterrupt:
        return 130


def _wanted(args: argparse.Namespace) -> RunDir | None:
    """The run that was named; None for the list, where there is none to be the latest."""
    if args.run == "latest" and not list_runs(args.runs):
        return None
    return find(args.runs, args.run)


def has_terminal() -> bool:
    """Can a screen be shown here? Textual itself asks neither for a terminal nor for a dumb one."""
    if os.environ.get("TERM", "dumb") in ("dumb", ""):
        return False
    return sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()


def _view(run: RunDir | None, args: argparse.Namespace, label: str = "") -> int:
    if not has_terminal():
        return _plain(run, args.runs)
    import gc
    import logging
    import warnings

    gc.disable()  # until the first frame is painted: nothing of what is imported is garbage
    from vibetui.app import VibeApp, run_app

    logging.getLogger().addHandler(logging.NullHandler())  # the terminal is painted on: nothing else may write to it
    warnings.simplefilter("ignore")
    app = VibeApp(args.runs, run, ascii_only=args.ascii, demo_label=label, keymap=_keymap(args.keys))
    return run_app(app, mouse=not args.no_mouse)


def _plain(run: RunDir | None, runs: Path) -> int:
    """What `runner` prints of it, in its own words."""
    import subprocess

    words = ["ls", "--runs", str(runs)] if run is None else ["status", str(run.path)]
    return subprocess.run([sys.executable, "-P", "-m", "runner", *words], check=False).returncode


def _keymap(path: Path | None) -> dict[str, str]:
    """A person's own keys; an unknown name or a key with two meanings is refused."""
    if path is None:
        return {}
    import tomli

    from vibetui.keys import REGISTRY, clashes, with_keymap

    try:
        told = tomli.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomli.TOMLDecodeError) as error:
        raise JournalError("cannot be read", where=str(path), do=f"mend it ({error})") from None
    known = {key.id for key in REGISTRY}
    keymap = {str(name): str(value) for name, value in told.items()}
    if unknown := sorted(keymap.keys() - known):
        raise JournalError(f"no such key: {unknown[0]}", where=str(path), do=f"use one of {', '.join(sorted(known))}")
    if found := clashes(with_keymap(keymap)):
        raise JournalError(f"two meanings for one key: {found[0]}", where=str(path), do="choose another key")
    return keymap


def _demo(args: argparse.Namespace) -> int:
    import tempfile

    from vibetui.demo import Replay
    from vibetui.recorded import unpack

    with tempfile.TemporaryDirectory(prefix="vibetui-demo-") as folder:
        args.runs = Path(folder)
        if not has_terminal():
            return _plain(unpack(Path(folder)), Path(folder))
        replay = Replay(Path(folder), args.speed)
        replay.start()
        try:
            return _view(replay.run_dir, args, replay.label())
        finally:
            replay.stop()


def _start(words: list[str]) -> int:
    """`runner` with these words, detached, then its screen; our own options may stand among them."""
    own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    own.add_argument("--runs", type=Path, default=Path("runs"))
    own.add_argument("--ascii", action="store_true")
    own.add_argument("--no-mouse", action="store_true")
    own.add_argument("--keys", type=Path)
    args, rest = own.parse_known_args(words)
    from vibetui.start import StartError, start

    if args.runs != Path("runs"):
        rest += ["--runs", str(args.runs)]
    if has_terminal():  # seconds pass before there is anything to see
        print(f"starting `{clean_line(shlex.join(['runner', *rest]), 400)}` as a process of its own …", flush=True)
    try:
        run = start(rest, args.runs)
    except StartError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if not has_terminal():
        print(f"started {run.name}; watch it with `runner watch {run.name}`, see it with `vibetui {run.name}`")
        return 0
    return _view(run, args)
