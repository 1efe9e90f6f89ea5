"""The application: it attaches to run folders, keeps the newest view, and opens screens. It never holds a run."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import threading
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from weakref import WeakKeyDictionary

from rich.text import Text
from textual.app import App, SystemCommand
from textual.events import Event
from textual.events import Key as KeyPressed
from textual.message import Message
from textual.screen import Screen
from textual.theme import Theme

from runner.record.journal import JournalError
from runner.record.rundir import RunDir
from vibetui import theme
from vibetui.follow import Feed, View
from vibetui.kept import default_state_dir, written
from vibetui.keys import Key, keys_of, with_keymap
from vibetui.screens.base import Base
from vibetui.screens.run import RunScreen
from vibetui.sheet import Sheet
from vibetui.text import one_line

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_LEAVE_S, _LOOK_S = 5.0, 1.0
_COPY_MOST = 100_000  # characters that terminals take by OSC 52


def own_theme() -> Theme:
    """The one theme that is ours: every text has a contrast of at least 4.5 to what is behind it."""
    colors = theme.COLORS
    return Theme(
        name=theme.NAME,
        primary=colors["accent"],
        secondary=colors["muted"],
        accent=colors["accent"],
        foreground=colors["text"],
        background=theme.BACKGROUND,
        surface=theme.BACKGROUND,
        panel=theme.CURSOR,
        success=colors["good"],
        warning=colors["warn"],
        error=colors["bad"],
        variables={
            "text-muted": colors["muted"],
            "text-accent": colors["accent"],
            "text-success": colors["good"],
            "text-warning": colors["warn"],
            "text-error": colors["bad"],
            "rail": theme.RAIL,
            "row": theme.CURSOR,
        },
    )


class ViewChanged(Message):
    """The run moved; a newer one makes an older one needless."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, ViewChanged)


