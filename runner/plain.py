"""The run as plain lines: what a person cares about, as it happens; or every event as JSON for a program.

A view: it reads events and states, and writes to one stream. Losing the stream never harms the run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from runner.record import events as ev
from runner.record.describe import Tone, clock, describe, tone
from runner.record.events import Event
from runner.record.line import event_fields
from runner.record.state import RunState
from runner.report.card import card

__all__ = ["PlainPrinter", "card", "wants_color"]

PROGRESS_STEP = 0.10  # of the work, and
PROGRESS_GAP_S = 2.0  # at least this long between two lines; but
PROGRESS_SILENCE_S = 60.0  # after this long a line comes whatever the step
TURN_GAP_S = 10.0
BUDGET_STEP = 0.10
HELD = 200  # lines, while a person is at the terminal
NOTICES = 20  # lines of one kind before only every tenth power is told

_STYLES: Mapping[Tone, str] = {"normal": "", "quiet": "2", "good": "32", "bad": "33", "strong": "1"}


def wants_color(stream: TextIO, environment: Mapping[str, str] | None = None) -> bool:
    """Colour only on a terminal that is not dumb, and never against NO_COLOR."""
    known = os.environ if environment is None else environment
    if known.get("NO_COLOR") or known.get("TERM") == "dumb":
        return False
    try:
        return stream.isatty()
    except ValueError:  # a closed stream
        return False


class PlainPrinter:
    """Prints events: subscribe it to a journal, or feed it from a follower. ``broken``: the stream is gone."""

    def __init__(
        self, stream: TextIO, *, json_lines: bool = False, color: bool | None = None, attended: bool = False
    ) -> None:
        """``json_lines`` prints every event as one JSON object; ``color`` None decides by the stream. ``attended``: the
        agent is a person at this very terminal, whose editor our lines would tear: they come when the shell has ended.
        """
        self._stream = stream
        self._json = json_lines
        self._color = (wants_color(stream) if color is None else color) and not json_lines
        self._job = ""
        self._told_t = 0.0
        self._told_share = 0.0
        self._turn_t = float("-inf")
        self._budget_share = 0.0
        self._attended = attended and not json_lines
        self._held: list[str] | None = None
        self.broken = False

    def __call__(self, event: Event, state: RunState) -> None:
        """Print the event if it is worth a line; ``state`` is that after it."""
        if isinstance(event.payload, ev.AgentEnded):
            self._release()
        if self._json:
            self.line(json.dumps(event_fields(event), ensure_ascii=True, allow_nan=False))
        elif self._worth(event, state):
            self.line(self._text(event, state))
        if self._attended and isinstance(event.payload, ev.AgentStarted):
            self._held = []

    def _release(self) -> None:
        held, self._held = self._held or [], None
        for text in held:
            self.line(text)

    def finish(self, state: RunState, report: Path | None = None) -> None:
        """Print the card and where the report lies (not in JSON mode, where the last event says it)."""
        self._release()
        if not self._json:
            self.line("\n" + card(state).rstrip("\n"))
            if report is not None:
                self.line(f"report   {report}")

    def line(self, text: str) -> None:
        """Write one line; characters that the stream cannot show become question marks."""
        if self._held is not None:
            self._held = [*self._held[-HELD:], text]
            return
        if self.broken:
            return
        try:
            try:
                self._stream.write(text + "\n")
            except UnicodeEncodeError:
                encoding = self._stream.encoding or "ascii"
                self._stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            self.broken = True

    def _text(self, event: Event, state: RunState) -> str:
        text = describe(event, state)
        style = _STYLES[tone(event)] if self._color else ""
        shown = f"\x1b[{style}m{text}\x1b[0m" if style else text
        return f"{clock(event.el)}  {shown}"

    def _worth(self, event: Event, state: RunState) -> bool:
        said = event.payload
        if isinstance(said, ev.LeaseChanged | ev.JobQueued):
            return False
        if isinstance(said, ev.TrainProgress):
            return self._progress(said.job, said.step, said.steps, event.t)
        if isinstance(said, ev.ValidationProgress):
            return self._progress(said.job, said.done, said.total, event.t)
        if isinstance(said, ev.HiddenProgress):
            return self._progress(f"hidden {said.note}", said.done, said.total, event.t)
        if isinstance(said, ev.AgentTurn):
            return self._turn(event.t)
        if isinstance(said, ev.BudgetTick):
            return self._budget(said, state)
        return _is_new(said, state)

    def _progress(self, job: str, done: int, total: int, t: float) -> bool:
        share = done / total if total > 0 else 0.0
        if job != self._job:
            self._job, self._told_t, self._told_share = job, t, 0.0
            return False
        passed = t - self._told_t
        step = share - self._told_share >= PROGRESS_STEP and passed >= PROGRESS_GAP_S
        if share >= 1.0 or not (step or passed >= PROGRESS_SILENCE_S):
            return False
        self._told_t, self._told_share = t, share
        return True

    def _turn(self, t: float) -> bool:
        if t - self._turn_t < TURN_GAP_S:
            return False
        self._turn_t = t
        return True

    def _budget(self, said: ev.BudgetTick, state: RunState) -> bool:
        share = said.wall_s / state.run.budget.wall_s if state.run and state.run.budget.wall_s > 0 else 0.0
        if share - self._budget_share < BUDGET_STEP:
            return False
        self._budget_share = share
        return True


def _is_new(said: object, state: RunState) -> bool:
    """A flood of one kind of notice is told by its first lines, then at 100, 1000, …"""
    if isinstance(said, ev.EditRefused):
        seen = state.notes.refused.get(said.component, 0)
    elif isinstance(said, ev.Integrity | ev.Warned):
        groups = state.notes.integrity if isinstance(said, ev.Integrity) else state.notes.warnings
        group = groups.get(said.what) or groups.get("other")
        seen = group.count if group else 0
    elif isinstance(said, ev.Unknown):
        seen = state.unknown_count
    else:
        return True
    return seen <= NOTICES or str(seen).strip("0") == "1"
