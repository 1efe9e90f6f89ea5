"""The one registry of keys: bindings, footer, help, palette, a person's own keymap and the README's table come from it.

``id`` names the method ``do_<id>`` of every screen that has the key. Nothing can be done with the mouse alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

EVERYWHERE = "*"
SCREENS = ("runs", "run", "candidate", "traces", "log", "compare", "new", "help", "ask")
_READING = ("candidate", "traces", "log", "compare", "help")
_TABLES = ("runs", "run", "traces")


@dataclass(frozen=True, slots=True)
class Key:
    """One thing that can be done. ``foot`` > 0 puts it into the footer, the lowest first."""

    id: str
    keys: tuple[str, ...]
    label: str
    help: str
    screens: tuple[str, ...]
    group: str
    foot: int = 0

    @property
    def shown(self) -> str:
        """The first key as a person reads it."""
        return shown(self.keys[0])


_NAMES = {
    "question_mark": "?", "slash": "/", "left_square_bracket": "[", "right_square_bracket": "]", "enter": "⏎",
    "escape": "esc", "ctrl+p": "^p", "ctrl+c": "^c", "ctrl+r": "^r", "colon": ":", "pagedown": "pgdn",
    "pageup": "pgup", "up": "↑", "down": "↓", "left": "←", "right": "→",
}  # fmt: skip


def shown(key: str) -> str:
    """A key's name for reading."""
    return _NAMES.get(key, key)


def _key(id: str, keys: str, label: str, help: str, screens: Iterable[str], group: str, foot: int = 0) -> Key:
    return Key(id, tuple(keys.split()), label, help, tuple(screens), group, foot)


REGISTRY: tuple[Key, ...] = (
    _key("help", "question_mark", "Help", "all keys of this screen, and what the signs mean", (EVERYWHERE,), "all", 90),
    _key("palette", "ctrl+p", "Palette", "find and do anything by its name; change the theme", (EVERYWHERE,), "all"),
    _key("runs", "r", "Runs", "the list of all runs", (EVERYWHERE,), "all", 80),
    _key("quit", "q ctrl+c", "Detach", "leave; the run goes on", (EVERYWHERE,), "all", 85),
    _key("back", "escape", "Back", "one screen back", (EVERYWHERE,), "all", 70),
    _key("next", "tab", "Next part", "go to the next part of the screen", (EVERYWHERE,), "all"),
    _key("previous", "shift+tab", "Previous part", "go to the part before", (EVERYWHERE,), "all"),
    _key("theme", "T", "Theme", "the next theme", (EVERYWHERE,), "all"),
    _key("copy", "y", "Copy", "copy the chosen row or line", (EVERYWHERE,), "all"),
    _key("copy_path", "Y", "Copy path", "copy the path of the run folder", (EVERYWHERE,), "all"),
    _key("open", "enter", "Open", "open the chosen row", ("runs", "run", "candidate", "traces"), "go", 1),
    _key("diff", "d", "Diff", "what the chosen candidate changed", ("run", "traces", "compare"), "go", 2),
    _key("traces", "t", "Traces", "its problems and trajectories", ("run", "candidate", "compare"), "go", 3),
    _key("log", "l", "Log", "events and logs", ("run", "candidate", "traces"), "go", 4),
    _key("compare", "c", "Compare", "compare it with its parent", ("run", "candidate", "traces"), "go", 5),
    _key("follow", "f", "Follow", "follow the newest: row or line", ("run", "log"), "view", 7),
    _key("filter", "slash", "Filter", "only rows that hold a word", _TABLES, "view", 8),
    _key("new", "n", "New run", "start a run", ("runs", "run"), "run", 9),
    _key("axis", "x", "X axis", "time, evaluations or tokens", ("run",), "view", 10),
    _key("zoom", "z", "Y zoom", "fit, 0–100, around the best", ("run",), "view", 11),
    _key("panel_1", "1", "Chart", "the chart alone, and back", ("run",), "view"),
    _key("panel_2", "2", "Events", "the events alone, and back", ("run",), "view"),
    _key("panel_3", "3", "Candidates", "the candidates alone, and back", ("run",), "view"),
    _key("stop", "s", "Stop", "ask the run to stop; it can be resumed", ("run",), "run", 6),
    _key("resume", "S", "Resume", "go on with a run that stopped or crashed", ("run",), "run", 1),
    _key("tab_1", "1", "First tab", "Data · Problems · Events", ("candidate", "log", "compare"), "view"),
    _key("tab_2", "2", "Second tab", "Trainer · Data · Agent", ("candidate", "log", "compare"), "view"),
    _key("tab_3", "3", "Third tab", "Harness · Trainer · Train", ("candidate", "log", "compare"), "view"),
    _key("tab_4", "4", "Fourth tab", "Traces · Harness · Grader", ("candidate", "log", "compare"), "view"),
    _key("tab_5", "5", "Fifth tab", "Train · Engine", ("candidate", "log"), "view"),
    _key(
        "before", "left_square_bracket", "Before", "the candidate or problem before",
        ("candidate", "traces", "compare"), "go", 12,
    ),
    _key(
        "after", "right_square_bracket", "After", "the candidate or problem after",
        ("candidate", "traces", "compare"), "go", 13,
    ),
    _key("parent", "p", "Parent", "go to its parent", ("candidate",), "go", 14),
    _key("against", "x", "Other side", "compare with the parent, with P0, with the best", ("compare",), "view", 6),
    _key("wrap", "w", "Wrap", "fold long lines, or not", ("candidate", "traces", "compare"), "view", 15),
    _key("sort", "o", "Order", "all, gained, lost, unsolved", ("traces",), "view", 8),
    _key("step_back", "left", "Left", "the step before; to the left in long lines", _READING, "move"),
    _key("step_on", "right", "Right", "the next step; to the right in long lines", _READING, "move"),
    _key("down", "j down", "Down", "one row down", (*_READING, "runs", "run"), "move"),
    _key("up", "k up", "Up", "one row up", (*_READING, "runs", "run"), "move"),
    _key("page_down", "space pagedown", "Page down", "one page down", (*_READING, "runs", "run"), "move"),
    _key("page_up", "b pageup", "Page up", "one page up", (*_READING, "runs", "run"), "move"),
    _key("top", "g home", "First", "the first row", (*_READING, "runs", "run"), "move"),
    _key("bottom", "G end", "Last", "the last row", (*_READING, "runs", "run"), "move"),
    _key("find", "slash", "Find", "find a word", ("candidate", "log", "compare"), "move", 7),
    _key("find_next", "n", "Next match", "the next place with the word", ("candidate", "log", "compare"), "move"),
    _key("find_back", "N", "Match before", "the place before", ("candidate", "log", "compare"), "move"),
    _key("submit", "ctrl+r", "Start", "start the run with these answers", ("new",), "run", 1),
    _key("yes", "y", "Yes", "do it", ("ask",), "all", 1),
    _key("no", "n escape", "No", "leave it", ("ask",), "all", 2),
    _key("line", "colon", "Line", "go to a line by its number", ("log",), "move"),
)  # fmt: skip


