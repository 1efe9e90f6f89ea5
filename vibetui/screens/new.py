"""A new run: a few answers, the command line that they make, and its start as a process of its own."""

from __future__ import annotations

import shlex

from textual.app import ComposeResult
from textual.containers import Container, Horizontal
from textual.widget import Widget
from textual.widgets import Input, Label

from runner.record.rundir import RunDir
from vibetui.follow import View
from vibetui.screens.base import Base, bindings
from vibetui.text import Line, line, one_line
from vibetui.widgets.panel import title
from vibetui.widgets.parts import Facts

FIELDS = (
    ("task", "aime", "what is asked"),
    ("agent", "scripted", "who does the research"),
    ("model", "", "empty: this machine's default"),
    ("problems", "", "empty: this machine's default"),
    ("budget", "", "wall time: 90s, 20m, 12h"),
    ("scope", "", "data+trainer+harness"),
    ("seed", "", "a number"),
)


def command_of(answers: dict[str, str]) -> list[str]:
    """The arguments of `runner` for these answers; empty ones are left to it."""
    return [word for name, _, _ in FIELDS if (value := answers.get(name, "").strip()) for word in (f"--{name}", value)]


class NewScreen(Base):
    """The form."""

    kind = "new"
    BINDINGS = bindings("new")  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self._busy = False

    def body(self) -> ComposeResult:
        with Container(id="form"):
            for name, value, hint in FIELDS:
                with Horizontal(classes="field"):
                    yield Label(name, markup=False)
                    yield Input(value, placeholder=hint, id=f"field-{name}", compact=True)
        yield Facts(id="command")

    def on_mount(self) -> None:
        super().on_mount()
        title(self.query_one("#form"), "a new run")
        self._say()

    def first_focus(self) -> Widget | None:
        return self.query_one("#field-task")

    def show(self, view: View) -> None:
        self._say()

    def answers(self) -> dict[str, str]:
        """What stands in the form."""
        return {name: self.query_one(f"#field-{name}", Input).value for name, _, _ in FIELDS}

    def _say(self, problem: str = "") -> None:
        words = shlex.join(["runner", *command_of(self.answers()), *self.vibe.runs_words()])
        lines: list[Line] = [line(("the same as  ", "muted"), (one_line(words, 400), "strong")), ()]
        if problem:
            lines += [line((one_line(part, 300), "bad")) for part in problem.strip().splitlines()[-6:]]
        else:
            start = next(key.shown for key in self.vibe.registry if key.id == "submit")
            lines.append(line((f"enter goes on, {start} starts, esc leaves. The run is its own process.", "muted")))
        self.query_one("#command", Facts).say(lines)

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id != "prompt":
            self._say()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id != "prompt":
            self.focus_next()

    def do_submit(self) -> None:
        if self._busy:
            return
        self._busy = True
        self._say("starting …")
        words = [*command_of(self.answers()), *self.vibe.runs_words()]
        self.load("start", lambda: self.vibe.started(words), self._opened)

    def _opened(self, found: RunDir | str) -> None:
        if isinstance(found, RunDir):
            self.vibe.open_run(found)
        else:
            self._busy = False
            self._say(found)
