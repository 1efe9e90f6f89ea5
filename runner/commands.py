"""What each command of the command line does. Everything heavy is imported by the command that needs it."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from runner import places
from runner.config import ConfigError, RunConfig
from runner.record.rundir import RunDir, find

if TYPE_CHECKING:
    from runner.resolve import Flags

T = TypeVar("T")
_IN_SCOPE = "VIBETRAINING_IN_SCOPE"


def start(args: argparse.Namespace) -> int:
    """``runner --task …``: one whole run."""
    from runner import loop
    from runner.resolve import resolve

    config = resolve(flags_of(args))
    if args.dry_run:
        return _dry_run(config, args.json)
    _check_agent(config)
    runs = Path(args.runs).absolute()
    _leave_root(config, runs, _same_command())
    return _to_its_end(loop.start(config, runs, wait=not args.no_wait, as_json=args.json))


def flags_of(args: argparse.Namespace) -> Flags:
    """What the command line of a run said."""
    from runner.resolve import Flags

    return Flags(
        task=args.task,
        problems=args.problems,
        hidden=args.hidden,
        sources=tuple(args.sources),
        model=args.model,
        agent=args.agent,
        agent_model=args.agent_model,
        reasoning_effort=args.reasoning_effort,
        teacher_model=args.teacher_model,
        scope=args.scope,
        seed=args.seed,
        samples=args.samples,
        budget=args.budget,
        profile=args.profile,
        protocol=args.protocol,
        policy=args.policy,
        config=args.config,
        allow_weak=tuple(args.allow_weak),
        sets=tuple(args.sets),
    )


def reference(args: argparse.Namespace) -> int:
    """``runner reference --task T --model M``: a fixed system, evaluated like the selected one of a run."""
    from runner import reference as references
    from runner.resolve import resolve

    config = resolve(flags_of(args))
    if args.dry_run:
        return _dry_run(references.as_reference(config), args.json)
    runs = Path(args.runs).absolute()
    _leave_root(config, runs, _same_command())
    return _to_its_end(references.start(config, runs, wait=not args.no_wait, as_json=args.json))


def resume(args: argparse.Namespace) -> int:
    """``runner resume [RUN]``."""
    from runner import loop
    from runner.resume import frozen_config

    rundir = _find(args)
    config = frozen_config(rundir)
    _check_agent(config)
    _leave_root(config, _runs_of(rundir), _same_command())
    return _to_its_end(loop.resume(config, rundir, wait=not args.no_wait, as_json=args.json))


def _check_agent(config: RunConfig) -> None:
    """What a run's agent needs is there, before minutes are spent on the rest."""
    from runner.opening import shared_memory
    from runner.research.agents import make_agent
    from runner.research.agents.options import check_ready
    from runner.research.memory import machine_memory

    check_ready(config)
    make_agent(config)
    shared_memory(config, machine_memory())


def status(args: argparse.Namespace) -> int:
    """``runner status [RUN]``."""
    from runner import views

    run = _find(args)
    print(json.dumps(views.status(run)) if args.json else views.status_text(run))
    return 0


def ls(args: argparse.Namespace) -> int:
    """``runner ls``."""
    from runner import views

    print(json.dumps(views.rows(Path(args.runs))) if args.json else views.ls(Path(args.runs)))
    return 0


def watch(args: argparse.Namespace) -> int:
    """``runner watch [RUN]``."""
    from runner import views

    views.watch(_find(args), sys.stdout, json_lines=args.json)
    return 0


def stop(args: argparse.Namespace) -> int:
    """``runner stop [RUN]``: a request that the run honours and journals."""
    from runner.record.liveness import Liveness, liveness

    rundir = _find(args)
    state = liveness(rundir)
    if state not in (Liveness.LIVE, Liveness.QUIET):
        raise ConfigError(f"is not running ({state.value})", where=rundir.name, do="Nothing to stop; see `runner ls`")
    rundir.request_stop()
    print(f"asked {rundir.name} to stop; `runner resume {rundir.name}` goes on with it")
    return 0


def report(args: argparse.Namespace) -> int:
    """``runner report [RUN]``: write everything and say where; with --json also print report.json."""
    from runner.record.journal import load
    from runner.report.publish import publish

    rundir = _find(args)
    files = publish(rundir, load(rundir.journal_file))
    for path in files:
        print(path, file=sys.stderr if args.json else sys.stdout)
    if args.json:
        sys.stdout.write((rundir.report / "report.json").read_text(encoding="utf-8"))
    if args.open:
        import webbrowser

        webbrowser.open(files[0].as_uri())
    return 0