def keys_of(screen: str, registry: Iterable[Key] = REGISTRY) -> list[Key]:
    """The keys that a screen has, in the registry's order."""
    everywhere = screen != "ask"
    return [key for key in registry if screen in key.screens or (everywhere and EVERYWHERE in key.screens)]


def footer(screen: str, registry: Iterable[Key] = REGISTRY) -> list[Key]:
    """The keys of the footer, the most wanted first."""
    return sorted((key for key in keys_of(screen, registry) if key.foot), key=lambda key: key.foot)


def clashes(registry: Iterable[Key] = REGISTRY) -> list[str]:
    """Keys that mean two things on one screen: ``screen: key = one, other``."""
    found = []
    for screen in SCREENS:
        taken: dict[str, str] = {}
        for key in keys_of(screen, registry):
            for name in key.keys:
                if name in taken:
                    found.append(f"{screen}: {name} = {taken[name]}, {key.id}")
                taken[name] = key.id
    return found


def with_keymap(keymap: dict[str, str], registry: Iterable[Key] = REGISTRY) -> tuple[Key, ...]:
    """The registry with a person's own keys: ``{"stop": "ctrl+x"}``; several keys are separated by commas."""
    return tuple(
        replace(key, keys=tuple(part.strip() for part in keymap[key.id].split(",") if part.strip()) or key.keys)
        if key.id in keymap
        else key
        for key in registry
    )


def table(registry: Iterable[Key] = REGISTRY) -> str:
    """The Markdown table of the README."""
    groups = {"all": "everywhere", "go": "go", "run": "run", "view": "view", "move": "move"}
    lines = ["| | keys |", "|---|---|"]
    registry = list(registry)
    for group, name in groups.items():
        parts = []
        for key in registry:
            if key.group == group and not key.id.startswith(("tab_", "panel_")):
                parts.append(f"`{key.shown}` {key.label.lower()}")
        if group == "view":
            parts.append("`1`…`5` parts and tabs")
        lines.append(f"| {name} | {' · '.join(dict.fromkeys(parts))} |")
    return "\n".join(lines)
