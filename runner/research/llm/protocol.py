"""What the runner and the LLM gateway say to each other, and the rows of llm.jsonl. Lines of JSON, all ours.

The gateway is a process of its own: the runner writes :class:`Setup` and then :class:`Elsewhere` lines to its stdin and
reads :data:`Said` lines from its stdout. Its end of input is its order to close.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from tasks.spec import Frozen

Role = Literal["researcher", "teacher", "user_simulator", "judge"]
Style = Literal["anthropic", "openai"]
Api = Literal["messages", "count_tokens", "responses", "chat"]
APIS: dict[Style, tuple[Api, ...]] = {"anthropic": ("messages", "count_tokens"), "openai": ("responses", "chat")}


class Price(Frozen):
    """Money per million tokens; ``None`` is unknown, never free. ``source`` and ``date`` say where it was read."""

    input: Annotated[float, Field(ge=0)] | None = None
    cached: Annotated[float, Field(ge=0)] | None = None
    cache_write: Annotated[float, Field(ge=0)] | None = None
    output: Annotated[float, Field(ge=0)] | None = None
    source: str = ""
    date: str = ""

    def known(self) -> bool:
        """Can every call be priced?"""
        return None not in (self.input, self.cached, self.cache_write, self.output)


class Tokens(Frozen):
    """What a call used. ``input`` is what was neither read from nor written to a cache; ``output`` holds reasoning."""

    input: int = 0
    cached: int = 0
    cache_write: int = 0
    output: int = 0


class Upstream(Frozen):
    """Where requests of a role go: one fixed address. The key's value is never here, only where it is read from.

    ``socket``: a unix socket on which it listens, in place of the address.
    """

    style: Style
    base_url: str
    socket: str | None = None
    key_env: str | None = None
    key_file: str | None = None
    tries: Annotated[int, Field(ge=1)] = 8
    first_byte_s: Annotated[float, Field(gt=0)] = 900.0
    idle_s: Annotated[float, Field(gt=0)] = 7200.0
    drain_s: Annotated[float, Field(ge=0)] = 120.0


class Limits(Frozen):
    """What a role may use; ``None`` is no limit. ``max_output``: the most tokens of one reply while a limit holds.

    ``calls``: after so many nothing is forwarded; each is two rows of llm.jsonl, whoever wants them. ``stuck_s``: a
    client that takes nothing of its reply for so long is hung up on.
    """

    tokens: int | None = None
    money: float | None = None
    streams: Annotated[int, Field(ge=1)] = 8
    max_output: Annotated[int, Field(ge=16)] = 64_000
    calls: Annotated[int, Field(ge=1)] = 200_000
    stuck_s: Annotated[float, Field(gt=0)] = 300.0


class Door(Frozen):
    """One socket: who may ask what of whom, up to which limits."""

    role: Role
    socket: str
    models: tuple[str, ...]
    upstream: Upstream
    price: Price = Price()
    limits: Limits = Limits()


class Setup(Frozen):
    """The first line to the gateway. ``log`` is llm.jsonl, ``elsewhere`` as in :class:`Elsewhere`, so far."""

    kind: Literal["setup"] = "setup"
    doors: tuple[Door, ...]
    log: str
    elsewhere: float = 0.0


class Elsewhere(Frozen):
    """Money that the run has spent elsewhere (accelerator hours): it counts towards every limit on money."""

    kind: Literal["elsewhere"] = "elsewhere"
    money: float


class Begun(Frozen):
    """A row of llm.jsonl, fsynced before the request is forwarded. ``input`` is an estimate from the bytes."""

    kind: Literal["begun"] = "begun"
    call: int
    t: float
    role: Role
    api: Api
    model: str
    input: int
    max_output: int | None


class Seen(Frozen):
    """A row of llm.jsonl while a reply streams: what it would be charged if this process died now."""

    kind: Literal["seen"] = "seen"
    call: int
    tokens: Tokens


class Ended(Frozen):
    """A row of llm.jsonl, fsynced before the reply's last event is passed on.

    ``estimated``: not the upstream's own figures. ``failed`` never had a reply. ``crashed``: the gateway died.
    """

    kind: Literal["ended"] = "ended"
    call: int
    role: Role
    status: Literal["ok", "cut", "failed", "crashed"]
    tokens: Tokens
    estimated: bool
    money: float | None
    seconds: float


Row = Begun | Seen | Ended
ROW: TypeAdapter[Row] = TypeAdapter(Annotated[Row, Field(discriminator="kind")])


class Ready(Frozen):
    """The sockets are there."""

    kind: Literal["ready"] = "ready"


class Notice(Frozen):
    """``integrity``: an attempt of the sandbox; ``warning``: trouble with the upstream."""

    kind: Literal["notice"] = "notice"
    level: Literal["integrity", "warning"]
    what: str
    where: str
    detail: str = ""


class Totals(Frozen):
    """All that llm.jsonl holds of a role, so far. ``money`` None: no call yet, or an unknown price."""

    kind: Literal["totals"] = "totals"
    role: Role
    calls: int = 0
    refused: int = 0
    estimated: int = 0
    tokens: Tokens = Tokens()
    money: float | None = None


class Failed(Frozen):
    """The gateway cannot start: one line for a person."""

    kind: Literal["failed"] = "failed"
    what: str
    where: str
    do: str


Said = Ready | Notice | Totals | Failed
SAID: TypeAdapter[Said] = TypeAdapter(Annotated[Said, Field(discriminator="kind")])
