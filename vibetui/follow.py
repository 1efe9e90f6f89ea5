"""Reading a run: the journal is folded step by step into views, each of them what the screens need of one moment.

The journal, the lock and the boot id are the only sources; nothing is ever written or locked.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from dataclasses import dataclass, field

from runner.record import events as ev
from runner.record.describe import Tone, describe, tone
from runner.record.events import Event
from runner.record.fold import fold
from runner.record.follow import Follower
from runner.record.liveness import Liveness, liveness
from runner.record.rundir import RunDir, holder_alive
from runner.record.state import RunState

_BATCH, _BATCH_S = 2000, 0.05
_KEPT = 500
_CURVE = 4096
_UNTOLD = (
    ev.JobQueued,
    ev.LeaseChanged,
    ev.BudgetTick,
    ev.TrainProgress,
    ev.ValidationProgress,
    ev.HiddenProgress,
)


@dataclass(frozen=True, slots=True)
class News:
    """One event in words, with its budget seconds."""

    seq: int
    el: float
    text: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class View:
    """What a run is at one moment, for the screens.

    ``ready``: the journal was once read to its end; before that nothing can be said of how the run is.
    """

    run: RunDir
    state: RunState = field(default_factory=RunState)
    how: Liveness = Liveness.LIVE
    held: bool = False
    news: tuple[News, ...] = ()
    tokens: tuple[tuple[float, int], ...] = ()
    schema: int = 0
    ready: bool = False
    stopping: bool = False
    age_s: float = 0.0

    @property
    def waiting(self) -> bool:
        """Has the run not even said what it is?"""
        return self.state.run is None

    @property
    def running(self) -> bool:
        """Is there a process that holds the run?"""
        return self.ready and self.how in (Liveness.LIVE, Liveness.QUIET)

    @property
    def resumable(self) -> bool:
        """Was it stopped, or did its process die on this machine?"""
        finished = self.state.finished
        stopped = finished is not None and finished.status == "stopped"
        return self.ready and (stopped or self.how is Liveness.CRASHED)


class Reader:
    """Folds a journal into views, step by step; the thread below drives it, and so may a test."""

    def __init__(self, run: RunDir) -> None:
        """Opens nothing before the first :meth:`step`."""
        self.run = run
        self._follower = Follower(run.journal_file)
        self._restarts = 0
        self._begin()

    def _begin(self) -> None:
        self.state = RunState()
        self._news: deque[News] = deque(maxlen=_KEPT)
        self._told: tuple[News, ...] = ()
        self._tokens: list[tuple[float, int]] = []
        self._schema = 0
        self.ready = False

    def step(self) -> bool:
        """Take in a bounded number of events; True while there may be more."""
        events = self._follower.poll(_BATCH, _BATCH_S)
        if self._follower.restarts != self._restarts:
            self._restarts = self._follower.restarts
            self._begin()
        for event in events:
            self._take(event)
        self.ready = self.ready or not events
        return bool(events)

    def _take(self, event: Event) -> None:
        before = self.state.seq
        self.state = fold(self.state, event)
        self._schema = max(self._schema, event.v)
        if event.v < 1 or event.seq <= before:
            return
        if isinstance(event.payload, ev.BudgetTick):
            self._count(event.el, event.payload.tokens)
        if not isinstance(event.payload, _UNTOLD):
            self._news.append(News(event.seq, event.el, describe(event, self.state), tone(event)))

    def _count(self, el: float, tokens: int) -> None:
        if not self._tokens or self._tokens[-1][1] != tokens:
            self._tokens.append((el, tokens))
            if len(self._tokens) > _CURVE:
                self._tokens = self._tokens[::2]

    def view(self) -> View:
        """The run as it is now."""
        return View(
            run=self.run,
            state=self.state,
            how=liveness(self.run, self.state),
            held=holder_alive(self.run.lock_file),
            news=self._newest(),
            tokens=tuple(self._tokens),
            schema=self._schema,
            ready=self.ready,
            stopping=self.run.stop_requested(),
            age_s=age_of(self.run, self.state),
        )

    def _newest(self) -> tuple[News, ...]:
        """The same tuple as before where nothing came, so that screens see at once that nothing did."""
        if len(self._told) != len(self._news) or (self._news and self._told[-1] is not self._news[-1]):
            self._told = tuple(self._news)
        return self._told

    def close(self) -> None:
        """Let the journal go."""
        self._follower.close()


def age_of(run: RunDir, state: RunState) -> float:
    """Seconds since the newest word of a run; 0 where it has said none."""
    newest = state.t
    with contextlib.suppress(OSError):
        newest = max(newest, run.journal_file.lstat().st_mtime)
    return max(0.0, time.time() - newest) if newest else 0.0