class VibeApp(App[int], inherit_bindings=False):
    """vibetui."""

    TITLE = "vibetui"
    CSS_PATH = "style.tcss"
    BINDINGS = []
    NOTIFICATION_TIMEOUT = 3

    def __init__(
        self,
        runs: Path,
        run: RunDir | None = None,
        *,
        ascii_only: bool = False,
        demo_label: str = "",
        keymap: dict[str, str] | None = None,
        state_dir: Path | None = None,
    ) -> None:
        """``runs`` is where run folders lie, ``run`` the one to open at once; ``state_dir`` keeps copies and traces."""
        super().__init__()
        self.runs, self._first_run = runs, run
        self.ascii_only, self.demo_label = ascii_only, demo_label
        self.registry: tuple[Key, ...] = with_keymap(keymap or {})
        self._own_keys = dict(keymap or {})
        self.state_dir = state_dir or default_state_dir()
        self.view: View | None = None
        self._feed: Feed | None = None
        self.fault = ""
        self.leaving = threading.Event()
        self._keys_for: WeakKeyDictionary[KeyPressed, Screen[object]] = WeakKeyDictionary()
        self.register_theme(own_theme())
        self.theme = theme.NAME
        self.stylesheet = Sheet(variables=self.get_css_variables())  # read once, with the theme's colours

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return {"rail": "#5a6070", "row": "#30363f"}

    def on_mount(self) -> None:
        if self._own_keys:
            self.set_keymap(self._own_keys)
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._signalled, number)
        if self._first_run is not None:
            self.open_run(self._first_run)
        else:
            self.open_runs()

    def on_unmount(self) -> None:
        self.leaving.set()
        self._let_go()

    def _signalled(self, number: int) -> None:
        """Leave the terminal as it was, then the process; the run is not touched."""
        last = threading.Timer(_LEAVE_S, os._exit, (128 + number,))
        last.daemon = True
        last.start()  # a terminal that is gone takes nothing any more, and Textual would wait for it for ever
        self.exit(return_code=128 + number)

    # -- the run that is looked at

    def open_run(self, run: RunDir) -> None:
        """Attach to a run: live, finished, crashed or copied."""
        self._to_bottom()
        self._feed = Feed(run, self._posted, self._broke)
        self.view = View(run=run)
        screen = RunScreen()
        self.push_screen(screen)
        screen.call_after_refresh(self._feed.start)  # the journal is read once there is something to see

    def _posted(self, view: View) -> None:
        self.post_message(ViewChanged(view))

    def _broke(self, error: Exception) -> None:
        self.call_from_thread(self._raise, error)

    def _raise(self, error: Exception) -> None:
        raise error

    def on_view_changed(self, message: ViewChanged) -> None:
        if self.view is None or message.view.run != self.view.run:
            return
        self.view = message.view
        if isinstance(self.screen, Base) and self.screen.is_there:
            self.screen.take(message.view)

    def _let_go(self) -> None:
        if self._feed is not None:
            self._feed.stop()
        self._feed, self.view = None, None

    def _to_bottom(self) -> None:
        """Down to the bottom of the stack, Textual's own empty screen, which is never seen."""
        self._let_go()
        while len(self.screen_stack) > 1:
            self.pop_screen()

    # -- screens

    def open_runs(self) -> None:
        """The list of runs; made when it is first asked for, because most start with a run."""
        from vibetui.screens.runs import RunsScreen

        if not isinstance(self.screen, RunsScreen):
            self._to_bottom()
            if not self.is_screen_installed(RunsScreen.kind):
                self.install_screen(RunsScreen(), RunsScreen.kind)
            self.push_screen(RunsScreen.kind)

    def go_back(self) -> None:
        """One screen back; the list of runs is the first."""
        if len(self.screen_stack) <= 2:
            self.open_runs()
        else:
            self.pop_screen()

    def open_candidate(self, name: str) -> None:
        """What a candidate changed."""
        from vibetui.screens.candidate import CandidateScreen

        moved = self.view.state.candidates.get(name) if self.view else None
        first = next(
            (i for i, part in enumerate(("data", "trainer", "harness")) if moved and part in moved.components), 0
        )
        self._open(CandidateScreen(name, first))

    def open_traces(self, name: str, problem: str = "") -> None:
        """Its problems and trajectories."""
        from vibetui.screens.traces import TracesScreen

        self._open(TracesScreen(name, problem))

    def open_compare(self, name: str) -> None:
        """A candidate against another."""
        from vibetui.screens.compare import CompareScreen

        self._open(CompareScreen(name))

    def open_log(self) -> None:
        """Events and logs."""
        from vibetui.screens.log import LogScreen

        self._open(LogScreen())

    def open_new(self) -> None:
        """The form for a new run."""
        from vibetui.screens.new import NewScreen

        self._open(NewScreen())

    def open_help(self, about: str) -> None:
        """The keys of a screen."""
        from vibetui.screens.help import HelpScreen

        self._open(HelpScreen(about))

    async def screen_there(self) -> None:
        """Wait until the screen on top has its widgets and its focus."""
        if self.is_running:
            await self.screen._mounted_event.wait()

    async def on_event(self, event: Event) -> None:
        """A key that comes back from a screen that gave way meanwhile was meant for the screen that took its place."""
        if isinstance(event, KeyPressed):
            if not event.is_forwarded:
                self._keys_for[event] = self.screen
            elif self._keys_for.pop(event, self.screen) is not self.screen:
                event = KeyPressed(event.key, event.character)
        await super().on_event(event)

    def _open(self, screen: Base) -> None:
        """A screen of a kind that is open already is gone back to, so that the stack stays short."""
        kinds = [one.kind if isinstance(one, Base) else "" for one in self.screen_stack]
        if screen.kind in kinds[1:]:
            for _ in range(len(kinds) - kinds.index(screen.kind, 1)):
                self.pop_screen()
        self.push_screen(screen)

    def detach(self) -> None:
        """Leave; the run goes on."""
        self.exit(0)

    # -- asking the run

    def ask_stop(self) -> None:
        """Ask whether to stop; yes leaves a request that the run honours and records."""
        from vibetui.screens.ask import AskScreen

        claimed = self.view is not None and self.view.state.outcome.claimed is not None
        words = [
            "What runs now (agent, training, validation) is ended.",
            "Everything so far is kept; "
            + ("the claimed hidden test stays claimed." if claimed else "no hidden test is spent."),
            "S (or `runner resume`) goes on with the same budget.",
        ]
        self.push_screen(AskScreen("stop this run?", words, "stop it", self._stop))

    def _stop(self) -> None:
        if self.view is None:
            return
        try:
            self.view.run.request_stop()
        except JournalError as error:
            self.tell(str(error))
        else:
            self.tell("asked the run to stop; it says so when it has")

    def ask_resume(self) -> None:
        """Ask whether to go on with a run that stopped or crashed."""
        from vibetui.screens.ask import AskScreen

        words = ["`runner resume` is started as a process of its own,", "under the same configuration and budget."]
        self.push_screen(AskScreen("go on with this run?", words, "resume it", self._resume))

    def _resume(self) -> None:
        if self.view is not None:
            run = self.view.run
            self.tell("asked `runner resume` to go on")
            self.run_worker(lambda: self._resumed(run), thread=True, exclusive=True, group="resume")

    def _resumed(self, run: RunDir) -> None:
        from vibetui.start import StartError, resume

        try:
            resume(run, self.leaving)
        except StartError as error:
            if not self.leaving.is_set():
                self.call_from_thread(self.tell, str(error).strip().splitlines()[-1])

    def started(self, words: list[str]) -> RunDir | str:
        """Start `runner WORDS`, in a thread of a screen's: the run's folder, or what was said instead."""
        from vibetui.start import StartError, start

        try:
            return start(words, self.runs, self.leaving)
        except StartError as error:
            return str(error)

    # -- small things

    def runs_words(self) -> list[str]:
        """How `runner` is told where runs lie; nothing where that is its default."""
        return [] if self.runs == Path("runs") else ["--runs", str(self.runs)]

    def nothing_here(self) -> str:
        """What to type where there is no run."""
        return "no runs here. Press n, or type: vibetui start --task aime    A look first: vibetui demo"

    def tell(self, text: str) -> None:
        """Say something for a moment; what was said before gives way."""
        text = one_line(text, 200)
        self.clear_notifications()
        self.notify(theme.to_ascii(text) if self.ascii_only else text, markup=False)

    def copy(self, text: str) -> None:
        """To the clipboard by OSC 52 where the terminal knows it, and always into a file."""
        text = "\n".join(one_line(part, 4000) for part in text.splitlines()).strip()
        if not text:
            self.tell("nothing to copy")
            return
        if len(text) <= _COPY_MOST:
            self.copy_to_clipboard(text)
        path = self.state_dir / "copied.txt"
        said = "" if written(path, text + "\n") else f", also in {path}"
        self.tell(f"copied {len(text)} characters{said}")

    def next_theme(self) -> None:
        """The next of the themes, ours first."""
        names = [theme.NAME, *sorted(name for name in self.available_themes if name != theme.NAME)]
        self.theme = names[(names.index(self.theme) + 1) % len(names)]
        self.tell(f"theme {self.theme}")

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        kind = screen.kind if isinstance(screen, Base) else ""
        for key in keys_of(kind, self.registry) if isinstance(screen, Base) else ():
            if key.group != "move" and key.id != "palette":
                yield SystemCommand(key.label, f"{key.help} ({key.shown})", getattr(screen, f"do_{key.id}"))
        for name in self.available_themes:
            yield SystemCommand(f"Theme {name}", "colours", lambda name=name: setattr(self, "theme", name))

    # -- faults

    def _fatal_error(self) -> None:
        """Instead of Textual's trace, which prints the values of variables: a trace without them, into a file."""
        trace = traceback.format_exc()
        path = self.state_dir / "fault.txt"
        problem = written(path, trace)
        where = f"the trace is in {path}" if not problem else one_line(trace.strip().splitlines()[-1], 300)
        self.fault = f"vibetui: a fault of the program; {where}. The run is not touched."
        self._exit_renderables.append(Text(self.fault))
        self._close_messages_no_wait()


def _end_with_terminal(fd: int) -> None:
    """End the process when its terminal is gone: there is nothing left to paint on and nothing to restore."""
    while True:
        time.sleep(_LOOK_S)
        try:
            termios.tcgetattr(fd)
        except (termios.error, OSError):
            os._exit(128 + signal.SIGHUP)


def run_app(app: VibeApp, *, mouse: bool) -> int:
    """Run it on this terminal; returns the exit status."""
    threading.Thread(target=_end_with_terminal, args=(sys.stdin.fileno(),), daemon=True).start()
    app.run(mouse=mouse)
    sys.stderr.flush()
    return app.return_code or 0
