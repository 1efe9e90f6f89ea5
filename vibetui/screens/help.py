"""All keys of a screen, from the registry, and what the signs mean."""

from __future__ import annotations

from collections.abc import Iterable

from textual.app import ComposeResult
from textual.containers import Container

from vibetui.keys import Key, keys_of, shown
from vibetui.screens.base import Base, bindings
from vibetui.text import Line, line
from vibetui.theme import Symbols
from vibetui.widgets.lines import Lines
from vibetui.widgets.paint import symbols_of
from vibetui.widgets.panel import title

_GROUPS = {"go": "go", "view": "look", "run": "the run", "move": "move", "all": "everywhere"}


def help_lines(kind: str, registry: Iterable[Key], symbols: Symbols) -> list[Line]:
    """The keys by group, then the legend."""
    keys, lines = keys_of(kind, registry), list[Line]()
    for group, name in _GROUPS.items():
        here = [key for key in keys if key.group == group]
        if here:
            lines.append(line((name, "title")))
            lines += [
                line(
                    (f"  {' '.join(shown(one) for one in key.keys):<16}", "accent"),
                    f"{key.label:<15}",
                    (key.help, "muted"),
                )
                for key in here
            ]
            lines.append(())
    return [*lines, *_legend(symbols)]


def _legend(signs: Symbols) -> list[Line]:
    rows = (
        (f"{signs.live} LIVE", "a process holds the run and writes"),
        (f"{signs.quiet} QUIET", "a process holds the run, nothing was written for two minutes"),
        (f"{signs.crashed} CRASHED", "its process died on this machine; it can be resumed"),
        (f"{signs.finished} FINISHED", "it said that it is over"),
        (f"{signs.copied} COPIED", "it ran on another machine, or before this one was started anew"),
        (f"{signs.point} eval", "a validation with its 95 % interval"),
        (f"{signs.starting} P0", "the initial system; its score is the dotted line"),
        (f"{signs.star}", "the selected candidate, before that the best"),
        (f"{signs.cross}", "a validation that failed or came too late"),
        ("D T H", "lines or examples by which data, trainer, harness moved: +412 −3 ±38, · not at all"),
        ("Δ P0", "points against the initial system"),
        ("gap", "hidden minus validation of the selected candidate"),
    )
    return [line(("signs", "title")), *(line((f"  {sign:<14}", "text"), (words, "muted")) for sign, words in rows)]


class HelpScreen(Base):
    """Help for the screen it was opened from."""

    kind = "help"
    BINDINGS = bindings("help")  # type: ignore[assignment]

    def __init__(self, about: str) -> None:
        super().__init__()
        self._about = about

    def body(self) -> ComposeResult:
        with Container(id="part"):
            yield Lines(id="keys", note="")

    def on_mount(self) -> None:
        super().on_mount()
        lines = self.query_one(Lines)
        lines.show(help_lines(self._about, self.vibe.registry, symbols_of(self)))
        title(lines, f"help: {self._about}")

    def do_help(self) -> None:
        self.vibe.go_back()
