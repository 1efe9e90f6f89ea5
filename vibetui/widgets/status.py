"""What is always in sight: the head with its chips, the notice of what weakens the numbers, the gauges, the keys."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events

from runner.record.describe import count, delta_text, duration, letters, money, number, score_text, share, tokens
from runner.record.events import SCHEMA_VERSION
from runner.record.liveness import Liveness
from runner.record.naming import names
from runner.record.state import INITIAL, RunState, chosen, integrity_count
from vibetui.follow import View
from vibetui.keys import Key, footer
from vibetui.text import Line, Span, cell, crop, gauge, join, line, one_line, spread, stacked, width
from vibetui.theme import Role, Symbols
from vibetui.widgets.paint import Block, is_ascii, symbols_of

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
        read = f" {count(view.state.seq)} events" if view.state.seq else ""
        return symbols.starting, f"READING{read}", "muted"
    if view.waiting and view.how is not Liveness.FINISHED:
        return (symbols.starting, "STARTING", "warn") if view.held else (symbols.crashed, "NO JOURNAL", "bad")
    if view.how is Liveness.LIVE:
        return symbols.live, "LIVE", "good"
    if view.how is Liveness.QUIET:
        return symbols.quiet, f"QUIET {duration(view.age_s)}", "warn"
    if view.how is Liveness.CRASHED:
        return symbols.crashed, "CRASHED", "bad"
    if view.how is Liveness.COPIED:
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

    def build(self, cells: int, rows: int) -> list[Line]:
        view = self.view
        if view is None:
            return [line(("vibetui", "strong"))]
        sign, word, role = liveness_of(view, symbols_of(self))
        state, run = view.state, view.state.run
        left = [line((f"{sign} {word}", role))]
        if self.demo:
            left.append(line((self.demo, "warn")))
        task = f"{run.task}/{run.problems}" if run else view.run.task
        left.append(line((one_line(task, 40), "strong")))
        if run:
            left.append(line(state.phase.replace("_", " ")))
            left.append(line((f"{run.agent} on {run.model}, {letters(run.scope)}", "muted")))
        parts: list[tuple[str, Role]] = []
        if state.best and state.best.validation and state.best.id != INITIAL:
            parts += [("best ", "muted"), (number(state.best.validation.score * 100), "accent"), ("  ", "text")]
        if state.initial:
            parts += [("P0 ", "muted"), (number(state.initial.score * 100), "text")]
        return [spread(join(left), line(*parts), cells)]


def caveats(view: View) -> list[tuple[str, Role]]:
    """What a reader must know before any number, the worst first."""
    state, found = view.state, []
    bad: Role = "bad"
    if view.schema > SCHEMA_VERSION:
        found.append((f"journal schema {view.schema} is newer than {SCHEMA_VERSION}: some of it is not shown", bad))
    if view.ready and view.how is Liveness.CRASHED and not view.waiting:
        found.append(("the run died: press S to resume it", bad))
    if names(state).same:
        found.append(("OFFICIAL = SELECTION SET: the official score is on problems that the agent saw", bad))
    if state.allowed:
        found.append(("MISSING WALLS, allowed: " + ", ".join(one_line(wall, 40) for wall in state.allowed), bad))
    if noticed := integrity_count(state):
        found.append((f"integrity: {count(noticed)} noticed", bad))
    if state.unknown_count:
        found.append((f"record: {count(state.unknown_count)} lines not understood", bad))
    if view.stopping and view.running:
        found.append(("a stop was asked for", "warn"))
    if view.ready and view.how is Liveness.COPIED:
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
            return []
        state, signs = view.state, symbols_of(self)
        if rows < 4:
            return [crop(used_line(state), cells), crop(split_line(state, cells, signs), cells)]
        limits, used = state.run.budget if state.run else None, state.budget
        half = cells // 2 - 1
        bar = max(6, half - 27)
        cap = limits.wall_s if limits else None
        wall = _gauge("wall", used.wall_s, cap, duration(used.wall_s), duration(cap), bar, signs)
        cap = float(limits.tokens) if limits and limits.tokens is not None else None
        toks = _gauge("tokens", float(used.tokens), cap, tokens(used.tokens), count(int(cap or 0)), bar, signs)
        cap = limits.accelerator_s if limits else None
        accel = _gauge("accel", used.accelerator_s, cap, duration(used.accelerator_s), duration(cap), bar, signs)
        cap = limits.money if limits else None
        cash = _gauge("money", used.money or 0.0, cap, money(used.money), money(cap), bar, signs)
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
        ("wall ", f"{duration(used.wall_s)} / {duration(limit)}"),
        ("accel ", duration(used.accelerator_s)),
        ("tokens ", tokens(used.tokens)),
        ("money ", money(used.money)),
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
        words += [(f" {signs.full} ", role), (f"{name} ", "muted"), (share(seconds, total), "text")]
    bar = cells - 8 - width(tuple(words)) - 1
    if bar < 4:
        short = (span for name, seconds, role in parts for span in ((f"{name} ", role), f"{share(seconds, total)}  "))
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
        what = f"{names(state).test}{_whose(state.outcome.note)}, problem {count(done.done)}/{count(done.total)}"
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
    steps = f", {unit} {count(progress.done)}/{count(progress.total)}" if progress.total else ""
    loss = f", loss {number(progress.loss, 3)}" if progress.loss is not None else ""
    since = duration(max(0.0, state.el - (job.started_el or 0.0)))
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
    hidden, name = state.hidden, chosen(state)
    called = names(state)
    on_hidden = f"{called.test} (once)" if hidden else f"no {called.test}"
    selected = state.candidates.get(name) if name else None
    score = selected.validation if selected else None
    lines = [
        line((cell("", first), "text"), (cell(called.seen, second), "muted"), (on_hidden, "muted")),
        line(
            (cell(" P0  c00" if first > 8 else " P0", first), "text"),
            cell(score_text(state.initial), second),
            score_text(hidden.initial) if hidden else "–",
        ),
        line(
            (cell(f" {signs.star}{'   ' if first > 8 else ' '}{one_line(name or 'none', 8)}", first), "strong"),
            (cell(score_text(score), second), "strong"),
            (score_text(hidden.selected) if hidden else "–", "strong"),
        ),
    ]
    gain = score.score - state.initial.score if score and state.initial else None
    tail: list[tuple[str, Role]] = []
    if hidden is not None:
        role: Role = "good" if hidden.delta.low > 0 else "bad" if hidden.delta.high < 0 else "warn"
        tail = [(delta_text(hidden.delta), role)]
    left = delta_text(gain)
    if hidden is not None and score is not None:
        gap = delta_text(hidden.selected.score - score.score)
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
        if key not in ("stop", "resume") or self.view is None:
            return bool(getattr(self.screen, "useful", lambda key: True)(key))
        return self.view.running if key == "stop" else self.view.resumable

    async def on_click(self, event: events.Click) -> None:
        for start, end, key in self._zones:
            if start <= event.x < end:
                await self.screen.run_action(f"press('{key.id}')")


def _word(key: Key, foot: Foot) -> str:
    return "ret" if key.shown == "⏎" and is_ascii(foot) else key.shown
