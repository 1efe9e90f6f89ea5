"""The thread that follows a run: it reads, folds, and posts what a screen needs, at most twice a second.

It imports what reading takes itself, so that the first frame of the viewer is painted before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from runner.record.rundir import RunDir

if TYPE_CHECKING:
    from vibetui.follow import Reader, View

POLL_S = 0.5
_BREATH_S = 0.01


class Feed(threading.Thread):
    """Follows one run and posts a :class:`~vibetui.follow.View` whenever something changed."""

    def __init__(self, run: RunDir, post: Callable[[View], None], fail: Callable[[Exception], None]) -> None:
        """``post`` and ``fail`` are called in this thread; after ``fail`` nothing more comes."""
        super().__init__(name="feed", daemon=True)
        self._run = run
        self._post, self._fail = post, fail
        self._over = threading.Event()
        self._last: View | None = None

    def stop(self) -> None:
        """End the thread soon."""
        self._over.set()

    def run(self) -> None:
        """Read until stopped; the first view comes as soon as there is one, the rest at most every POLL_S."""
        try:
            from vibetui.follow import Reader

            self._follow(Reader(self._run))
        except Exception as error:
            self._fail(error)

    def _follow(self, reader: Reader) -> None:
        posted = 0.0
        while not self._over.is_set():
            more = reader.step()
            if not more or time.monotonic() - posted >= POLL_S:
                self._tell(reader.view())
                posted = time.monotonic()
            # Between two batches the screen gets its turn: one interpreter lock serves both threads.
            self._over.wait(_BREATH_S if more else POLL_S)
        reader.close()

    def _tell(self, view: View) -> None:
        last = self._last
        same = last is not None and last.state is view.state
        if same and last is not None and _frame(last) == _frame(view):
            return
        self._last = view
        self._post(view)


def _frame(view: View) -> tuple[object, ...]:
    """All of a view but its state that can change what is shown."""
    quiet = int(view.age_s // 10) if view.how == "quiet" else 0
    return view.how, view.held, view.ready, view.stopping, view.schema, len(view.news), quiet
