"""The whole run, top to bottom: initialise → co-design → select → hidden test → report.

Every step looks at the journal's state first and does only what is still owed, so that a resumed run is the same code.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from pathlib import Path

from grader.errors import GraderError
from grader.ledger import Ledger
from grader.protocol import HiddenResult, HiddenTest, Progress
from isolation.problem import BenchError
from runner import models
from runner import resume as resuming
from runner.config import RunConfig
from runner.errors import BudgetError, NoScore, RunStopped, exit_code
from runner.opening import Run, budget_of, opened, printer, start_event
from runner.record.events import (
    AgentEnded,
    HiddenClaimed,
    HiddenFinished,
    HiddenProgress,
    HumanAction,
    PhaseChanged,
    RunFinished,
    Selected,
)
from runner.record.journal import Journal, JournalError
from runner.record.rundir import RunDir
from runner.report.publish import front_page, publish_or_less
from runner.research import contamination, workspace
from runner.research.agent_process import AgentProcess
from runner.research.agents import make_agent
from runner.research.budget import Budget
from runner.research.candidate import INITIAL, Candidate, create_initial
from runner.research.desk import Desk
from runner.research.validate import ValidationService
from runner.research.workspace import materialised
from tasks.aime.layout import brief

_TICK_S = 5.0
_LOOK_S = 0.5


async def conduct(run: Run) -> None:
    """A run that is open, to its end. Raises NoScore or what broke; what broke can be resumed."""
    await baseline(run)
    if resuming.owes_research(run.journal.state):
        await co_design(run)
    elif resuming.owes_closing(run.journal.state):
        await close_research(run)
    chosen = select(run)
    await hidden_test(run, chosen)
    run.journal.append(PhaseChanged(phase="reporting"))
    run.journal.append(RunFinished(status="ok"), sync=True)
    publish_or_less(run.rundir, run.journal.state)


async def baseline(run: Run) -> None:
    """P0 = c00 = (m00, H0), evaluated on validation. Its time is not the agent's."""
    known = run.registry.candidates.get(INITIAL)
    if known is not None:
        run.lab.initial = dict(known.snapshots)
    else:
        await workspace.snapshot_initial(run.lab)
    initial = await create_initial(run.lab, run.registry)
    if not initial.usable:
        run.journal.append(PhaseChanged(phase="baseline"))
        await evaluate(run, initial, "j000", resuming.open_evaluation(run.journal.state, INITIAL))
    seconds = _validation_seconds(run)
    if run.config.budget.wall_s < seconds:
        raise BudgetError(
            f"{run.config.budget.wall_s:.0f} s is shorter than one validation of the initial system ({seconds:.0f} s)",
            where="--budget",
            do=f"Give at least {max(60, 20 * seconds):.0f}s",
        )


async def co_design(run: Run) -> AgentEnded:
    """The research phase: the agent edits, trains and validates until it finishes or the budget ends."""
    run.journal.append(PhaseChanged(phase="research"), sync=True)
    control = run.runtime / "control"
    control.mkdir(mode=0o700, exist_ok=True)
    researcher = make_agent(run.config, (run.rundir.path,))
    desk = Desk(run.lab, run.registry)
    async with models.serving(run) as llm, _ticking(run, llm):
        run.lab.teacher = llm.teacher if llm else None
        run.budget.start()
        await _settle_interrupted(run)
        text = workspace.write_brief(
            run.lab, brief(run.config.problems), seconds_per_validation=_validation_seconds(run)
        )
        await desk.serve(control)
        agent = AgentProcess(
            run.lab,
            researcher,
            brief=text,
            sources=run.rundir.sources,
            control=control,
            llm=llm.access if llm else None,
            running=lambda: [f"{job.id} {job.verb} {job.state}" for job in desk.jobs.active],
        )
        session = run.journal.state.agent.session
        try:
            end = await agent.run(desk.finished, resumed=run.journal.state.agent.starts > 0, session=session)
        finally:
            await desk.close(deadline=bool(run.budget.exhausted()))
    run.budget.pause()
    run.journal.append(run.budget.tick(), sync=True)
    return end


async def close_research(run: Run) -> None:
    """What the end of the research phase still owes when the runner died between the agent's end and its own: the ends
    of the jobs that were left, the account of the models, the last word of the budget."""
    for event in resuming.lost_jobs(run.journal.state, run.lab.samples):
        run.journal.append(event, sync=True)
    await models.settle(run)
    run.journal.append(run.budget.tick(), sync=True)


