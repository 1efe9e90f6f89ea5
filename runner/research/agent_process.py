"""The agent as a process: started in the research sandbox, read with caution, resumed a few times, seen to be dead."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from grader.strict import LineReader, StrictError
from isolation.clean import clean_line
from isolation.sandbox import Sandbox
from runner.record.events import AgentEnded, AgentStarted, Integrity
from runner.research.agents.base import AgentContext, AgentLaunch, LlmAccess, ResearchAgent
from runner.research.budget import Budget
from runner.research.lab import Lab
from runner.research.sandbox import box, feed, research_spec
from runner.research.terminal import attend
from runner.research.train import CappedLog
from runner.research.workspace import DiskWatch
from tasks.spec import COMPONENTS

LOG_BYTES = 64 << 20
LINE_BYTES = 1 << 20
TURNS = 20_000  # of a run: what an agent prints costs it nothing, and the journal is read by everything
WORKSPACE_BYTES = 64 << 30
_AT_ONCE_S = 1.0
_LOOK_S = 1.0
_TEXT = 500

Why = Literal["finished", "deadline", "stopped", "exited", "signal", "disk"]


async def until_spent(budget: Budget) -> str:
    """Wait until an axis of the budget is used up; its name."""
    while not (spent := budget.exhausted()):  # noqa: ASYNC110  the clock is not asyncio's: it may be paused
        await asyncio.sleep(min(_LOOK_S, max(0.01, budget.left())))
    return spent


@dataclass(frozen=True, slots=True)
class Ending:
    """How one start of the agent ended, and after how many seconds."""

    why: Why
    code: int | None
    lived_s: float


class AgentProcess:
    """Runs an agent for the research phase: :meth:`run` returns when every process of it is dead."""

    def __init__(
        self,
        lab: Lab,
        agent: ResearchAgent,
        *,
        brief: str,
        sources: Path,
        control: Path,
        llm: LlmAccess | None = None,
        running: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """``running`` names the jobs of the desk that go on; ``llm`` is the agent's way to its model."""
        self._lab = lab
        self._llm = llm
        self._running = running
        self._agent = agent
        self._brief = brief
        self._sources = sources
        self._control = control
        self._turns = lab.journal.state.agent.turns
        self._session = ""
        self._version = ""
        self.stopped = asyncio.Event()  # set it to end the agent: a person asked

    async def run(self, finished: asyncio.Event, *, resumed: bool = False, session: str = "") -> AgentEnded:
        """Run until `vibe finish` (``finished``), the budget's end, a stop, or an end of the agent's own that is not
        resumed. ``resumed``: the run itself goes on after a crash, with ``session`` of the agent."""
        self._session = session
        log_path = self._lab.rundir.log("agent")
        with log_path.open("ab") as file:
            resumes = 0
            while True:
                ending, again = await self._once(file, finished, resumed=resumed or resumes > 0)
                if not again or not self._goes_on(ending, resumes):
                    break
                resumes += 1
                self._lab.journal.append(ended(ending))
        end = ended(ending, final=ending.why != "stopped")
        self._lab.journal.append(end, sync=True)
        return end

    def _goes_on(self, ending: Ending, resumes: int) -> bool:
        """Is an agent that ended by itself started again? Never one that died at once, nor more than N times, nor one
        whose budget is used up."""
        by_itself = ending.why in ("exited", "signal", "disk") and not self._lab.budget.exhausted()
        return by_itself and ending.lived_s >= _AT_ONCE_S and resumes < self._lab.config.agent_resumes

    async def _once(self, file: BinaryIO, finished: asyncio.Event, *, resumed: bool) -> tuple[Ending, bool]:
        """One start, to its end; and whether such an end may be gone on from."""
        launch = self._agent.launch(self._context(resumed))
        self._session = launch.session
        spec = research_spec(self._lab, launch, sources=self._sources, control=self._control, resumed=resumed)
        loop = asyncio.get_running_loop()
        log = CappedLog(file, LOG_BYTES)
        async with box(spec, stdin=True, stderr=asyncio.subprocess.PIPE) as running:
            began = loop.time()
            self._journal_start(launch, resumed)
            assert running.stdin is not None and running.stdout is not None and running.stderr is not None
            helpers = [asyncio.create_task(_drain(running.stderr, log))]
            if launch.terminal:
                helpers.append(asyncio.create_task(attend(running, log)))
            else:
                helpers.append(asyncio.create_task(feed(running.stdin, launch.stdin)))
                helpers.append(asyncio.create_task(self._read(running.stdout, log)))
            try:
                why, code = await self._until(running, finished)
                if code is not None:
                    await asyncio.wait(helpers, timeout=2)
            finally:
                for task in helpers:
                    task.cancel()
                await asyncio.gather(*helpers, return_exceptions=True)
        log.end()
        return Ending(why, code, loop.time() - began), launch.resumes

    async def _until(self, running: Sandbox, finished: asyncio.Event) -> tuple[Why, int | None]:
        """Why it is over: the first of its own end, `vibe finish`, a stop, the budget, a full disk."""
        folders = {name: self._lab.rundir.workspace / name for name in (*COMPONENTS, "notes", "home")}
        waits: dict[Why, asyncio.Task[object]] = {
            "exited": asyncio.ensure_future(running.wait()),
            "finished": asyncio.ensure_future(finished.wait()),
            "stopped": asyncio.ensure_future(self.stopped.wait()),
            "deadline": asyncio.ensure_future(until_spent(self._lab.budget)),
            "disk": asyncio.ensure_future(DiskWatch(self._lab, folders, WORKSPACE_BYTES).trouble()),
        }
        try:
            await asyncio.wait(waits.values(), return_when=asyncio.FIRST_COMPLETED)
            order: tuple[Why, ...] = ("finished", "deadline", "stopped", "exited", "disk")
            why = next(name for name in order if waits[name].done())
            waits[why].result()
            code = waits["exited"].result() if waits["exited"].done() else None
            assert code is None or isinstance(code, int)
            died = why == "exited" and code is not None and (code < 0 or code > 128)
            return ("signal" if died else why), code
        finally:
            for task in waits.values():
                task.cancel()
            await asyncio.gather(*waits.values(), return_exceptions=True)

    async def _read(self, stream: asyncio.StreamReader, log: CappedLog) -> None:
        """The agent's stdout: every line to the log, what its reader understands to the journal, as a claim."""
        lines = LineReader(stream, LINE_BYTES)
        try:
            while (line := await lines.line()) is not None:
                log.write(line + b"\n")
                self._claim(line)
        except StrictError:
            self._lab.journal.append(Integrity(what="agent output", where="stdout", detail="a line longer than 1 MiB"))
            await _drain(stream, log)

    def _claim(self, line: bytes) -> None:
        turn = self._agent.turns(line.decode("utf-8", "replace"))
        if turn is None or self._turns > TURNS:
            return
        self._turns += 1
        if self._turns > TURNS:
            detail = f"more than {TURNS} turns: its log keeps the others"
            self._lab.journal.append(Integrity(what="agent output", where="stdout", detail=detail))
            return
        session = turn.session if not self._session else ""  # a later one may be a child's forgery
        self._session = self._session or session
        words = {"summary": clean_line(turn.summary, _TEXT), "tool": clean_line(turn.tool, 80)}
        safe = {"n": self._turns, "session": session, **words}
        self._lab.journal.append(turn.model_copy(update=safe))

    def _context(self, resumed: bool) -> AgentContext:
        budget = self._lab.budget
        return AgentContext(
            brief=self._brief,
            python=str(self._lab.python),
            runtime=self._lab.runtime,
            left_s=budget.left(),
            deadline=budget.deadline,
            resumed=resumed,
            session=self._session if resumed else "",
            llm=self._llm,
            running=tuple(self._running()) if resumed else (),
        )

    def _journal_start(self, launch: AgentLaunch, resumed: bool) -> None:
        self._lab.journal.append(
            AgentStarted(
                agent=self._agent.name,
                argv=launch.argv,
                version=launch.version,
                session=launch.session,
                resumed=resumed,
            ),
            sync=True,
        )


async def _drain(stream: asyncio.StreamReader, log: CappedLog) -> None:
    while chunk := await stream.read(65536):
        log.write(chunk)


def ended(ending: Ending, *, final: bool = False) -> AgentEnded:
    """An ending as the journal says it. ``final``: no start follows."""
    code = ending.code
    number = None if code is None else (-code if code < 0 else code - 128 if code > 128 else None)
    known = number if number in {int(one) for one in signal.Signals} else None
    reason = "crashed" if ending.why == "disk" else ending.why
    return AgentEnded(reason=reason, exit_code=code, signal=known, final=final)
