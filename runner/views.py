"""Where a run stands: ``runner status``, ``ls`` and ``watch``. Pure readers: they take no lock and write no file."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from runner.plain import PlainPrinter
from runner.record.describe import count, delta_text, duration, foreign, percent
from runner.record.fold import fold
from runner.record.follow import Follower
from runner.record.journal import load
from runner.record.liveness import Liveness, liveness
from runner.record.naming import names
from runner.record.rundir import RunDir, list_runs
from runner.record.state import RunState, valid
from runner.report.card import card
from runner.report.document import build
from runner.report.figures_of_merit import measure

_NOISE = frozenset({"train_progress", "validation_progress", "hidden_progress", "agent_turn", "lease_changed"})
_ALIVE = (Liveness.LIVE, Liveness.QUIET)
POLL_S = 0.5


def status(run: RunDir, state: RunState | None = None) -> dict[str, Any]:
    """The report of the run so far (same keys, same numbers), and beside it how and where it is now."""
    state = load(run.journal_file) if state is None else state
    report = build(state).model_dump(mode="json") if state.run else {"run": run.name}
    job = state.current
    return {
        **report,
        "path": str(run.path),
        "liveness": str(liveness(run, state)),
        "phase": state.phase,
        "status": state.finished.status if state.finished else None,
        "best": state.best.id if state.best else None,
        "selected": measure(state).selected_id,
        "limits": state.run.budget.model_dump(mode="json") if state.run else None,
        "now": _now(state) if job else None,
        "queue": [item.id for item in state.queue],
        "merit": _merit(state),
        "warnings": sum(group.count for group in state.notes.warnings.values()),
        "unknown": state.unknown_count,
        "resumes": state.head.resumes,
        "events": state.mark.events,
        "last_event": state.t or None,
    }


def _now(state: RunState) -> dict[str, Any] | None:
    job = state.current
    if job is None:
        return None
    progress = state.work.progress
    return {
        "job": job.id,
        "verb": job.verb,
        "candidate": job.candidate or None,
        "done": progress.done,
        "total": progress.total,
        "loss": progress.loss,
        "seconds": max(0.0, state.el - (job.started_el or 0.0)),
    }


def _merit(state: RunState) -> dict[str, Any]:
    merit = measure(state)
    delta = merit.delta_test.model_dump(mode="json") if merit.delta_test else None
    return {key: dict(value) if key == "designs" else value for key, value in asdict(merit).items()} | {
        "delta_test": delta
    }


def status_text(run: RunDir, state: RunState | None = None) -> str:
    """The status for reading: liveness and what is happening now, then the card."""
    state = load(run.journal_file) if state is None else state
    how = liveness(run, state)
    lines = [f"{str(how).upper()}  {happening(state)}", *_advice(run, how)]
    return "\n".join(lines) + "\n" + card(state)


def happening(state: RunState) -> str:
    """What goes on now, in a few words."""
    job, progress = state.current, state.work.progress
    phase = state.phase.replace("_", " ")
    if state.finished is not None or job is None:
        return f"phase {phase}"
    about = f" {foreign(job.candidate, 20)}" if job.candidate else ""
    steps = f", {count(progress.done)}/{count(progress.total)}" if progress.total else ""
    since = duration(max(0.0, state.el - (job.started_el or 0.0)))
    return f"phase {phase}: {job.verb}{about} ({foreign(job.id, 20)}{steps}) for {since}"


def _advice(run: RunDir, how: Liveness) -> list[str]:
    if how is Liveness.CRASHED:
        return [f"the run died; go on with `runner resume {run.name}`"]
    return (
        ["the run was copied from another machine, or the machine was started anew"] if how is Liveness.COPIED else []
    )


def rows(root: Path) -> list[dict[str, Any]]:
    """One summary per run below ``root``, newest first, live ones before all others."""
    found = [_row(run) for run in list_runs(root)]
    return sorted(found, key=lambda row: row["liveness"] not in _ALIVE)


def _row(run: RunDir) -> dict[str, Any]:
    state = load(run.journal_file, skip=_NOISE)
    best = state.best.validation if state.best else None
    return {
        "run": run.name,
        "path": str(run.path),
        "liveness": str(liveness(run, state)),
        "status": state.finished.status if state.finished else None,
        "phase": state.phase,
        "task": foreign(state.run.task, 20) if state.run else run.task,
        "agent": foreign(state.run.agent, 20) if state.run else None,
        "base": state.initial.score if state.initial else None,
        "best": best.score if best else None,
        "counted": names(state).counted,
        "hidden_delta": state.hidden.delta.value if state.hidden else None,
        "validations": len(valid(state, initial=False)),
        "wall_s": state.budget.wall_s,
        "wall_limit_s": state.run.budget.wall_s if state.run else None,
    }


def ls(root: Path) -> str:
    """The runs as a table: validation of P0 and of the best, the hidden difference, and the time used."""
    found = rows(root)
    if not found:
        return f"no runs in {root}; start one with `runner --task aime`\n"
    head = ("run", "state", "task", "agent", "val P0", "val best", "hidden Δ", "valid", "time")
    table = [head, *(_cells(row) for row in found)]
    widths = [max(len(row[i]) for row in table) for i in range(len(head))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table)
    return "\n".join(lines) + "\n"


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    ended = row["status"] or row["phase"]
    state = row["liveness"] if row["status"] is None else f"{row['liveness']} {ended.replace('_', ' ')}"
    limit = row["wall_limit_s"]
    return (
        row["run"],
        state,
        row["task"],
        row["agent"] or "–",
        percent(row["base"]),
        percent(row["best"]),
        delta_text(row["hidden_delta"]) + ("" if row["counted"] == "hidden" else f" ({row['counted']})"),
        str(row["validations"]),
        duration(row["wall_s"]) + (f" / {duration(limit)}" if limit is not None else ""),
    )


def watch(run: RunDir, stream: TextIO, *, json_lines: bool = False, color: bool | None = None) -> Liveness:
    """Print the run so far and follow it until it ends or its process is gone; Ctrl-C only stops watching.

    Returns how the run is then. Raises BrokenPipeError when nobody reads ``stream`` any more.
    """
    printer = PlainPrinter(stream, json_lines=json_lines, color=color)
    state, restarts = RunState(), 0
    try:
        with Follower(run.journal_file) as follower:
            while True:
                how = liveness(run, state)
                events = follower.poll()
                if follower.restarts != restarts:
                    state, restarts = RunState(), follower.restarts
                for event in events:
                    state = fold(state, event)
                    printer(event, state)
                if printer.broken:
                    raise BrokenPipeError
                if events:
                    continue
                # Asked before the poll: what a process that is gone by then wrote last has been read.
                if how not in _ALIVE:
                    break
                time.sleep(POLL_S)
    except KeyboardInterrupt:
        if not json_lines:
            printer.line(f"\nno longer watching; the run goes on. Come back with `runner watch {run.name}`")
        return how
    if how is not Liveness.FINISHED:
        printer.line("" if json_lines else f"the run is {how}")
    printer.finish(state)
    return how
