"""The researcher's model during a run: its gateway, what it says and uses as the record and the budget take it."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from isolation.clean import clean_line
from runner.config import LlmConfig, RunConfig
from runner.opening import Run
from runner.record.events import Integrity, LlmUse, Warned
from runner.research.agents.base import LlmAccess
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

    gateway = LlmGateway((door,), run.rundir.logs / "llm.jsonl", run.rundir.log("llm"), notice, used)
    await gateway.start()
    token = f"worthless-{secrets.token_hex(8)}"
    try:
        yield Model(gateway, LlmAccess(folder, door.upstream.style, config.agent_model, token, config.reasoning_effort))
    finally:
        await gateway.close()


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
