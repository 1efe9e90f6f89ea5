"""The list of runs: live ones first, newest first. Summaries are read in a thread, and again only where files grew."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from textual.app import ComposeResult

from runner.record.describe import delta_text, duration, number
from runner.record.journal import load
from runner.record.liveness import Liveness, liveness
from runner.record.naming import names
from runner.record.rundir import RunDir, holder_alive, list_runs
from runner.record.state import RunState, valid
from vibetui.follow import View, age_of
from vibetui.screens.base import Base, bindings
from vibetui.text import one_line
from vibetui.theme import Role, Symbols
from vibetui.widgets.paint import symbols_of
from vibetui.widgets.panel import legend, title
from vibetui.widgets.status import liveness_of
from vibetui.widgets.table import Column, Row, Table

_EVERY_S = 2.0
_NOISE = frozenset({"train_progress", "validation_progress", "hidden_progress", "agent_turn", "lease_changed"})
_MOST = 1000
COLUMNS = (
    Column("state", most=22),
    Column("run", most=25),
    Column("task", drop=5, most=14),
    Column("agent", drop=6, most=14),
    Column("P0", right=True),
    Column("best", right=True),
    Column("Δ_test", right=True, drop=2),
    Column("evals", right=True, drop=4),
    Column("time", right=True),
    Column("of", flex=True, least=6, drop=3),
)


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in one row."""

    view: View
    stamp: tuple[int, int]


def summaries(root: Path, known: dict[Path, Summary]) -> dict[Path, Summary]:
    """Every run below ``root``, newest first; a journal that did not grow is not read again."""
    found: dict[Path, Summary] = {}
    for run in list_runs(root)[:_MOST]:
        try:
            seen = run.journal_file.lstat()
            stamp = (seen.st_mtime_ns, seen.st_size)
        except OSError:
            stamp = (0, 0)
        old = known.get(run.path)
        state = old.view.state if old is not None and old.stamp == stamp else load(run.journal_file, skip=_NOISE)
        found[run.path] = Summary(_view(run, state), stamp)
    return found


def _view(run: RunDir, state: RunState) -> View:
    held, age = holder_alive(run.lock_file), age_of(run, state)
    return View(run=run, state=state, how=liveness(run, state), held=held, ready=True, age_s=age)


def _sign_of(state: RunState) -> str:
    """A mark beside a difference that is no hidden one: official, or official on the selection set itself."""
    called = names(state)
    return " off=sel" if called.same else " off" if called.counted == "official" else ""


def row_of(view: View, symbols: Symbols) -> Row:
    """A run as a row: the same numbers as `runner ls`."""
    sign, word, role = liveness_of(view, symbols)
    state, run = view.state, view.state.run
    best = state.best.validation if state.best else None
    hidden = state.hidden.delta if state.hidden else None
    tone: Role = "good" if hidden and hidden.low > 0 else "bad" if hidden and hidden.high < 0 else "text"
    return Row(
        str(view.run.path),
        (
            (word.lower(), role),
            (view.run.name, "text"),
            (one_line(run.task, 20) if run else view.run.task, "text"),
            (one_line(run.agent, 20) if run else "–", "muted"),
            (number(state.initial.score * 100) if state.initial else "–", "text"),
            (number(best.score * 100) if best else "–", "accent"),
            (f"{delta_text(hidden.value)}{_sign_of(state)}" if hidden else "–", tone),
            (str(len(valid(state, initial=False))), "muted"),
            (duration(state.budget.wall_s), "text"),
            (duration(run.budget.wall_s) if run else "–", "muted"),
        ),
        (sign, role),
    )


class RunsScreen(Base):
    """All runs of a folder."""

    kind = "runs"
    BINDINGS = bindings("runs")  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[Path, Summary] = {}
        self._word = ""
        self._looked = False

    def body(self) -> ComposeResult:
        yield Table(COLUMNS, empty=self.vibe.nothing_here(), id="all-runs")

    def on_mount(self) -> None:
        super().on_mount()
        title(self.query_one(Table), f"runs in {self.vibe.runs}")
        self.look()
        self.set_interval(_EVERY_S, self.look)

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self.look()

    def take(self, view: View) -> None:
        """The list shows all runs, not one: only the size matters here."""

    def look(self) -> None:
        """Look at the folder again, while this is the screen that is seen."""
        if self.on_top:
            self.load("runs", lambda: summaries(self.vibe.runs, self._known), self._seen)

    def _seen(self, found: dict[Path, Summary]) -> None:
        self._known = found
        self._fill()

    def _fill(self) -> None:
        table, word = self.query_one(Table), self._word.casefold()
        views = sorted((one.view for one in self._known.values()), key=_dead)
        rows = [row_of(view, symbols_of(self)) for view in views]
        table.show([row for row in rows if word in " ".join(text for text, _ in row.cells).casefold()])
        filtered = f"   filter “{one_line(self._word, 30)}”" if word else ""
        legend(table, f"{len(table.rows)} of {len(rows)} runs{filtered}")

    def do_filter(self) -> None:
        self.ask("filter", self._filter, live=self._filter)

    def _filter(self, word: str) -> None:
        self._word = word
        self._fill()

    def do_new(self) -> None:
        self.vibe.open_new()

    def do_copy_path(self) -> None:
        self.vibe.copy(self.query_one(Table).key or "")

    def do_back(self) -> None:
        prompt_open = self.query_one("#prompt").display
        if prompt_open or not self._word:
            super().do_back()
        else:
            self._filter("")

    def on_table_chosen(self, event: Table.Chosen) -> None:
        self.vibe.open_run(RunDir(Path(event.key)))


def _dead(view: View) -> bool:
    return view.how not in (Liveness.LIVE, Liveness.QUIET)
