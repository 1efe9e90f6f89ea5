"""One run: budget, validation curve, events, candidates with what moved in each. The screen one looks at for hours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Container
from textual.widget import Widget

from vibetui import record
from vibetui.screens.base import bindings
from vibetui.screens.shared import OfCandidate
from vibetui.text import Line, line, one_line
from vibetui.theme import Role, Symbols
from vibetui.widgets.chart import ValidationChart, starred
from vibetui.widgets.lines import Lines
from vibetui.widgets.paint import symbols_of
from vibetui.widgets.panel import legend, title
from vibetui.widgets.status import Card, Gauges
from vibetui.widgets.table import Column, Row, Table

if TYPE_CHECKING:
    from runner.record.state import CandidateState, RunState
    from vibetui.follow import News, View

COLUMNS = (
    Column("cand"),
    Column("D", most=6),
    Column("T", most=6),
    Column("H", most=6),
    Column("val %", right=True),
    Column("95 %", drop=3),
    Column("Δ P0", right=True),
    Column("solved", right=True, drop=2),
    Column("model", drop=4, most=8),
    Column("hypothesis", flex=True),
)
READING = " reading the journal …"
_TONES: dict[str, Role] = {"normal": "text", "quiet": "muted", "good": "good", "bad": "bad", "strong": "strong"}


def candidate_rows(state: RunState, symbols: Symbols, word: str = "") -> list[Row]:
    """The candidates, newest first, or those that hold ``word``."""
    star = starred(state)
    rows = [_row(state, one, star, symbols) for one in reversed([*state.candidates.values()])]
    wanted = word.casefold()
    return [row for row in rows if wanted in " ".join(text for text, _ in row.cells).casefold()]


def _row(state: RunState, one: CandidateState, star: str | None, symbols: Symbols) -> Row:
    score, initial = one.validation, state.initial
    moved = score.score - initial.score if score and initial and one.parent else None
    tone: Role = "good" if moved and moved > 0 else "bad" if moved and moved < 0 else "muted"
    solved = f"{round(score.score * score.n)}/{score.n}" if score else "–"
    between = f"[{record.number(score.low * 100)}, {record.number(score.high * 100)}]" if score else _status(state, one)
    failed = one.status not in ("ok", "created", "validating")
    mark = (symbols.star, "accent") if one.id == star else (symbols.cross, "bad") if failed else (" ", "text")
    cells: list[tuple[str, Role]] = [(one_line(one.id, 12), "strong" if one.id == star else "text")]
    for component in ("data", "trainer", "harness"):
        text = record.diff_cell(one.diff.get(component)) if component in one.components else "·"
        cells.append(
            ("new" if text == "·" and component in one.components else text, "text" if text != "·" else "muted")
        )
    cells += [
        (record.number(score.score * 100) if score else "–", "text"),
        (between, "muted"),
        (record.delta_text(moved), tone),
        (solved, "muted"),
        (one_line(one.model, 12), "muted"),
        (one_line(one.hypothesis, 300) or ("initial system" if one.parent is None else "–"), "muted"),
    ]
    return Row(one.id, tuple(cells), (mark[0], "accent" if mark[1] == "accent" else "bad" if failed else "text"))


def _status(state: RunState, one: CandidateState) -> str:
    job = state.current
    if one.status == "validating" and job and job.candidate == one.id:
        return f"{record.count(state.work.progress.done)}/{record.count(state.work.progress.total)}"
    return one.status


def _status_key(state: RunState) -> object:
    """What the row of a candidate that is being validated shows of its progress."""
    job = state.current
    return state.work.progress if job is not None and job.verb == "validate" else None


def news_lines(news: tuple[News, ...]) -> list[Line]:
    """Events in words, oldest first."""
    return [line((f" {record.clock(one.el)}  ", "muted"), (one.text, _TONES[one.tone])) for one in news]


class RunScreen(OfCandidate):
    """A run, live or not."""

    kind = "run"
    BINDINGS = bindings("run")  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self._filter_word = ""
        self._follow = True
        self._alone = ""
        self._news: tuple[News, ...] | None = None
        self._rows: tuple[object, ...] | None = None

    def body(self) -> ComposeResult:
        yield Gauges(id="gauges")
        yield Card(id="card")
        with Container(id="middle"):
            yield ValidationChart(id="chart", classes="panel")
            yield Lines(empty=READING, id="events")
        yield Table(COLUMNS, empty=READING, id="candidates")

    def on_mount(self) -> None:
        super().on_mount()
        title(self.query_one("#events"), "events")
        if self.vibe.attached is not None:
            title(self.query_one("#candidates"), f"candidates of {self.vibe.attached.name}")

    def first_focus(self) -> Widget | None:
        return self.query_one("#candidates")

    def show(self, view: View) -> None:
        self.query_one(Gauges).show(view)
        self.query_one(Card).show(view)
        self.query_one(ValidationChart).show(view)
        events = self.query_one("#events", Lines)
        events.say_if_empty(" nothing has happened yet" if view.ready else READING)
        if view.news is not self._news:
            self._news = view.news
            stick = events.at_end or not events.total()
            events.show(news_lines(view.news), keep=True)
            if stick:
                events.last()
        state = view.state
        seen = (state.trials, state.outcome, view.run, self._filter_word, self._follow, view.ready, _status_key(state))
        if self._rows is None or any(old is not new for old, new in zip(self._rows, seen, strict=True)):
            self._rows = seen
            self._fill(view)

    def _fill(self, view: View) -> None:
        table = self.query_one("#candidates", Table)
        before = table.rows[0].key if table.rows else None
        table.say_if_empty("no candidate yet: P0 comes first" if view.ready else READING)
        table.show(candidate_rows(view.state, symbols_of(self), self._filter_word))
        if self._follow and table.rows and table.rows[0].key != before:
            table.first()
        state = view.state
        follow = "" if self._follow else "  not following"
        filtered = f"   filter “{one_line(self._filter_word, 30)}”" if self._filter_word else ""
        legend(table, f"{len(state.trials.valid)} valid of {len(state.candidates)}{filtered}{follow}")

    def named(self) -> str | None:
        return self.query_one("#candidates", Table).key

    # -- keys

    def on_table_chosen(self, event: Table.Chosen) -> None:
        self.vibe.open_candidate(event.key)

    def do_open(self) -> None:
        self.query_one("#candidates", Table).open()

    def do_follow(self) -> None:
        self._follow = not self._follow
        if self._follow:
            self.query_one("#candidates", Table).first()
            self.query_one("#events", Lines).last()
        self.vibe.tell("following the newest" if self._follow else "staying where you are")
        self.again()

    def do_filter(self) -> None:
        self.ask("filter", self._filtered, live=self._filtered)

    def _filtered(self, word: str) -> None:
        self._filter_word = word
        self.again()

    def do_new(self) -> None:
        self.vibe.open_new()

    def do_axis(self) -> None:
        self.query_one(ValidationChart).turn(axis=True)

    def do_zoom(self) -> None:
        self.query_one(ValidationChart).turn(zoom=True)

    def do_panel_1(self) -> None:
        self._only("chart")

    def do_panel_2(self) -> None:
        self._only("events")

    def do_panel_3(self) -> None:
        self._only("candidates")

    def _only(self, name: str) -> None:
        """One panel alone, or all of them again."""
        self._alone = "" if self._alone == name else name
        for panel in ("chart", "events", "candidates"):
            self.set_class(self._alone == panel, f"-only-{panel}")
        if self._alone in ("events", "candidates"):
            self.query_one(f"#{self._alone}").focus()
        self.call_after_refresh(self.again)

    def do_stop(self) -> None:
        view = self.vibe.view
        if view is None or not view.running:
            self.vibe.tell("this run is not running: there is nothing to stop")
        else:
            self.vibe.ask_stop()

    def do_resume(self) -> None:
        view = self.vibe.view
        if view is None or not view.resumable:
            self.vibe.tell("only a run that was stopped or crashed here can be resumed")
        else:
            self.vibe.ask_resume()
