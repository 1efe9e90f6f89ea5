"""What is always in sight: the head with its chips, the notice of what weakens the numbers, the gauges, the keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual import events

from vibetui import record
from vibetui.keys import Key, footer
from vibetui.text import Line, Span, cell, crop, gauge, join, line, one_line, spread, stacked, width
from vibetui.theme import Role, Symbols
from vibetui.widgets.paint import Block, is_ascii, symbols_of

if TYPE_CHECKING:
    from runner.record.rundir import RunDir
    from runner.record.state import RunState
    from vibetui.follow import View

_FIXED = ("help", "quit", "yes", "no")  # keys that every footer has room for
_HOME = ("runs", "run")  # screens that lead to the list of runs; the others lead back
_PAIR = ("before", "after")  # one without the other would lead only one way
_LONGEST_S = 1e15  # a foreign record may hold anything that is a number
_SPLIT: tuple[tuple[str, Role], ...] = (
    ("train", "accent"),
    ("grade", "good"),
    ("sample", "text"),
    ("wait", "bad"),
    ("think", "warn"),
)


def liveness_of(view: View, symbols: Symbols) -> tuple[str, str, Role]:
    """Sign, word and role of how the run is: the truth of the lock, the clock and the boot id."""
    if not view.ready:
        read = f" {record.count(view.state.seq)} events" if view.state.seq else ""
        return symbols.starting, f"READING{read}", "muted"
    if view.waiting and view.how is not record.Liveness.FINISHED:
        return (symbols.starting, "STARTING", "warn") if view.held else (symbols.crashed, "NO JOURNAL", "bad")
    if view.how is record.Liveness.LIVE:
        return symbols.live, "LIVE", "good"
    if view.how is record.Liveness.QUIET:
        return symbols.quiet, f"QUIET {record.duration(view.age_s)}", "warn"
    if view.how is record.Liveness.CRASHED:
        return symbols.crashed, "CRASHED", "bad"
    if view.how is record.Liveness.COPIED:
        return symbols.copied, "COPIED", "warn"
    status = view.state.finished.status.replace("_", " ") if view.state.finished else ""
    role: Role = "good" if status == "ok" else "warn"
    return symbols.finished, "FINISHED" + ("" if status == "ok" else f" {status}"), role


class ViewBlock(Block):
    """A block that is made from the view of a run."""

    view: View | None = None

    def show(self, view: View) -> None:
        """Show another moment of the run."""
        self.view = view
        self.changed()

    def seen_if(self, there: bool) -> None:
        """Be there or not; said only where it changes, because saying it lays the whole screen out again."""
        if self.display is not there:
            self.display = there


class Head(ViewBlock):
    """How the run is, what it is, what it does, and the two numbers that matter most."""

    demo = ""
    run: RunDir | None = None  # what is looked at, while nothing of it has been read

    def build(self, cells: int, rows: int) -> list[Line]:
        view = self.view
        if view is None:
            return [self._reading(self.run) if self.run else line(("vibetui", "strong"))]
        sign, word, role = liveness_of(view, symbols_of(self))
        state, run = view.state, view.state.run
        left = [line((f"{sign} {word}", role))]
        if self.demo:
            left.append(line((self.demo, "warn")))
        task = f"{run.task}/{run.problems}" if run else view.run.task
        left.append(line((one_line(task, 40), "strong")))
        if run:
            left.append(line(state.phase.replace("_", " ")))
            left.append(line((f"{run.agent} on {run.model}, {record.letters(run.scope)}", "muted")))
        parts: list[tuple[str, Role]] = []
        if state.best and state.best.validation and state.best.id != record.INITIAL:
            parts += [("best ", "muted"), (record.number(state.best.validation.score * 100), "accent"), ("  ", "text")]
        if state.initial:
            parts += [("P0 ", "muted"), (record.number(state.initial.score * 100), "text")]
        return [spread(join(left), line(*parts), cells)]

    def _reading(self, run: RunDir) -> Line:
        task = line((one_line(run.task, 40), "strong"))
        return join([line((f"{symbols_of(self).starting} READING", "muted")), task])


def caveats(view: View) -> list[tuple[str, Role]]:
    """What a reader must know before any number, the worst first."""
    state, found = view.state, []
    bad: Role = "bad"
    if view.schema > record.SCHEMA_VERSION:
        found.append(
            (f"journal schema {view.schema} is newer than {record.SCHEMA_VERSION}: some of it is not shown", bad)
        )
    if view.ready and view.how is record.Liveness.CRASHED and not view.waiting:
        found.append(("the run died: press S to resume it", bad))
    if record.names(state).same:
        found.append(("OFFICIAL = SELECTION SET: the official score is on problems that the agent saw", bad))
    if state.allowed:
        found.append(("MISSING WALLS, allowed: " + ", ".join(one_line(wall, 40) for wall in state.allowed), bad))
    if noticed := record.integrity_count(state):
        found.append((f"integrity: {record.count(noticed)} noticed", bad))
    if state.unknown_count:
        found.append((f"record: {record.count(state.unknown_count)} lines not understood", bad))
    if view.stopping and view.running:
        found.append(("a stop was asked for", "warn"))
    if view.ready and view.how is record.Liveness.COPIED:
        found.append(("copied from another machine, or this one was started anew", "warn"))
    if state.weak:
        found.append(("weak walls: " + ", ".join(one_line(wall, 40) for wall in state.weak), "warn"))
    if state.run is not None and not state.run.comparable:
        found.append((f"not {one_line(state.run.task, 20).upper()} scores: problems “{state.run.problems}”", "warn"))
    return found


class Notice(ViewBlock):
    """One line of caveats, only where there are any."""

    def show(self, view: View) -> None:
        self.seen_if(bool(caveats(view)))
        super().show(view)

    def build(self, cells: int, rows: int) -> list[Line]:
        found = caveats(self.view) if self.view else []
        return [crop(join([line(("! " + text, role)) for text, role in found], "   "), cells)]


class Gauges(ViewBlock):
    """The budget: wall time, tokens, money, accelerator, where the time went, and what is happening now."""

    def show(self, view: View) -> None:
        self.set_class(view.state.finished is not None, "-over")
        super().show(view)

    def build(self, cells: int, rows: int) -> list[Line]:
        view = self.view
        if view is None:
            return [line((name, "muted")) for name in (" wall", " accel", " split", " now    reading the journal …")]
        state, signs = view.state, symbols_of(self)
        if rows < 4:
            return [crop(used_line(state), cells), crop(split_line(state, cells, signs), cells)]
        limits, used = state.run.budget if state.run else None, state.budget
        half = cells // 2 - 1
        bar = max(6, half - 27)
        cap = limits.wall_s if limits else None
        wall = _gauge("wall", used.wall_s, cap, record.duration(used.wall_s), record.duration(cap), bar, signs)
        cap = float(limits.tokens) if limits and limits.tokens is not None else None
        toks = _gauge(
            "tokens", float(used.tokens), cap, record.tokens(used.tokens), record.count(int(cap or 0)), bar, signs
        )
        cap = limits.accelerator_s if limits else None
        accel = _gauge(
            "accel", used.accelerator_s, cap, record.duration(used.accelerator_s), record.duration(cap), bar, signs
        )
        cap = limits.money if limits else None
        cash = _gauge("money", used.money or 0.0, cap, record.money(used.money), record.money(cap), bar, signs)
        return [
            _beside(wall, toks, half),
            _beside(accel, cash, half),
            crop(split_line(state, cells, signs), cells),
            crop(now_line(state, cells, signs), cells),
        ]


def used_line(state: RunState) -> Line:
    """What was used, in one line: for a run that is over."""
    used, limit = state.budget, state.run.budget.wall_s if state.run else None
    parts = (
        ("wall ", f"{record.duration(used.wall_s)} / {record.duration(limit)}"),
        ("accel ", record.duration(used.accelerator_s)),
        ("tokens ", record.tokens(used.tokens)),
        ("money ", record.money(used.money)),
    )
    return line((cell(" used", 8), "muted"), *(span for name, text in parts for span in ((name, _M), f"{text}   ")))


_M: Role = "muted"
_PHASES = {
    "starting": "starting: grader, engine, walls",
    "waiting": "waits for this machine: another run holds it; the clock stands still",
    "baseline": "the initial system is next",
    "selecting": "the selection is settled",
    "reporting": "the report is written",
}


def _beside(one: Line, other: Line, half: int) -> Line:
    one = crop(one, half)
    return (*one, (" " * (half - width(one) + 2), "text"), *crop(other, half))


def _gauge(name: str, used: float, limit: float | None, text: str, cap: str, bar: int, signs: Symbols) -> Line:
    label: Span = (cell(f" {name}", 8), "muted")
    if limit is None or limit <= 0:
        return line(label, text, ("  no limit", "muted"))
    part = used / limit
    role: Role = "bad" if part >= 0.95 else "warn" if part >= 0.8 else "accent"
    return (label, *gauge(part, bar, role, signs), *line(f"  {text}", (f" / {cap}", "muted")))


def split_line(state: RunState, cells: int, signs: Symbols) -> Line:
    """Where the budget seconds went, as a bar and in words."""
    split = state.budget.split
    parts = [(name, min(max(getattr(split, name), 0.0), _LONGEST_S), role) for name, role in _SPLIT]
    total = sum(seconds for _, seconds, _ in parts)
    words: list[tuple[str, Role]] = [("  ", "text")]
    for name, seconds, role in parts:
        words += [(f" {signs.full} ", role), (f"{name} ", "muted"), (record.share(seconds, total), "text")]
    bar = cells - 8 - width(tuple(words)) - 1
    if bar < 4:
        short = (
            span for name, seconds, role in parts for span in ((f"{name} ", role), f"{record.share(seconds, total)}  ")
        )
        return line((cell(" split", 8), "muted"), *short)
    return (
        (cell(" split", 8), "muted"),
        *stacked([(seconds, role) for _, seconds, role in parts], min(bar, 60), signs),
        *line(*words),
    )


def now_line(state: RunState, cells: int, signs: Symbols) -> Line:
    """What is happening at this moment, with its progress."""
    label: Span = (cell(" now", 8), "muted")
    job, progress = state.current, state.work.progress
    if state.phase == "hidden_test" and state.hidden is None:
        done = state.outcome.progress
        of = _whose(state.outcome.note)
        what = f"{record.names(state).test}{of}, problem {record.count(done.done)}/{record.count(done.total)}"
        return (label, *line(what + "  "), *gauge(done.share, 24, "accent", signs))
    if state.finished is not None:
        return line(label, f"finished: {state.finished.status.replace('_', ' ')}", (_reason(state), "muted"))
    if job is None:
        saying = one_line(state.agent.saying, 160)
        if state.agent.running and saying:
            return line(label, ("agent  ", "muted"), saying)
        return line(label, _PHASES.get(state.phase, state.phase.replace("_", " ")))
    about = one_line(job.candidate or job.id, 12)
    unit = "step" if job.verb == "train" else "problem"
    steps = f", {unit} {record.count(progress.done)}/{record.count(progress.total)}" if progress.total else ""
    loss = f", loss {record.number(progress.loss, 3)}" if progress.loss is not None else ""
    since = record.duration(max(0.0, state.el - (job.started_el or 0.0)))
    text = f"{job.verb} {about}{steps}{loss}"
    bar = gauge(progress.share, 24, "accent", signs) if progress.total else ()
    queue = f"  {len(state.queue)} waits" if state.queue else ""
    return (label, *line(text + "  "), *bar, *line((f"  {since}{queue}", "muted")))


def _whose(note: str) -> str:
    """Which system the test is at: the grader calls them P0 and P*."""
    who, _, rest = note.partition(" hidden")
    name = {"P0": "initial system", "P*": "selected system"}.get(who, who)
    return f" of the {one_line(name + rest, 30)}" if name else ""


def _reason(state: RunState) -> str:
    return f"  {one_line(state.finished.reason, 100)}" if state.finished and state.finished.reason else ""


class Card(ViewBlock):
    """The result: validation → hidden, the difference with its interval, the gap. Only once it is in the journal."""

    def show(self, view: View) -> None:
        self.seen_if(view.state.hidden is not None or view.state.finished is not None)
        super().show(view)

    def build(self, cells: int, rows: int) -> list[Line]:
        return card_lines(self.view.state, symbols_of(self), cells) if self.view else []


def card_lines(state: RunState, signs: Symbols, cells: int = 80) -> list[Line]:
    """The final card in four lines."""
    first, second = (12, 31) if cells >= 76 else (8, 26)
    hidden, name = state.hidden, record.chosen(state)
    called = record.names(state)
    on_hidden = f"{called.test} (once)" if hidden else f"no {called.test}"
    selected = state.candidates.get(name) if name else None
    score = selected.validation if selected else None
    lines = [
        line((cell("", first), "text"), (cell(called.seen, second), "muted"), (on_hidden, "muted")),
        line(
            (cell(" P0  c00" if first > 8 else " P0", first), "text"),
            cell(record.score_text(state.initial), second),
            record.score_text(hidden.initial) if hidden else "–",
        ),
        line(
            (cell(f" {signs.star}{'   ' if first > 8 else ' '}{one_line(name or 'none', 8)}", first), "strong"),
            (cell(record.score_text(score), second), "strong"),
            (record.score_text(hidden.selected) if hidden else "–", "strong"),
        ),
    ]
    gain = score.score - state.initial.score if score and state.initial else None
    tail: list[tuple[str, Role]] = []
    if hidden is not None:
        role: Role = "good" if hidden.delta.low > 0 else "bad" if hidden.delta.high < 0 else "warn"
        tail = [(record.delta_text(hidden.delta), role)]
    left = record.delta_text(gain)
    if hidden is not None and score is not None:
        gap = record.delta_text(hidden.selected.score - score.score)
        tail += [("  gap ", "muted"), (gap, "text")] if cells >= 76 else []
        left += "" if cells >= 76 else f"   gap {gap}"
    lines.append(line((cell(" Δ", first), "text"), cell(left, second), *tail))
    return lines


class Foot(ViewBlock):
    """The keys of the screen that fit, the most wanted first; help is always among them. A click is a key press."""

    def __init__(self, screen: str, registry: Sequence[Key]) -> None:
        super().__init__(id="foot")
        self.about = screen
        self.keys = footer(screen, registry)
        self._zones: list[tuple[int, int, Key]] = []

    def build(self, cells: int, rows: int) -> list[Line]:
        keys = [key for key in self.keys if self._useful(key.id)]
        kept = (*_FIXED, "runs" if self.about in _HOME else "back")
        fixed = [key for key in keys if key.id in kept]
        room = cells - 1 - sum(self._takes(key) for key in fixed)
        pair = sum(self._takes(key) for key in keys if key.id in _PAIR)
        free: list[Key] = []
        for key in (key for key in keys if key not in fixed):
            together = pair if key.id == _PAIR[0] else self._takes(key)
            if together <= room and (key.id != _PAIR[1] or any(one.id == _PAIR[0] for one in free)):
                free.append(key)
                room -= self._takes(key)
        spans: list[tuple[str, Role]] = [(" ", "text")]
        self._zones = []
        at = 1
        for key in sorted((*free, *fixed), key=lambda key: key.foot):
            self._zones.append((at, at + self._takes(key), key))
            spans += [(_word(key, self), "accent"), (f" {key.label}  ", "muted")]
            at += self._takes(key)
        return [line(*spans)]

    def _takes(self, key: Key) -> int:
        return len(_word(key, self)) + len(key.label) + 3

    def _useful(self, key: str) -> bool:
        """Does the key do something here and now?"""
        if self.about == "new":  # what can be typed goes into the form
            return key in ("submit", "back")
        if self.about == "runs":
            return key not in ("runs", "back")
        if key not in ("stop", "resume"):
            return bool(getattr(self.screen, "useful", lambda key: True)(key))
        return self.view is not None and (self.view.running if key == "stop" else self.view.resumable)

    async def on_click(self, event: events.Click) -> None:
        for start, end, key in self._zones:
            if start <= event.x < end:
                await self.screen.run_action(f"press('{key.id}')")


def _word(key: Key, foot: Foot) -> str:
    return "ret" if key.shown == "⏎" and is_ascii(foot) else key.shown