def select(run: Run) -> Candidate:
    """The agent's last selection, else the policy's; final from here on. Raises NoScore where nothing is selected."""
    state = run.journal.state
    if state.selected is not None and state.selected.final:
        return run.registry.candidates[state.selected.candidate]
    run.journal.append(PhaseChanged(phase="selecting"), sync=True)
    policy = run.config.selection_policy
    if state.selected is not None:
        event = Selected(candidate=state.selected.candidate, by="agent", final=True)
    elif policy == "best_validated" and (best := run.registry.best()) is not None:
        event = Selected(candidate=best.id, by="policy", policy=policy, final=True)
    else:
        reason = "the agent selected nothing and the policy is none"
        run.journal.append(RunFinished(status="no_score", reason=reason), sync=True)
        publish_or_less(run.rundir, run.journal.state)
        raise NoScore(reason, where=run.rundir.name, do="An agent selects with `vibe select`")
    run.journal.append(event, sync=True)
    return run.registry.candidates[event.candidate]


async def hidden_test(run: Run, chosen: Candidate) -> None:
    """The one hidden test, of P* and P0. The ledger's claim decides, whatever the journal says."""
    if run.journal.state.hidden is not None:
        return
    run.journal.append(PhaseChanged(phase="hidden_test"), sync=True)
    claimed = Ledger(run.rundir.sealed).claimed()
    if claimed is not None and claimed != chosen.id:
        raise GraderError(
            f"the ledger holds a claim for {claimed}, the journal selected {chosen.id}",
            where=str(run.rundir.sealed),
            do="The record was changed; start a new run",
        )
    run.journal.append(HiddenClaimed(candidate=chosen.id), sync=True)
    result = await _ask_hidden(run, chosen)
    contamination.record_hidden(run.lab, result.overlap)
    run.journal.append(
        HiddenFinished(
            candidate=chosen.id,
            initial=result.initial.score,
            selected=result.selected.score,
            delta=result.delta,
            status=result.status,
            overlap=result.overlap.status,
        ),
        sync=True,
    )


async def _ask_hidden(run: Run, chosen: Candidate) -> HiddenResult:
    initial = run.registry.candidates[INITIAL]
    request = HiddenTest(
        id="hidden",
        run=run.rundir.name,
        candidate=chosen.id,
        model=run.registry.ref(chosen.model),
        harness_dir=str(await materialised(run.lab, chosen.snapshots["harness"])),
        initial_harness_dir=str(await materialised(run.lab, initial.snapshots["harness"])),
        sealed_dir=str(run.rundir.sealed),
        lineage=await contamination.lineage(run.lab, run.registry, chosen),
        known=await contamination.known(run.lab),
    )
    loop = asyncio.get_running_loop()
    last = -1.0

    def progress(seen: Progress) -> None:
        nonlocal last
        if loop.time() - last >= 1.0 or seen.done == seen.total:
            last = loop.time()
            run.journal.append(HiddenProgress(done=seen.done, total=seen.total, note=seen.note))

    async with run.lab.lease.hold("grading", "hidden"):
        reply = await run.grader.call(request, progress)
    if not reply.ok:
        raise GraderError(reply.error or "the hidden test broke", where="hidden test", do="`runner resume` goes on")
    return HiddenResult.model_validate(reply.result)


# -- what the steps share --------------------------------------------------------------------------------------------


async def evaluate(run: Run, candidate: Candidate, job: str, evaluation: str | None = None) -> None:
    """Evaluate a candidate on validation, outside the desk; ``evaluation`` names one to go on with."""
    async with run.lab.lease.hold("grading", job):
        await ValidationService(run.lab, run.registry).run(
            candidate,
            job,
            late=lambda: bool(run.budget.exhausted()),
            on_progress=lambda _: None,
            why_cancelled=lambda: "cut",
            evaluation=evaluation,
        )


def _validation_seconds(run: Run) -> float:
    return run.journal.state.candidates[INITIAL].seconds


