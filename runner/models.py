"""The models that a run asks (the researcher's, a teacher): their gateway, and what they used, for the record."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from grader.protocol import Noticed
from isolation.clean import clean_line
from runner.config import LlmConfig, RunConfig
from runner.opening import Run
from runner.record.events import Integrity, LlmUse, Warned
from runner.research.agents.base import LlmAccess
from runner.research.llm import local
from runner.research.llm.client import LlmGateway
from runner.research.llm.protocol import Door, Limits, Notice, Price, Role, Totals, Upstream
from runner.research.teacher import Teacher


@dataclass(frozen=True, slots=True)
class Model:
    """Models that are served: their gateway, how the agent reaches its own, and the desk's way to the teacher."""

    gateway: LlmGateway
    access: LlmAccess | None
    teacher: Teacher | None


@asynccontextmanager
async def serving(run: Run) -> AsyncIterator[Model | None]:
    """The gateway around the research phase; None where no model is asked. Its file is the account: what a crash
    left open is charged at the start, and the last word of the file is taken at the end."""
    config = run.config
    doors = doors_of(config, run.runtime)
    if not doors:
        yield None
        return
    async with AsyncExitStack() as stack:
        for door in doors.values():
            Path(door.socket).parent.mkdir(mode=0o700, exist_ok=True)
        doors = await _with_own_engines(run, doors, stack)
        gateway = _gateway(run, doors)
        gateway.elsewhere(run.budget.accelerator_money())
        await gateway.start()
        stack.push_async_callback(gateway.close)
        yield Model(gateway, _access(config, doors.get("researcher")), _teacher(doors.get("teacher")))


async def settle(run: Run) -> None:
    """Charge what a crash left open in the account, where nothing more will be asked: no gateway is started."""
    doors = doors_of(run.config, run.runtime)
    if doors:
        await _gateway(run, doors).close()


def _gateway(run: Run, doors: dict[Role, Door]) -> LlmGateway:
    """The gateway of ``doors``, not started; what it notices and what is used goes into the journal."""

    def notice(said: Notice) -> None:
        detail = clean_line(said.detail, 300)
        if said.level == "integrity":
            run.journal.append(Integrity(what=said.what, where=said.where, detail=detail))
        else:
            run.journal.append(Warned(what=f"{said.what}: {detail}" if detail else said.what, where=said.where))

    def used(totals: Totals) -> None:
        use = LlmUse(
            calls=totals.calls, refused=totals.refused, estimated=totals.estimated, **totals.tokens.model_dump()
        )
        run.budget.account(use, totals.money, totals.role)

    return LlmGateway(tuple(doors.values()), run.rundir.logs / "llm.jsonl", run.rundir.log("llm"), notice, used)


async def _with_own_engines(run: Run, doors: dict[Role, Door], stack: AsyncExitStack) -> dict[Role, Door]:
    """The doors, those of models that this program serves itself led to their engines: one engine a model."""
    wanted: dict[Role, LlmConfig | None] = {"researcher": run.config.llm, "teacher": run.config.teacher}
    sockets: dict[str, Path] = {}
    led = dict(doors)
    for role, door in doors.items():
        config = wanted.get(role)
        if config is None or config.local is None:
            continue
        if config.local not in sockets:
            engine = _own_engine(run, config.local, len(sockets))
            sockets[config.local] = await stack.enter_async_context(engine)
        upstream = door.upstream.model_copy(update={"socket": str(sockets[config.local])})
        led[role] = door.model_copy(update={"upstream": upstream})
    return led


def _own_engine(run: Run, model: str, number: int) -> AbstractAsyncContextManager[Path]:
    """A model of the agent's or the teacher's, served on this machine; what its engine says is a warning of the run."""
    folder = run.runtime / f"local{number}"
    folder.mkdir(mode=0o700, exist_ok=True)

    def noticed(seen: Noticed) -> None:
        run.journal.append(Warned(what=f"a model on this machine: {seen.what}", where="local engine", do=seen.detail))

    env = Path(run.config.model_env)
    log = run.rundir.log(f"local{number}")
    share = run.lab.memory.beside[model]
    return local.served(Path(model), env, folder, log, share=share, seed=run.config.seed, on_notice=noticed)


def _access(config: RunConfig, door: Door | None) -> LlmAccess | None:
    if door is None:
        return None
    token = f"worthless-{secrets.token_hex(8)}"
    folder = Path(door.socket).parent
    return LlmAccess(folder, door.upstream.style, door.models[0], token, config.reasoning_effort)


def _teacher(door: Door | None) -> Teacher | None:
    return None if door is None else Teacher(Path(door.socket), door.models[0], door.upstream.style, door.limits)


def doors_of(config: RunConfig, runtime: Path) -> dict[Role, Door]:
    """The doors that the configuration asks for. Each socket has a folder of its own: the researcher's is mounted into
    the agent's sandbox, the teacher's into none."""
    doors: dict[Role, Door] = {}
    budget = config.budget
    if config.llm is not None and config.agent_model is not None:
        limits = (budget.tokens, budget.money)
        doors["researcher"] = _door("researcher", config.llm, config.agent_model, runtime / "llm", *limits)
    if config.teacher is not None and config.teacher_model is not None:
        limits = (None, budget.money)
        doors["teacher"] = _door("teacher", config.teacher, config.teacher_model, runtime / "teacher", *limits)
    return doors


def _door(role: Role, llm: LlmConfig, model: str, folder: Path, tokens: int | None, money: float | None) -> Door:
    """A role's door, as the configuration says."""
    return Door(
        role=role,
        socket=str(folder / "llm.sock"),
        models=(model,),
        upstream=Upstream(
            style=llm.style,
            base_url=llm.base_url,
            key_env=llm.key_env,
            key_file=llm.key_file,
            tries=llm.tries,
            first_byte_s=llm.first_byte_s,
            idle_s=llm.idle_s,
        ),
        price=llm.prices.get(model, Price()),
        limits=Limits(tokens=tokens, money=money, streams=llm.streams, max_output=llm.max_output),
    )