def leaderboard(args: argparse.Namespace) -> int:
    """``runner leaderboard [RUNS…]``."""
    from runner.report import many

    out = None if args.out is None else Path(args.out)
    form = "json" if args.json else args.form
    return many.leaderboard(Path(args.runs), args.names, form=form, with_published=args.with_published, out=out)


def compare(args: argparse.Namespace) -> int:
    """``runner compare A B``."""
    from runner.report import many

    return many.compare(Path(args.runs), args.a, args.b, as_json=args.json)


def matrix(args: argparse.Namespace) -> int:
    """``runner matrix [FILE]``."""
    from runner.report import many

    file = None if args.file is None else Path(args.file)
    if file is None and args.preset is None:
        raise ConfigError("needs a file or a preset", where="runner matrix", do="Type: runner matrix --preset ablation")
    root = Path(args.runs).absolute()
    return many.matrix(root, file, args.preset, args.seeds, args.budget, wait=not args.no_wait, dry=args.dry_run)


def tasks(args: argparse.Namespace) -> int:
    """``runner tasks``."""
    from tasks import registry

    specs = [registry.load_spec(name) for name in registry.names()]
    if args.json:
        print(json.dumps([spec.model_dump(mode="json") for spec in specs]))
        return 0
    for spec in specs:
        print(f"{spec.name}  {spec.title}; scope {'+'.join(spec.scope)}")
        for name, problems in spec.sets.items():
            note = "" if problems.comparable else " (scores are not comparable with the benchmark's)"
            print(f"    --problems {name:<6} {problems.title}, {problems.samples} sample(s) a problem{note}")
    return 0


def prepare(args: argparse.Namespace) -> int:
    """``runner prepare``."""
    from runner import prepare as preparing

    return int(preparing.run(args))


def doctor(args: argparse.Namespace) -> int:
    """``runner doctor``: every wall of this machine, what it means, and how to mend it."""
    from runner import doctor as examining

    runs = Path(args.runs).absolute()
    _leave_root(None, runs, _same_command())
    checks = _to_its_end(examining.examine(runs))
    if args.json:
        print(json.dumps([dataclasses.asdict(check) for check in checks]))
    else:
        print(examining.text(checks))
    return examining.exit_code(checks)


def _dry_run(config: RunConfig, as_json: bool) -> int:
    if as_json:
        print(config.model_dump_json(indent=2))
        return 0
    sys.stdout.write(config.to_toml())
    scope = " + ".join(config.scope)
    print(
        f"\n# would run: agent {config.agent} on {config.task}/{config.problems}, model {config.model}, scope {scope}, "
        f"protocol {config.protocol}"
    )
    print(f"# digest {config.digest()}")
    return 0


def _to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Run one coroutine in the loop that also watches our children."""
    from isolation.sandbox import use_pidfd_children

    use_pidfd_children()
    return asyncio.run(work)


def _find(args: argparse.Namespace) -> RunDir:
    return find(Path(args.runs), args.run)


def _runs_of(rundir: RunDir) -> Path:
    """The folder given to --runs: run folders lie in it by task."""
    return rundir.path.absolute().parent.parent


def _same_command() -> list[str]:
    """This very command, for the process that goes on as an ordinary user."""
    return [sys.executable, "-P", "-m", "runner", *sys.argv[1:]]


def _leave_root(config: RunConfig | None, runs: Path, argv: Sequence[str]) -> None:
    """Go on as this very command, as an ordinary user and with hard limits where the machine gives them.

    Started by root: drops root (never returns). Started by a user: under systemd, inside a control group of its own
    (never returns, once); else there is nothing to do.
    """
    from isolation import limits, privilege

    if os.geteuid() != 0:
        scope = () if os.environ.get(_IN_SCOPE) else limits.scope_command()
        if scope:
            os.execvpe(scope[0], [*scope, *argv], {**os.environ, _IN_SCOPE: "1"})  # noqa: S606
        return
    keep: list[Path] = []
    if config is not None:
        files = (config.validation_file, config.hidden_file, *config.source_files, config.base_dir, config.model_env)
        keep = [Path(path) for path in (*files, *config.agent_files) if path]
        keep.append(places.home() / "agents")
        models = [where for where in (config.llm, config.teacher) if where is not None]
        keep += [Path(path) for where in models for path in (where.key_file, where.local) if path is not None]
    keep += [Path(word) for word in sys.argv[1:] if word.startswith("/") and Path(word).exists()]
    privilege.enter(keep, [runs], argv)
