"""The command ``runner``: arguments in, an exit code out. Heavy imports wait until a command needs them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

EPILOG = """\
examples:
  runner --task aime                            one whole run with this machine's defaults
  runner --task aime --seed 3 --budget 10m      another search order, another budget
  runner --task aime --scope data+trainer       the harness is read-only for the agent
  runner --task aime --problems val.jsonl --hidden test.jsonl --model smollm2-135m --samples 1
  runner status                                 the newest run; `runner ls` shows all
  runner resume                                 go on with a run that crashed or was stopped
  runner prepare --model smollm2-135m           get a model before a run needs it

Start here: `runner --task aime --dry-run` prints what would run, and runs nothing.
"""
COMMANDS = (
    "status", "ls", "watch", "resume", "stop", "report", "leaderboard", "compare", "matrix", "reference",
    "tasks", "prepare", "doctor",
)  # fmt: skip


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what to run")
    what.add_argument("--task", metavar="NAME", help="the task, for example aime (`runner tasks` lists them)")
    what.add_argument("--problems", metavar="SET|FILE", help="a problem set (mini, aime) or a validation file")
    what.add_argument("--hidden", metavar="FILE", help="the hidden problems, when --problems names a file")
    what.add_argument("--sources", metavar="FILE", action="append", default=[], help="problems the agent may train on")
    what.add_argument("--model", metavar="NAME|DIR", help="tiny, smollm2-135m, Qwen/Qwen3.5-9B-Base, or a folder")
    what.add_argument(
        "--agent", metavar="NAME", help='scripted, claude-code, codex, mini-swe-agent, shell or command:"..."'
    )
    what.add_argument("--agent-model", metavar="NAME", help="the model that the agent thinks with")
    what.add_argument("--teacher-model", metavar="NAME", help="a model that `vibe sample --teacher` may ask")
    what.add_argument("--reasoning-effort", metavar="LEVEL", help="minimal, low, medium, high, xhigh or max")
    what.add_argument("--scope", metavar="D+T+H", help="the components that the agent may edit, joined by +")
    what.add_argument("--budget", metavar="TIME", help="wall time of the research phase: 90s, 20m, 12h")
    what.add_argument("--seed", type=int, metavar="N", help="seeds sampling and the scripted agent (default 0)")
    what.add_argument("--samples", type=int, metavar="N", help="samples per problem (avg@N)")
    what.add_argument("--profile", default="auto", metavar="NAME", help="auto, laptop or workstation")
    what.add_argument("--protocol", metavar="NAME", help="vibetraining (the default) or rsibench-data")
    what.add_argument("--policy", metavar="NAME", help="selection when the agent made none: best_validated or none")
    how = parser.add_argument_group("how")
    how.add_argument("--config", metavar="FILE", help="a TOML file with any of the keys that --dry-run prints")
    how.add_argument("--set", dest="sets", action="append", default=[], metavar="KEY=VALUE", help="one key of them")
    how.add_argument("--allow-weak", action="append", default=[], metavar="WALL", help="run without a missing wall")
    how.add_argument("--no-wait", action="store_true", help="fail when another run holds this machine")
    how.add_argument("--dry-run", action="store_true", help="print the resolved configuration and stop")
    _common(how)


def _common(group: argparse._ActionsContainer) -> None:
    group.add_argument("--runs", default="runs", metavar="DIR", help="where run folders lie (default: runs)")
    group.add_argument("--json", action="store_true", help="machine-readable output")


def parser() -> argparse.ArgumentParser:
    """The whole command line; builds no more than argparse needs."""
    top = argparse.ArgumentParser(
        prog="runner",
        description="Measure how well a research agent improves a model system (data, trainer, harness), behind walls.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="store_true", help="print the version and stop")
    _run_arguments(top)
    top.set_defaults(command=None)
    top.usage = f"runner --task NAME [options]\n       runner {{{','.join(COMMANDS)}}} ..."
    return top


def _command_parser(command: str) -> argparse.ArgumentParser:
    helps = {
        "status": "Where a run stands: liveness, budget, candidates, best so far.",
        "ls": "All run folders, newest first.",
        "watch": "Follow a run until it ends. Ctrl-C stops watching, never the run.",
        "resume": "Go on with a run that crashed or was stopped, under the same configuration.",
        "stop": "Ask a live run to stop cleanly; it can be resumed.",
        "report": "Write the report of a run (page, Markdown, JSON, figures) and print where it is.",
        "leaderboard": "Systems compared over many runs: hidden results, costs, searches.",
        "compare": "Two candidates (RUN:c03, or c03 of the newest run) or two runs, problem by problem.",
        "matrix": "Agents × tasks × scopes × seeds, one run after another; the same command goes on after a stop.",
        "reference": "Evaluate a fixed model as it is: the line that runs are seen against.",
        "tasks": "The tasks, their problem sets and budgets.",
        "prepare": "Get what a run needs: the model environment, a model, a data set.",
        "doctor": "Check the walls of this machine and say how to mend what is missing.",
    }
    sub = argparse.ArgumentParser(prog=f"runner {command}", description=helps[command])
    if command in ("status", "watch", "resume", "stop", "report"):
        sub.add_argument("run", nargs="?", default="latest", help="a run's name or folder (default: the newest)")
    if command == "resume":
        sub.add_argument("--no-wait", action="store_true", help="fail when another run holds this machine")
    if command in _MANY:
        _MANY[command](sub)
    if command == "reference":
        _run_arguments(sub)
    elif command == "prepare":
        from runner.prepare import add_arguments

        add_arguments(sub)
    else:
        _common(sub)
    sub.set_defaults(command=command)
    return sub


def _report_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--open", action="store_true", help="open the page in this machine's browser")


def _leaderboard_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("names", nargs="*", metavar="RUN", help="runs, or folders of runs (default: all in --runs)")
    sub.add_argument("--as", dest="form", choices=("text", "markdown", "csv"), default="text", help="how to print it")
    sub.add_argument("--out", metavar="DIR", help="also write Markdown, CSV, JSON and figures there")
    sub.add_argument("--with-published", action="store_true", help="beside it, figures that others published")


def _compare_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("a", metavar="A", help="RUN, RUN:c03, or c03 of the newest run")
    sub.add_argument("b", metavar="B", help="the other; differences are B − A")


def _matrix_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("file", nargs="?", metavar="FILE", help="TOML with agents, tasks, scopes, seeds and [run] flags")
    sub.add_argument("--preset", metavar="NAME", help="ablation: each component alone, data+trainer, and all three")
    sub.add_argument("--seeds", type=int, metavar="N", help="seeds 0 to N−1 for each cell")
    sub.add_argument("--budget", metavar="TIME", help="wall time of each run's research phase")
    sub.add_argument("--no-wait", action="store_true", help="fail when another matrix is at work in this folder")
    sub.add_argument("--dry-run", action="store_true", help="list the cells and where they stand, and stop")


_MANY = {
    "report": _report_arguments,
    "leaderboard": _leaderboard_arguments,
    "compare": _compare_arguments,
    "matrix": _matrix_arguments,
}


def _dispatch(args: argparse.Namespace) -> int:
    from runner import commands

    handler = getattr(commands, args.command or "start")
    return int(handler(args))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; every error is one line on stderr, every exit code comes from :mod:`runner.errors`."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words and not words[0].startswith("-"):
        if words[0] not in COMMANDS:
            import difflib

            close = difflib.get_close_matches(words[0], COMMANDS, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else "See `runner --help`"
            sys.stderr.write(f"runner: unknown command {words[0]!r}. {hint}\n")
            return 2
        args = _command_parser(words[0]).parse_args(words[1:])
    else:
        args = parser().parse_args(words)
        if args.version:
            from importlib.metadata import version

            print(version("vibetraining-bench"))
            return 0
        if args.task is None and args.config is None:
            parser().print_help()
            return 2
    try:
        return _dispatch(args)
    except BrokenPipeError:
        # The reader of our output went away (`runner ls | head`): nothing is wrong with the run.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as error:
        from runner.errors import INTERNAL, exit_code, tell

        if exit_code(error) == INTERNAL:
            _keep_trace()
        return tell(error)


def _keep_trace() -> None:
    """Put the trace of a fault of ours where a person can find it, without the values of any variable."""
    import traceback

    folder = Path.cwd()
    sys.stderr.write("".join(traceback.format_exception(*sys.exc_info())[-8:]))
    sys.stderr.write(f"runner: this is a fault of the program (in {folder}); please report the lines above\n")
