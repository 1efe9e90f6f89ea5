"""The commands over many runs, ``leaderboard``, ``compare`` and ``matrix``: their bodies; arguments are in the CLI."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from isolation.files import write_atomic
from runner.record.rundir import RunDir
from runner.report import board_views as views
from runner.report.gather import chosen_runs, summaries
from runner.report.leaderboard import boards, means
from runner.report.published import published
from runner.report.searches import tables


def leaderboard(root: Path, names: Sequence[str], *, form: str, with_published: bool, out: Path | None) -> int:
    """Print the leaderboard as text, Markdown, CSV or JSON; with ``out`` also write all of them and the figures."""
    show(chosen_runs(root, names), form=form, with_published=with_published, out=out)
    return 0


def show(runs: Sequence[RunDir], *, form: str, with_published: bool = False, out: Path | None = None) -> None:
    """The leaderboard of these runs."""
    found = list(summaries(runs))
    every = boards(found)
    parts = (every, means(every), tables(found), published() if with_published else [])
    forms = {
        "text": lambda: views.as_text(*parts),
        "markdown": lambda: views.as_markdown(*parts),
        "csv": lambda: views.as_csv(every),
        "json": lambda: json.dumps(views.as_json(*parts)) + "\n",
    }
    sys.stdout.write(forms[form]())
    if out is None:
        return
    from runner.report.publish import missing_extra

    try:
        from runner.report.figures_many import figures
    except ImportError as error:
        raise missing_extra(error) from error
    pictures = figures(every, found)
    links = "".join(f"![{item.title}]({item.name}.svg)\n\n" for item in pictures)
    out.mkdir(parents=True, exist_ok=True)
    files = {
        "leaderboard.md": (forms["markdown"]() + "\n" + links).encode(),
        "leaderboard.csv": forms["csv"]().encode(),
        "leaderboard.json": forms["json"]().encode(),
        **{f"{item.name}.svg": item.svg for item in pictures},
        **{f"{item.name}.png": item.png for item in pictures},
    }
    for name, content in files.items():
        write_atomic(out / name, content)
    print(f"written to {out}: {', '.join(files)}", file=sys.stderr)


def compare(root: Path, a: str, b: str, *, as_json: bool) -> int:
    """Print the comparison of two candidates or two runs."""
    from runner.report import compare as comparing

    one, other = comparing.side(root, a), comparing.side(root, b)
    found = comparing.compare(one, other)
    text = json.dumps(comparing.as_json(one, other, found)) + "\n" if as_json else comparing.as_text(one, other, found)
    sys.stdout.write(text)
    return 0


def matrix(
    root: Path, file: Path | None, preset: str | None, seeds: int | None, budget: str | None, *, wait: bool, dry: bool
) -> int:
    """Run (or with ``dry`` only list) a matrix, then print its leaderboard; 1 where a cell did not get to its end."""
    from runner import matrix as running
    from runner.cli import parser
    from runner.commands import flags_of
    from runner.record.rundir import list_runs
    from runner.resolve import resolve

    def digest(arguments: Sequence[str]) -> str:
        return resolve(flags_of(parser().parse_args(list(arguments)))).digest()

    say = partial(print, flush=True)
    plan = running.cells(running.read_plan(file, preset, seeds, budget), digest)
    if dry:
        there = list_runs(root)
        for cell in plan:
            print(f"{running.standing(cell, there)[0]:<10} {cell.name}")
        return 0
    with running.locked(root, wait=wait, say=say) as lock:
        still_open = running.run_matrix(plan, root, lock, running.here, say)
    digests = {cell.digest for cell in plan}
    show([run for run in chosen_runs(root, ()) if running.digest_of(run) in digests], form="text")
    for line in still_open:
        print(f"NOT DONE  {line}")
    return 1 if still_open else 0
