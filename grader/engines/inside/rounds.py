"""Who asks what, and when the batch runs: the queue between the HTTP threads and the one thread that computes.

With rounds, nothing runs until every open session has its one request pending; what then runs is decided by the
requests alone (sorted by length and id), never by when they came. Without rounds whatever is pending runs. Standard
library only.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any


class Refusal(Exception):
    """A request that is not answered: an HTTP status and one line that says why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


@dataclass(eq=False, slots=True)
class Ticket:
    """One request on its way: ``body`` as it came, ``ready`` what the computing thread made of it, then the outcome."""

    session: str
    body: dict[str, Any]
    ready: Any = None
    outcome: Any = None
    done: threading.Event = field(default_factory=threading.Event)

    def settle(self, outcome: Any) -> None:
        """Give the outcome, a value or a Refusal, to whoever waits."""
        self.outcome = outcome
        self.done.set()

    def wait(self) -> Any:
        """The outcome; raises it when it is a Refusal."""
        self.done.wait()
        if isinstance(self.outcome, Refusal):
            raise self.outcome
        return self.outcome


@dataclass(frozen=True, slots=True)
class Job:
    """A piece of work for the computing thread apart from rounds, such as loading a model."""

    run: Callable[[], Any]
    ticket: Ticket


class Rounds:
    """The pending requests. Methods may be called from any thread; :meth:`next` from the computing one alone."""

    def __init__(self, *, rounds: bool = True) -> None:
        self._rounds = rounds
        self._change = threading.Condition()
        self._open: set[str] = set()
        self._queues: dict[str, deque[Ticket]] = {}
        self._raw: deque[Ticket] = deque()
        self._jobs: deque[Job] = deque()

    def control(self, opened: Iterable[str], closed: Iterable[str]) -> None:
        """Open and close sessions in one step; what a closed one still has pending is refused."""
        with self._change:
            self._open.update(opened)
            for session in closed:
                self._open.discard(session)
                for ticket in self._queues.pop(session, ()):
                    ticket.settle(Refusal(409, "the session was closed"))
            self._change.notify_all()

    def ask(self, session: str, body: dict[str, Any]) -> Any:
        """One request of ``session``; blocks until it is answered. A second one of the same session waits its turn."""
        ticket = Ticket(session, body)
        with self._change:
            if self._rounds and session not in self._open:
                raise Refusal(409, "the session is not open")
            self._queues.setdefault(session, deque()).append(ticket)
            self._raw.append(ticket)
            self._change.notify_all()
        return ticket.wait()

    def do(self, run: Callable[[], Any]) -> Any:
        """Have the computing thread run ``run`` between rounds; blocks for its value."""
        ticket = Ticket("", {})
        with self._change:
            self._jobs.append(Job(run, ticket))
            self._change.notify_all()
        return ticket.wait()

    def next(self) -> Job | Ticket | list[Ticket]:
        """What to do now: a job; a request that is to be made ready; or the requests of a round, in their order."""
        with self._change:
            while True:
                work = self._work()
                if work is not None:
                    return work
                self._change.wait()

    def _work(self) -> Job | Ticket | list[Ticket] | None:
        if self._jobs:
            return self._jobs.popleft()
        while self._raw:
            ticket = self._raw.popleft()
            if not ticket.done.is_set():
                return ticket
        return self._round()

    def _round(self) -> list[Ticket] | None:
        heads = [queue[0] for queue in self._queues.values() if queue]
        if not heads or (self._rounds and {t.session for t in heads} != self._open):
            return None
        return sorted(heads, key=lambda t: (t.ready.length, t.session))

    def answer(self, ticket: Ticket, outcome: Any) -> None:
        """Settle ``ticket`` and let the next request of its session come forward."""
        with self._change:
            queue = self._queues.get(ticket.session)
            if queue and ticket in queue:
                queue.remove(ticket)
                if not queue:
                    del self._queues[ticket.session]
            ticket.settle(outcome)


def cut(lengths: Sequence[int], cap: int, tokens: int) -> list[slice]:
    """Batches of a sorted round: at most ``cap`` rows, rows x longest row at most ``tokens``; one row always goes."""
    batches, start = [], 0
    for end in range(1, len(lengths) + 1):
        full = end - start == cap or end == len(lengths)
        if full or (end + 1 - start) * max(lengths[start : end + 1]) > tokens:
            batches.append(slice(start, end))
            start = end
    return batches
