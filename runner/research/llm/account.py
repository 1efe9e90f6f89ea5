"""The account of the LLM gateway: llm.jsonl, what it sums to, and what may still be used.

The file is the truth: a call is written down before it is forwarded and again before its last event is passed on, each
time to the disk. A call that has no end when the file is opened was cut by a crash and is charged what it had passed.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from grader.request import Refused
from isolation.files import write_all
from runner.research.llm.protocol import ROW, Api, Begun, Door, Ended, Price, Role, Row, Seen, Tokens, Totals

SEEN_EVERY = 2000  # generated tokens between two rows of a streaming reply
MINIMUM = 16  # no API takes a smaller limit on a reply
ENOUGH = 4096  # a reply is not cut below this for what others may use: its call waits for them


def cost(tokens: Tokens, price: Price) -> float | None:
    """Money for ``tokens``; None where a price that is needed is unknown."""
    pairs = (
        (tokens.input, price.input),
        (tokens.cached, price.cached),
        (tokens.cache_write, price.cache_write),
        (tokens.output, price.output),
    )
    total = 0.0
    for count, each in pairs:
        if count and each is None:
            return None
        total += count * (each or 0.0) / 1e6
    return total


def add(one: Tokens, other: Tokens) -> Tokens:
    """Both together."""
    names = Tokens.model_fields
    return Tokens(**{name: getattr(one, name) + getattr(other, name) for name in names})


def rows(path: Path) -> Iterator[Row]:
    """The rows of llm.jsonl; a torn or foreign line is passed over."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            with contextlib.suppress(ValidationError):
                yield ROW.validate_json(line)


def totals(path: Path) -> dict[Role, Totals]:
    """What each role used by the file at ``path``. Each call counts once, whatever the file says twice."""
    found: dict[Role, Totals] = {}
    ended: set[int] = set()
    for row in rows(path):
        if isinstance(row, Ended) and row.call not in ended:
            ended.add(row.call)
            found[row.role] = _with(found.get(row.role, Totals(role=row.role)), row)
    return found


def _with(before: Totals, row: Ended) -> Totals:
    first = before.calls == 0
    known = row.money is not None and (first or before.money is not None)
    return before.model_copy(
        update={
            "calls": before.calls + 1,
            "estimated": before.estimated + row.estimated,
            "tokens": add(before.tokens, row.tokens),
            "money": (before.money or 0.0) + (row.money or 0.0) if known else None,
        }
    )


