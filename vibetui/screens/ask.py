"""The two questions before something that matters: stop this run? go on with it?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.containers import Container
from textual.screen import ModalScreen

from vibetui.keys import shown
from vibetui.screens.base import bindings
from vibetui.text import Line, line, wrapped
from vibetui.widgets.paint import Palette
from vibetui.widgets.panel import title
from vibetui.widgets.parts import Facts

if TYPE_CHECKING:
    from vibetui.app import VibeApp

_WIDE = 66  # cells of the box, as the style sheet has it


class Question(Palette, Container):
    """The box: its background is not that of the screen, through which the run is seen."""


class AskScreen(ModalScreen[None], inherit_bindings=False):
    """A question with yes and no; what is done is told, what is not done is a key away."""

    kind = "ask"
    BINDINGS = bindings("ask")  # type: ignore[assignment]

    def __init__(self, heading: str, words: list[str], yes: str, then: Callable[[], None]) -> None:
        super().__init__()
        self._heading, self._words, self._yes, self._then = heading, words, yes, then

    def compose(self) -> ComposeResult:
        with Question(id="question"):
            yield Facts(id="words")

    def on_mount(self) -> None:
        if cast("VibeApp", self.app).ascii_only:
            self.add_class("-ascii")
        title(self.query_one("#question"), self._heading)
        keys = {key.id: shown(key.keys[0]) for key in cast("VibeApp", self.app).registry}
        room = min(_WIDE, round(self.app.size.width * 0.95)) - 6  # its border and padding
        lines: list[Line] = [part for word in self._words for part in wrapped(line(word), room)]
        lines += [
            (),
            line((keys["yes"], "accent"), (f" {self._yes}     ", "text"), (keys["no"], "accent"), " leave it"),
        ]
        facts = self.query_one(Facts)
        facts.styles.height = len(lines)
        facts.say(lines)

    def action_press(self, key: str) -> None:
        """A key of the registry."""
        getattr(self, f"do_{key}")()

    def do_yes(self) -> None:
        self.dismiss()
        self._then()

    def do_no(self) -> None:
        self.dismiss()
