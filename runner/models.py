"""The researcher's model during a run: its gateway, what it says and uses as the record and the budget take it."""

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
from runner.research.llm.protocol import Door, Limits, Notice, Price, Totals, Upstream


@dataclass(frozen=True, slots=True)
class Model:
    """A model that is served: its gateway, and how the agent reaches it."""

    gateway: LlmGateway
    access: LlmAccess


@asynccontextmanager
async def serving(run: Run) -> AsyncIterator[Model | None]:
    """The gateway around the research phase; None where the agent has no model. Its file is the account: what a crash
    left open is charged at the start, and the last word of the file is taken at the end."""
    config = run.config
    if config.llm is None or config.agent_model is None:
        yield None
        return
    folder = run.runtime / "llm"
    folder.mkdir(mode=0o700, exist_ok=True)
    door = door_of(config, config.llm, config.agent_model, str(folder / "llm.sock"))

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
        run.budget.account(use, totals.money)

    token = f"worthless-{secrets.token_hex(8)}"
    async with AsyncExitStack() as stack:
        if config.llm.local is not None:
            socket = await stack.enter_async_context(_own_engine(run, config.llm.local))
            door = door.model_copy(update={"upstream": door.upstream.model_copy(update={"socket": str(socket)})})
        gateway = LlmGateway((door,), run.rundir.logs / "llm.jsonl", run.rundir.log("llm"), notice, used)
        await gateway.start()
        stack.push_async_callback(gateway.close)
        yield Model(gateway, LlmAccess(folder, door.upstream.style, config.agent_model, token, config.reasoning_effort))


def _own_engine(run: Run, model: str) -> AbstractAsyncContextManager[Path]:
    """The researcher's model, served on this machine; what its engine says is a warning of the run."""
    folder = run.runtime / "local"
    folder.mkdir(mode=0o700, exist_ok=True)

    def noticed(seen: Noticed) -> None:
        run.journal.append(Warned(what=f"the agent's model: {seen.what}", where="local engine", do=seen.detail))

    env = Path(run.config.model_env)
    log = run.rundir.log("local")
    return local.served(Path(model), env, folder, log, seed=run.config.seed, on_notice=noticed)


def door_of(config: RunConfig, llm: LlmConfig, model: str, socket: str) -> Door:
    """The researcher's door, as the configuration says."""
    return Door(
        role="researcher",
        socket=socket,
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
        limits=Limits(
            tokens=config.budget.tokens, money=config.budget.money, streams=llm.streams, max_output=llm.max_output
        ),
    )
