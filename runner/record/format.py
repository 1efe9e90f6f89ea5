"""Numbers and foreign text as people read them: the only place where either becomes a string for a person."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from isolation.clean import clean_line
from runner.record.events import Delta, DiffSize, Score, Split
from tasks.spec import COMPONENTS, LETTERS, Component

NONE = "–"


def number(value: float, digits: int = 1) -> str:
    """``value`` with a true minus sign, never ``-0.0``."""
    text = f"{value:.{digits}f}"
    return f"−{text[1:]}" if text.startswith("-") and float(text) != 0 else text.lstrip("-")


def signed(value: float, digits: int = 1) -> str:
    """As :func:`number`, with a plus before what is above zero."""
    text = number(value, digits)
    return text if text.startswith("−") or float(text) == 0 else f"+{text}"


def percent(score: float | None) -> str:
    """A score of 0…1: ``32.9 %``."""
    return NONE if score is None else f"{number(score * 100)} %"


def score_text(score: Score | None) -> str:
    """``32.9 % [29.1, 36.9] n=112``, with ``×4`` after n where there are several samples per problem."""
    if score is None:
        return NONE
    samples = f"×{count(score.samples)}" if score.samples > 1 else ""
    between = f"[{number(score.low * 100)}, {number(score.high * 100)}]"
    return f"{percent(score.score)} {between} n={count(score.n)}{samples}"


def delta_text(delta: Delta | float | None) -> str:
    """A difference of scores in points: ``+2.0``, with ``[−1.0, +5.0]`` where the interval is known."""
    if delta is None:
        return NONE
    if not isinstance(delta, Delta):
        return signed(delta * 100)
    return f"{signed(delta.value * 100)} [{signed(delta.low * 100)}, {signed(delta.high * 100)}]"


def duration(seconds: float | None) -> str:
    """``0.4s``, ``45s``, ``12m03s``, ``2h05m``, ``123h``."""
    if seconds is None:
        return NONE
    if seconds < 0:
        return f"−{duration(-seconds)}"
    if seconds < 9.95:
        return f"{number(seconds)}s" if seconds >= 0.05 else "0s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 360_000:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{seconds / 3600:.0f}h" if seconds < 3.6e12 else "∞"


def clock(seconds: float) -> str:
    """Budget time as ``0:12:31``."""
    whole = int(min(max(seconds, 0.0), 3.6e9))
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


def count(value: int) -> str:
    """``999``, ``173k``, ``1.2M``, ``3.4G``: tokens, bytes-free counts."""
    if value < 0:
        return f"−{count(-value)}"
    if value < 10_000:
        return str(value)
    for size, letter in ((1_000, "k"), (1_000_000, "M"), (1_000_000_000, "G")):
        scaled = min(value, 10**15) / size
        if scaled < 999.5:
            return f"{scaled:.1f}{letter}" if scaled < 9.95 else f"{scaled:.0f}{letter}"
    return "≥1T"


def tokens(value: int | None) -> str:
    """A number of tokens; – when not counted."""
    return NONE if value is None else count(value)


def size_text(value: int) -> str:
    """Bytes: ``512 B``, ``3.1 MB``."""
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= size:
            return f"{min(value, 10**15) / size:.1f} {unit}"
    return f"{value} B"


def money(value: float | None) -> str:
    """Money in the currency of the price table; – when not counted."""
    return NONE if value is None else number(value, 2)


def share(part: float, whole: float) -> str:
    """``63 %`` of a whole; – of nothing."""
    return f"{part / whole * 100:.0f} %" if whole > 0 else NONE


def waiting_share(split: Split) -> float | None:
    """(grade + train + sample + wait) / total of the budget seconds; None before any second passed."""
    waiting = split.grade + split.train + split.sample + split.wait
    total = waiting + split.think
    return waiting / total if total > 0 else None


def split_text(split: Split) -> str:
    """``grade 21 % · train 40 % · sample 0 % · wait 2 % · think 37 %``."""
    total = split.grade + split.train + split.sample + split.wait + split.think
    parts = (
        ("grade", split.grade),
        ("train", split.train),
        ("sample", split.sample),
        ("wait", split.wait),
        ("think", split.think),
    )
    return " · ".join(f"{name} {share(seconds, total)}" for name, seconds in parts)


def letters(components: Iterable[Component]) -> str:
    """``D+H``: components by letter, in order; – for none."""
    there = frozenset(components)
    return "+".join(LETTERS[component] for component in COMPONENTS if component in there) or NONE


def diff_cell(size: DiffSize | None) -> str:
    """How far one component moved: ``+412``, ``−3``, ``±38``, ``·`` for not at all."""
    if size is None or not (size.added or size.removed or size.files):
        return "·"
    if size.added and size.removed:
        return f"±{count(size.added + size.removed)}"
    if size.removed:
        return f"−{count(size.removed)}"
    return f"+{count(size.added)}" if size.added else f"{count(size.files)}f"


def diff_text(diff: Mapping[Component, DiffSize]) -> str:
    """``D +412 T · H ±38``."""
    return " ".join(f"{LETTERS[component]} {diff_cell(diff.get(component))}" for component in COMPONENTS)


def foreign(text: str, limit: int = 120) -> str:
    """Text that others wrote (agents, trainers, file names, model output): one clean line of at most ``limit``."""
    return clean_line(text, limit)
