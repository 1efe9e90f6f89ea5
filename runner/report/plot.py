"""How figures look, and how they are saved: quiet, labelled, as SVG and PNG. The only user of matplotlib's settings.

Needs the extra ``report``; imported by the figures alone.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tasks.spec import Component

# Found by matplotlib's font search on machines with few fonts; one line on stderr would be one too many.
logging.getLogger("matplotlib").setLevel(logging.ERROR)

INK, SOFT, FAINT, PAPER = "#22262e", "#6a7180", "#e3e5ea", "#fefefe"
VALIDATION, HIDDEN = "#3a68a6", "#b0561f"
GOOD, BAD = "#2c7a4c", "#b23c35"
COMPONENT: dict[Component, str] = {"data": "#23807a", "trainer": "#7f58a6", "harness": "#b5811b"}
LABEL = {"grade": "#4d7bb5", "train": "#8764ac", "sample": "#239088", "wait": "#b8bdc8", "think": "#d7a547"}

# A page replaces these colours by its own names, so that a figure follows the page into the dark.
NAMES = {INK: "ink", SOFT: "soft", FAINT: "faint", PAPER: "paper", VALIDATION: "validation", HIDDEN: "hidden",
         GOOD: "good", BAD: "bad", COMPONENT["data"]: "data", COMPONENT["trainer"]: "trainer",
         COMPONENT["harness"]: "harness"}  # fmt: skip

_STYLE: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9.0,
    "text.color": INK,
    "axes.labelcolor": SOFT,
    "axes.edgecolor": FAINT,
    "axes.facecolor": PAPER,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": FAINT,
    "grid.linewidth": 0.8,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.major.size": 3.0,
    "ytick.major.size": 0.0,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "svg.fonttype": "none",
    "text.parse_math": False,  # what others wrote is no mathematics
}


@dataclass(frozen=True, slots=True)
class Picture:
    """One figure, drawn. ``name`` is its file's stem; ``words`` say what it shows, for who cannot see it."""

    name: str
    title: str
    words: str
    svg: bytes
    png: bytes


@contextmanager
def _drawing(name: str) -> Iterator[None]:
    with rc_context({**_STYLE, "svg.hashsalt": name}):
        yield


def draw(name: str, title: str, words: str, size: tuple[float, float], paint: Callable[[Axes], None]) -> Picture:
    """A figure with one pair of axes of ``size`` inches, painted by ``paint``; the same input gives the same bytes."""
    with _drawing(name):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        paint(axes)
        return Picture(name, title, words, _saved(figure, "svg"), _saved(figure, "png"))


def _saved(figure: Figure, kind: str) -> bytes:
    out = io.BytesIO()
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    figure.savefig(out, format=kind, dpi=160, metadata=metadata)
    return out.getvalue()


def percent_axis(axes: Axes, label: str, *, low: float = 0.0, high: float | None = None) -> None:
    """The y axis in percent from ``low`` to ``high``."""
    axes.yaxis.set_major_formatter(lambda value, _: f"{value * 100:.0f} %".replace("-", "−"))
    axes.set_ylim(bottom=low, top=high)
    axes.set_ylabel(label)


def inline(picture: Picture) -> str:
    """The SVG as part of an HTML page: no prolog, no fixed size, the page's colours and font."""
    text = picture.svg.decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'<g id="[^"]*">', "<g>", text)
    text = re.sub(r"font: ([0-9.]+)px [^;\"]*", r"font-size: \1px", text)
    text = re.sub(r"font: (bold|700) ([0-9.]+)px [^;\"]*", r"font-weight: 700; font-size: \2px", text)
    for colour, name in NAMES.items():
        text = text.replace(colour, f"var(--{name})")
    return text
