"""report.json: the run in numbers, with stable keys; and the files of the report, written whole or not at all.

:func:`write_report` needs nothing but the standard environment; page and figures are :mod:`runner.report.publish`.
"""

from __future__ import annotations

from isolation.files import write_atomic
from runner.record.describe import foreign
from runner.record.events import Integrity, RunStarted
from runner.record.files import (
    Report,
    ReportAttempt,
    ReportBudget,
    ReportCandidate,
    ReportHidden,
    ReportIsolation,
    ReportOfficial,
    ReportValidation,
)
from runner.record.journal import JournalError
from runner.record.naming import names
from runner.record.rundir import RunDir
from runner.record.state import CandidateState, RunState, chosen, integrity, validation_of
from runner.report.markdown import markdown
from runner.report.story import tell


def build(state: RunState) -> Report:
    """The report of a run, finished or not. Foreign text in it is clean. Raises JournalError before run_started."""
    run = state.run
    if run is None:
        raise JournalError("the run has not started", do="wait, or look at logs/runner.log")
    hidden = state.hidden
    return Report(
        run=foreign(run.run),
        task=foreign(run.task),
        problems=foreign(run.problems),
        model=foreign(run.model),
        agent=foreign(run.agent),
        scope=run.scope,
        seed=run.seed,
        isolation=ReportIsolation(weak=_clean(state.weak), allowed=_clean(state.allowed)),
        validation=ReportValidation(
            initial=state.initial,
            selected=validation_of(state, chosen(state)),
            best=state.best.validation if state.best else None,
        ),
        hidden=ReportHidden(
            initial=hidden.initial if hidden else None,
            selected=hidden.selected if hidden else None,
            delta=hidden.delta if hidden else None,
        ),
        candidates=tuple(_candidate(item) for item in state.candidates.values()),
        budget=ReportBudget(
            wall_s=state.budget.wall_s,
            split=state.budget.split,
            tokens=state.budget.tokens,
            money=state.budget.money,
        ),
        protocol=foreign(run.protocol, 40),
        official=_official(state, run) if names(state).counts_trainings else None,
        selected_by=state.selected.by if state.selected else None,
        integrity=tuple(_noticed(seen.what) for seen in integrity(state) if isinstance(seen.what, Integrity)),
    )


def _official(state: RunState, run: RunStarted) -> ReportOfficial:
    made = (
        ReportAttempt(
            n=one.n,
            job=foreign(one.job, 20),
            candidate=None if one.candidate is None else foreign(one.candidate, 20),
            valid=one.valid,
            why=foreign(one.why, 600),
        )
        for one in state.trials.attempts
    )
    return ReportOfficial(
        seed=run.official_seed,
        is_selection_set=names(state).same,
        attempts=tuple(made),
        recipe_fields=_clean(run.recipe_fields),
    )


def _clean(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(foreign(word) for word in words)


def _candidate(candidate: CandidateState) -> ReportCandidate:
    """A late score stands beside the status ``late`` and counts nowhere else."""
    return ReportCandidate(
        id=foreign(candidate.id),
        parent=foreign(candidate.parent) if candidate.parent is not None else None,
        components=candidate.components,
        model=foreign(candidate.model),
        hypothesis=foreign(candidate.hypothesis, 500),
        validation=candidate.validation or candidate.late,
        status=candidate.status,
    )


def _noticed(said: Integrity) -> Integrity:
    return Integrity(what=foreign(said.what), where=foreign(said.where, 200), detail=foreign(said.detail, 500))


def write_report(run: RunDir, state: RunState) -> Report:
    """Write report/report.json and report/report.md, each atomically, and return the report."""
    report = build(state)
    try:
        run.report.mkdir(exist_ok=True)
        write_atomic(run.report / "report.json", (report.model_dump_json(indent=2) + "\n").encode())
        write_atomic(run.report / "report.md", markdown(state, tell(run, state)).encode())
    except OSError as error:
        raise unwritten(run, error) from error
    return report


def unwritten(run: RunDir, error: OSError) -> JournalError:
    """The one line for a report that could not be written."""
    do = "free disk space, then write it again with `runner report`"
    return JournalError((error.strerror or "cannot be written").lower(), where=str(run.report), do=do)