class Book:
    """The open llm.jsonl. One writer; opening it settles what a crash left open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: dict[int, tuple[Begun, Tokens]] = {}
        self._last = 0
        self._torn = False
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)  # a predecessor that is still closing writes its ends first
        for row in rows(path):
            self._last = max(self._last, row.call)
            self._follow(row)
        self._mend()

    def settle(self, price_of: Callable[[Begun], Price]) -> int:
        """Charge the calls that a crash cut; how many there were."""
        left = list(self._open.values())
        for begun, seen in left:
            self._end(begun, "crashed", seen, estimated=True, money=cost(seen, price_of(begun)), seconds=0.0)
        return len(left)

    def begin(self, role: Role, api: Api, model: str, estimate: int, max_output: int | None) -> Begun:
        """Write down, on the disk, that a request is about to be forwarded."""
        self._last += 1
        row = Begun(
            call=self._last, t=time.time(), role=role, api=api, model=model, input=estimate, max_output=max_output
        )
        self._write(row, sync=True)
        return row

    def seen(self, begun: Begun, tokens: Tokens) -> None:
        """Write down what a streaming reply would be charged now; the kernel has it, the disk perhaps not yet."""
        self._write(Seen(call=begun.call, tokens=tokens), sync=False)

    def end(self, begun: Begun, status: str, tokens: Tokens, *, estimated: bool, money: float | None) -> Ended:
        """Write down, on the disk, what a call used."""
        seconds = round(max(0.0, time.time() - begun.t), 3)
        return self._end(begun, status, tokens, estimated=estimated, money=money, seconds=seconds)

    def close(self) -> None:
        os.close(self._file)

    def _end(
        self, begun: Begun, status: str, tokens: Tokens, *, estimated: bool, money: float | None, seconds: float
    ) -> Ended:
        row = Ended.model_validate(
            {
                "call": begun.call,
                "role": begun.role,
                "status": status,
                "tokens": tokens,
                "estimated": estimated,
                "money": money,
                "seconds": seconds,
            }
        )
        self._write(row, sync=True)
        return row

    def _write(self, row: Row, *, sync: bool) -> None:
        line = b"\n" * self._torn + row.model_dump_json().encode() + b"\n"
        self._torn = (
            True  # until it is whole: a full disk may take a part of it, and the next must not be glued to that
        )
        write_all(self._file, line)
        self._torn = False
        self._follow(row)
        if sync:
            os.fsync(self._file)

    def _follow(self, row: Row) -> None:
        if isinstance(row, Begun):
            self._open[row.call] = (row, Tokens(input=row.input))
        elif isinstance(row, Seen) and row.call in self._open:
            self._open[row.call] = (self._open[row.call][0], row.tokens)
        elif isinstance(row, Ended):
            self._open.pop(row.call, None)

    def _mend(self) -> None:
        """End a line that a crash tore, so that the next one stands alone."""
        with self._path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    os.write(self._file, b"\n")


@dataclass(slots=True)
class Call:
    """A call that was let through: its row, and the limit its reply got (None: none)."""

    begun: Begun
    max_output: int | None
    reserved_tokens: int
    reserved_money: float


class Account:
    """What one role has used and may still use. A call reserves the most it can cost, so that many at once, of all
    roles together, overshoot no more than one. What is reserved is not spent: a call that does not fit beside the
    others waits for them; only what is spent refuses one."""

    def __init__(self, door: Door, book: Book, before: Totals | None, told: Callable[[Totals], None]) -> None:
        self._door = door
        self._book = book
        self._told = told
        self._open: dict[int, Call] = {}
        self._changed = asyncio.Condition()
        self.totals = before or Totals(role=door.role)
        self.elsewhere = 0.0
        self.peers: tuple[Account, ...] = ()  # the other roles: one limit on money holds for all together

    async def begin(self, api: Api, model: str, estimate: int, asked: int | None) -> Call:
        """Let a call through when it fits. Raises Refused (429) once a limit is reached."""
        async with self._changed:
            while True:
                self._check()
                fits = self._fit(estimate, asked, beside=True)
                if len(self._open) < self._door.limits.streams and self._goes(fits, estimate, asked):
                    break
                await self._changed.wait()
            limit = None if fits is None else max(MINIMUM, fits)
            free = api == "count_tokens"
            call = Call(
                self._book.begin(self._door.role, api, model, 0 if free else estimate, limit),
                limit,
                0 if free else limit or 0,
                0.0 if free else cost(Tokens(input=estimate, output=limit or 0), self._door.price) or 0.0,
            )
            self._open[call.begun.call] = call
            return call

    def end(self, call: Call, status: str, tokens: Tokens, *, estimated: bool) -> None:
        """Charge a call. A second end of the same call changes nothing."""
        if self._open.pop(call.begun.call, None) is None:
            return
        row = self._book.end(call.begun, status, tokens, estimated=estimated, money=cost(tokens, self._door.price))
        self.totals = _with(self.totals, row)
        self._told(self.totals)

    async def freed(self) -> None:
        """Wake those who wait for room, of every role, after an end; the others first, so that none keeps it all."""
        for account in (*self.peers, self):
            async with account._changed:
                account._changed.notify_all()

    def seen(self, call: Call, tokens: Tokens) -> None:
        """What a streaming call would be charged now."""
        self._book.seen(call.begun, tokens)

    def refused(self) -> None:
        """Count a request that was not let through."""
        self.totals = self.totals.model_copy(update={"refused": self.totals.refused + 1})
        self._told(self.totals)

    def reserved(self) -> float:
        """The most that its open calls can still cost."""
        return sum(one.reserved_money for one in self._open.values())

    def _spent(self) -> float:
        """The money that is gone, of all roles and elsewhere."""
        return (self.totals.money or 0.0) + self.elsewhere + sum(peer.totals.money or 0.0 for peer in self.peers)

    def _check(self) -> None:
        limits, used = self._door.limits, self.totals
        if used.calls + len(self._open) >= limits.calls:
            raise Refused(429, f"a run makes at most {limits.calls} calls")
        if limits.tokens is not None and used.tokens.output >= limits.tokens:
            raise Refused(429, f"the token budget of this run is used up ({used.tokens.output} of {limits.tokens})")
        money = self._spent()
        if limits.money is not None and money >= limits.money:
            raise Refused(429, f"the money budget of this run is used up ({money:.2f} of {limits.money:.2f})")

    def _goes(self, fits: int | None, estimate: int, asked: int | None) -> bool:
        """Whether a call may go whose reply ``fits`` beside what is open: as long as alone, or long enough."""
        if fits is None or fits >= ENOUGH or not self._beside():
            return True
        alone = self._fit(estimate, asked, beside=False)
        return fits >= max(MINIMUM, alone or 0)

    def _beside(self) -> bool:
        """Is anything open that could leave more room by its end?"""
        return bool(self._open) or (self._door.limits.money is not None and any(peer.reserved() for peer in self.peers))

    def _fit(self, estimate: int, asked: int | None, *, beside: bool) -> int | None:
        """The longest reply that fits, ``beside`` what is open or as if nothing were; None where no limit holds."""
        limits, price = self._door.limits, self._door.price
        wanted = min(asked or limits.max_output, limits.max_output)
        if limits.tokens is None and limits.money is None:
            return asked
        if limits.tokens is not None:
            reserved = sum(call.reserved_tokens for call in self._open.values()) if beside else 0
            wanted = min(wanted, limits.tokens - self.totals.tokens.output - reserved)
        if limits.money is not None and price.output:
            held = sum(account.reserved() for account in (self, *self.peers)) if beside else 0.0
            left = limits.money - self._spent() - held - (cost(Tokens(input=estimate), price) or 0.0)
            wanted = min(wanted, int(left * 1e6 / price.output))
        return wanted
