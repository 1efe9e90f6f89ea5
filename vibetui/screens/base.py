"""What all screens share: head, notice, footer, the prompt, the keys of the registry, moving in what is focused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input
from textual.worker import get_current_worker

from vibetui.keys import keys_of
from vibetui.text import Line, line, one_line
from vibetui.widgets.lines import Lines
from vibetui.widgets.paint import Block, Palette, Scroller, symbols_of
from vibetui.widgets.status import Foot, Head, Notice, liveness_of, now_line
from vibetui.widgets.table import Table

if TYPE_CHECKING:
    from vibetui.app import VibeApp
    from vibetui.follow import View

MIN_CELLS, MIN_ROWS = 60, 16
Found = TypeVar("Found")


def bindings(screen: str) -> list[Binding]:
    """The bindings of a screen, from the registry; ids are those of the registry, so that a keymap can move them."""
    return [
        Binding(",".join(key.keys), f"press('{key.id}')", key.label, show=False, id=key.id) for key in keys_of(screen)
    ]


class Prompt(Input):
    """The one line that asks: a filter, a word to find, a line number."""

    def __init__(self) -> None:
        super().__init__(id="prompt", select_on_focus=False)
        self.then: Callable[[str], None] | None = None
        self.live: Callable[[str], None] | None = None

    def on_mount(self) -> None:
        self.display = False


class Small(Block):
    """What stands there when the terminal is too small for a screen: the plain facts."""

    view: View | None = None

    def build(self, cells: int, rows: int) -> list[Line]:
        needed = f"at least {MIN_CELLS}×{MIN_ROWS} is needed, this is {self.app.size.width}×{self.app.size.height}"
        lines = [line((needed, "warn"))]
        if self.view is not None:
            sign, word, role = liveness_of(self.view, symbols_of(self))
            best = self.view.state.best
            score = f"{best.id} {best.validation.score * 100:.1f}" if best and best.validation else "no score yet"
            lines += [
                line((f"{sign} {word} ", role), one_line(self.view.run.name, 40)),
                line(f"best {score}"),
                now_line(self.view.state, cells, symbols_of(self)),
            ]
        return [*lines, line(("q leaves, the run goes on", "muted"))]


class Base(Palette, Screen[None], inherit_bindings=False):
    """A screen of the viewer. Subclasses say ``kind``, :meth:`body`, :meth:`show`, and a ``do_<id>`` for each key."""

    kind: ClassVar[str] = ""
    HORIZONTAL_BREAKPOINTS = [(0, "-thin"), (MIN_CELLS, "-narrow"), (110, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (MIN_ROWS, "-low"), (21, "-mid"), (30, "-tall")]
    AUTO_FOCUS = ""

    def __init__(self) -> None:
        super().__init__()
        self._asked: dict[str, int] = {}
        self._hunts: list[bool] = []  # searches that were asked for, each of them back or not
        # From the start, so that the first frame is not laid out and painted twice.
        for cells, classes in zip(self.app.size, (self.HORIZONTAL_BREAKPOINTS, self.VERTICAL_BREAKPOINTS), strict=True):
            self.add_class(next(name for least, name in reversed(classes) if cells >= least))

    @property
    def vibe(self) -> VibeApp:
        """The app, by its own type."""
        return cast("VibeApp", self.app)

    @property
    def on_top(self) -> bool:
        """Is this the screen that is seen? Textual's ``is_current`` is true for the one behind it, too."""
        return self.app.screen is self

    @property
    def is_there(self) -> bool:
        """Are its widgets there? While it or the program is taken down, some are gone, though it still is mounted."""
        return self.is_mounted and self.app.is_running and not self._pruning

    def compose(self) -> ComposeResult:
        yield Small(id="small")
        yield Head(id="head")
        yield Notice(id="notice")
        yield from self.body()
        yield Prompt()
        yield Foot(self.kind, self.vibe.registry)

    def body(self) -> ComposeResult:
        """The widgets between head and footer."""
        raise NotImplementedError

    def on_mount(self) -> None:
        if self.vibe.ascii_only:
            self.add_class("-ascii")
        head = self.query_one(Head)
        head.demo, head.run = self.vibe.demo_label, self.vibe.attached
        if self.vibe.view is not None:
            self.take(self.vibe.view)
        if (first := self.first_focus()) is not None:
            self.set_focus(first)  # now, not with the next message: a key that is pressed at once is for it
        self.call_after_refresh(self.vibe.painted)

    def on_screen_resume(self) -> None:
        if self.vibe.view is not None and self.is_there:
            self.take(self.vibe.view)

    def first_focus(self) -> Widget | None:
        """What is focused at the start."""
        return next(iter(self.query(Scroller)), None)

    def take(self, view: View) -> None:
        """Show a moment of the run."""
        small = self.query_one(Small)
        small.view = view
        if self.size.width < MIN_CELLS or self.size.height < MIN_ROWS:
            small.changed()
            return
        self.query_one(Foot).show(view)
        self.query_one(Head).show(view)
        self.query_one(Notice).show(view)
        self.show(view)

    def on_resize(self) -> None:
        if self.vibe.view is not None:
            self.call_after_refresh(self.again)

    def again(self) -> None:
        """Show the newest moment once more: the size, or what is looked at, is another."""
        if self.vibe.view is not None and self.is_there:
            self.take(self.vibe.view)

    def show(self, view: View) -> None:
        """Show the run in the screen's own widgets."""

    def load(self, group: str, read: Callable[[], Found], then: Callable[[Found], None]) -> None:
        """Do ``read`` in a thread and give ``then`` what it found, unless the screen is gone or has asked anew."""
        self._asked[group] = number = self._asked.get(group, 0) + 1

        def arrived(found: Found) -> None:
            if self.is_there and self._asked[group] == number:
                then(found)

        self.run_worker(lambda: self.app.call_from_thread(arrived, read()), thread=True, exclusive=True, group=group)

    # -- keys

    def useful(self, key: str) -> bool:
        """Does a key do something on this screen as it is now? The footer has no other."""
        return True

    async def action_press(self, key: str) -> None:
        """A key of the registry; the screen that it opens is there before the next key is looked at."""
        getattr(self, f"do_{key}")()
        await self.vibe.screen_there()

    def do_help(self) -> None:
        self.vibe.open_help(self.kind)

    def do_palette(self) -> None:
        self.app.action_command_palette()

    def do_runs(self) -> None:
        self.vibe.open_runs()

    def do_quit(self) -> None:
        self.vibe.detach()

    def do_back(self) -> None:
        prompt = self.query_one(Prompt)
        if prompt.display:
            self._close_prompt(prompt)
            if prompt.live is not None:
                prompt.live("")
        else:
            self.vibe.go_back()

    def do_next(self) -> None:
        self.focus_next()

    def do_previous(self) -> None:
        self.focus_previous()

    def do_theme(self) -> None:
        self.vibe.next_theme()

    def do_copy(self) -> None:
        target = self.scroller()
        self.vibe.copy(target.current() if target else "")

    def do_copy_path(self) -> None:
        if self.vibe.attached is not None:
            self.vibe.copy(str(self.vibe.attached.path))

    # -- moving

    def scroller(self) -> Scroller | None:
        """What the moving keys move: the focused one, else the first in sight."""
        if isinstance(self.focused, Scroller) and self.focused.display:
            return self.focused
        return next((one for one in self.query(Scroller) if one.is_on_screen), None)

    def _move(self, rows: int) -> None:
        if (target := self.scroller()) is not None:
            target.move(rows)

    def do_down(self) -> None:
        self._move(1)

    def do_up(self) -> None:
        self._move(-1)

    def do_page_down(self) -> None:
        if (target := self.scroller()) is not None:
            target.move(target.page())

    def do_page_up(self) -> None:
        if (target := self.scroller()) is not None:
            target.move(-target.page())

    def do_top(self) -> None:
        if (target := self.scroller()) is not None:
            target.first()

    def do_bottom(self) -> None:
        if (target := self.scroller()) is not None:
            target.last()

    def do_step_back(self) -> None:
        if (target := self.scroller()) is not None:
            target.sideways(-8)

    def do_step_on(self) -> None:
        if (target := self.scroller()) is not None:
            target.sideways(8)

    def do_open(self) -> None:
        if isinstance(target := self.scroller(), Table):
            target.open()

    # -- reading

    _word = ""

    def reader(self) -> Lines | None:
        """The lines in sight."""
        target = self.scroller()
        if isinstance(target, Lines):
            return target
        return next((one for one in self.query(Lines) if one.is_on_screen), None)

    def do_wrap(self) -> None:
        if (target := self.reader()) is not None:
            self.vibe.tell("long lines are folded" if target.toggle_wrap() else "long lines go on to the right")

    def do_find(self) -> None:
        self.ask("find", self._find)

    def _find(self, word: str) -> None:
        self._word = word
        self.forget_hunts()
        self.do_find_next()

    def do_find_next(self) -> None:
        self._search(back=False)

    def do_find_back(self) -> None:
        self._search(back=True)

    def _search(self, *, back: bool) -> None:
        """Find in a thread: a long log takes seconds. What is asked meanwhile comes after it."""
        self._hunts.append(back)
        if len(self._hunts) == 1:
            self._hunt()

    def _hunt(self) -> None:
        target = self.reader()
        if target is None or not self._word:
            self._hunts.clear()
            return
        hunt = target.hunt(self._word, back=self._hunts[0])
        self.load("find", lambda: hunt(lambda: not get_current_worker().is_cancelled), partial(self._hunted, target))

    def _hunted(self, target: Lines, number: int | None) -> None:
        self._hunts.pop(0)
        if number is None:
            self.vibe.tell(f"“{one_line(self._word, 40)}” is not there")
            self._hunts.clear()
        else:
            target.go_to(number)
            self.found()
        if self._hunts:
            self._hunt()

    def forget_hunts(self) -> None:
        """Nothing is looked for any more: the word or the lines are others."""
        self._hunts.clear()
        self._asked["find"] = self._asked.get("find", 0) + 1
        self.workers.cancel_group(self, "find")

    def found(self) -> None:
        """Another line is looked at."""

    # -- asking

    def ask(self, label: str, then: Callable[[str], None], live: Callable[[str], None] | None = None) -> None:
        """Ask for one line; ``live`` hears every change of it."""
        prompt = self.query_one(Prompt)
        prompt.then, prompt.live = then, live
        prompt.value = ""
        prompt.placeholder = f"{label}: enter takes it, esc leaves"
        prompt.display = True
        self.set_focus(prompt)

    def on_input_changed(self, event: Input.Changed) -> None:
        if isinstance(event.input, Prompt) and event.input.live is not None and event.input.display:
            event.input.live(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if isinstance(event.input, Prompt):
            then = event.input.then
            self._close_prompt(event.input)
            if then is not None:
                then(event.value)

    def _close_prompt(self, prompt: Prompt) -> None:
        prompt.display = False
        if (first := self.scroller() or self.first_focus()) is not None:
            self.set_focus(first)