async def _settle_interrupted(run: Run) -> None:
    """After a crash: a training is lost, a validation goes on from its committed waves."""
    for event in resuming.lost_jobs(run.journal.state, run.lab.samples):
        run.journal.append(event, sync=True)
    owed = resuming.owed_validation(run.journal.state)
    if owed is not None and owed.candidate in run.registry.candidates:
        run.budget.switch("grade")
        try:
            await evaluate(run, run.registry.candidates[owed.candidate], owed.id, owed.eval)
        finally:
            run.budget.switch("think")


@contextlib.asynccontextmanager
async def _ticking(run: Run, llm: models.Model | None) -> AsyncIterator[None]:
    """Journal the budget every few seconds while the block runs; the model's gateway hears what the rest has cost."""

    async def tick() -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            run.budget.slept()
            if llm is not None:
                llm.gateway.elsewhere(run.budget.accelerator_money())
            with contextlib.suppress(JournalError):  # a full disk: the next event that matters ends the run
                run.journal.append(run.budget.tick())

    ticking = asyncio.create_task(tick())
    try:
        yield
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)


# -- starting and stopping -------------------------------------------------------------------------------------------


async def start(config: RunConfig, runs: Path, *, wait: bool, as_json: bool) -> int:
    """A new run in a new folder below ``runs``; returns the exit code."""
    rundir = RunDir.create(runs, config.task, datetime.now())
    rundir.write_config(config.to_toml(), config.digest())
    lock = rundir.acquire()
    budget = budget_of(config)
    journal = Journal.create(rundir.journal_file, budget.el)
    out = printer(config, as_json)
    journal.subscribe(out)
    try:
        journal.append(start_event(config, rundir), sync=True)
        return await _to_the_end(config, rundir, journal, budget, wait=wait, resumed=False, finish=out.finish)
    finally:
        journal.close()
        lock.release()


async def resume(config: RunConfig, rundir: RunDir, *, wait: bool, as_json: bool) -> int:
    """Go on with ``rundir``; returns the exit code. A finished run only has its report written again."""
    lock = rundir.acquire()
    budget = budget_of(config)
    journal = Journal.reopen(rundir.journal_file, budget.el)
    out = printer(config, as_json)
    journal.subscribe(out)
    try:
        finished = journal.state.finished
        if finished is not None and finished.status in ("ok", "no_score"):
            publish_or_less(rundir, journal.state)
            out.finish(journal.state, front_page(rundir))
            return 0
        resuming.take_up(journal, budget)
        rundir.clear_requests()
        return await _to_the_end(config, rundir, journal, budget, wait=wait, resumed=True, finish=out.finish)
    finally:
        journal.close()
        lock.release()


async def _to_the_end(
    config: RunConfig,
    rundir: RunDir,
    journal: Journal,
    budget: Budget,
    *,
    wait: bool,
    resumed: bool,
    finish: Callable[..., None],
) -> int:
    async def whole() -> None:
        async with opened(config, rundir, journal, budget, wait=wait, resumed=resumed) as run:
            await conduct(run)

    try:
        await _until_stopped(whole, rundir, journal)
    except RunStopped:
        raise
    except BenchError as error:
        if exit_code(error) and journal.state.finished is None:
            journal.append(RunFinished(status="failed", reason=str(error)), sync=True)
        finish(journal.state)
        raise
    finish(journal.state, front_page(rundir))
    return 0


async def _until_stopped(whole: Callable[[], Awaitable[None]], rundir: RunDir, journal: Journal) -> None:
    """Run ``whole``; a first SIGINT, SIGTERM, SIGHUP or `runner stop` ends it cleanly, a second kills."""
    loop = asyncio.get_running_loop()
    work = asyncio.ensure_future(whole())
    asked = asyncio.Event()

    def signalled() -> None:
        if asked.is_set():
            # Everything below us dies with us: sandboxes by --die-with-parent, the grader by its stdin.
            os._exit(130)
        asked.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, signalled)

    async def request() -> None:
        while not rundir.stop_requested():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await asked.wait()
                return

    asking = asyncio.ensure_future(request())
    try:
        await asyncio.wait({work, asking}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            journal.append(HumanAction(action="stop"), sync=True)
            work.cancel()
            await asyncio.wait({work})
        if work.cancelled():
            journal.append(RunFinished(status="stopped", reason="a person asked"), sync=True)
            rundir.clear_requests()
            raise RunStopped("stopped", where=rundir.name, do=f"`runner resume {rundir.name}` goes on")
        work.result()
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)
