"""``runner compare A B``: two candidates on validation, or two runs on hidden problems. B − A, problem by problem where
both saw the same problems, else as two separate scores.

Of hidden problems only counts and the test are told, never which problem it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from grader.protocol import Delta, Score
from runner.config import ConfigError
from runner.record.describe import delta_text, foreign, score_text
from runner.record.journal import JournalError, load
from runner.record.naming import names
from runner.record.pairs import Pair, paired
from runner.record.rundir import RunDir, find
from runner.record.state import RunState, chosen, validation_of
from runner.report import evidence
from runner.report.statistics import unpaired_delta
from runner.report.words import pair_text

Split = Literal["VALIDATION", "HIDDEN"]
_SHOWN = 30


@dataclass(frozen=True, slots=True)
class Side:
    """A run, or with ``candidate`` one candidate of it."""

    run: RunDir
    state: RunState
    candidate: str | None

    @property
    def name(self) -> str:
        """How it was named, clean."""
        return foreign(self.run.name if self.candidate is None else f"{self.run.name}:{self.candidate}", 80)

    @property
    def system(self) -> str | None:
        """The candidate meant: the one named, else the selected."""
        return self.candidate or chosen(self.state)


@dataclass(frozen=True, slots=True)
class Compared:
    """B − A on one split; ``pair`` where the problems are the same, ``delta`` always."""

    split: Split
    before: Score
    after: Score
    delta: Delta
    pair: Pair | None


def side(root: Path, name: str) -> Side:
    """``RUN``, ``RUN:c03``, or ``c03`` of the newest run. Raises JournalError and ConfigError."""
    run_name, _, candidate = name.rpartition(":")
    if not run_name and candidate[:1] == "c" and candidate[1:].isdigit():
        run_name = "latest"
    elif not run_name:
        run_name, candidate = candidate, ""
    run = find(root, run_name)
    state = load(run.journal_file)
    if candidate and candidate not in state.candidates:
        known = ", ".join(foreign(item, 12) for item in list(state.candidates)[:20]) or "none"
        raise ConfigError(f"has no candidate {candidate[:40]!a}", where=run.name, do=f"Name one of {known}")
    return Side(run, state, candidate or None)


def compare(a: Side, b: Side) -> list[Compared]:
    """What can be compared: validation of two systems, and hidden of two runs. Raises ConfigError for nothing."""
    if a.state.run is None or b.state.run is None:
        raise ConfigError("has not started", where=a.name if a.state.run is None else b.name, do="Wait for it")
    if a.state.run.task != b.state.run.task:
        raise ConfigError("other tasks cannot be compared", where=f"{a.name}, {b.name}", do="Compare runs of one task")
    candidates = a.candidate is not None or b.candidate is not None
    found = [*([] if candidates else _hidden(a, b)), *_validation(a, b)]
    if not found:
        do = "Name validated candidates (RUN:c03), or runs that had their hidden test"
        raise ConfigError("there is nothing to compare", where=f"{a.name}, {b.name}", do=do)
    return found


def _validation(a: Side, b: Side) -> Iterator[Compared]:
    before, after = validation_of(a.state, a.system), validation_of(b.state, b.system)
    if before is None or after is None:
        return
    same = _sha(a.state, "VALIDATION") == _sha(b.state, "VALIDATION") and before.samples == after.samples
    rows = [_rows(one) for one in (a, b)] if same else [None, None]
    yield _compared("VALIDATION", before, after, rows[0], rows[1])


def _hidden(a: Side, b: Side) -> Iterator[Compared]:
    if a.state.hidden is None or b.state.hidden is None:
        return
    before, after = a.state.hidden.selected, b.state.hidden.selected
    same = _sha(a.state, "HIDDEN") == _sha(b.state, "HIDDEN") and before.samples == after.samples
    rows = [evidence.rewards(one.run.hidden / "selected", samples=before.samples) if same else None for one in (a, b)]
    yield _compared("HIDDEN", before, after, rows[0], rows[1])


def _compared(
    split: Split, before: Score, after: Score, old: evidence.Rewards | None, new: evidence.Rewards | None
) -> Compared:
    """Paired only where the rows of both are there, are of the same problems, and give the recorded scores."""
    if old is None or new is None or set(old) != set(new):
        return Compared(split, before, after, unpaired_delta(before, after), None)
    if not (evidence.agrees(old, before) and evidence.agrees(new, after)):
        return Compared(split, before, after, unpaired_delta(before, after), None)
    pair = paired(old, new, before.samples)
    return Compared(split, before, after, pair.delta, pair)


def _sha(state: RunState, split: Split) -> str | None:
    """The digest of the split's file; two unknown ones may still turn out to hold the same problems."""
    task = state.head.task
    if task is None:
        return None
    return task.validation.sha256 if split == "VALIDATION" else task.hidden.sha256


def _rows(one: Side) -> evidence.Rewards | None:
    known = one.state.candidates.get(one.system or "")
    if known is None or known.validation is None or not known.eval:
        return None
    try:
        return evidence.rewards(one.run.evaluation(known.eval), samples=known.validation.samples)
    except JournalError:
        return None


def as_text(a: Side, b: Side, found: list[Compared]) -> str:
    """For reading: A, B, the difference with its test, and on validation which problems flipped."""
    lines = [f"A  {a.name}", f"B  {b.name}"]
    for item in found:
        system = (foreign(one.system or "", 20) for one in (a, b))
        sides = ", ".join(f"{letter} = {name}" for letter, name in zip("AB", system, strict=True))
        label = f"{_called(a, b, item.split)} ({sides})"
        lines += ["", label, f"  A  {score_text(item.before)}", f"  B  {score_text(item.after)}"]
        if item.pair is None:
            lines.append(f"  B − A  {delta_text(item.delta)} points (other problems or no rows: not paired)")
            continue
        lines.append(f"  B − A  {pair_text(item.pair, 'A')}")
        if item.split == "VALIDATION":
            lines += [*_flips("gained", item.pair.gained), *_flips("lost", item.pair.lost)]
    if found[0].split == "VALIDATION":
        called = names(a.state)
        seen = f"{called.seen.capitalize()} was seen by the agents: this is no result. Compare {called.test}s."
        lines += ["", seen]
    return "\n".join(lines) + "\n"


def _called(a: Side, b: Side, split: Split) -> str:
    """What the scores of a split are called, by both sides' protocols."""
    words = (names(one.state) for one in (a, b))
    return " / ".join(dict.fromkeys(one.SEEN if split == "VALIDATION" else one.COUNTED for one in words))


def _flips(word: str, problems: tuple[str, ...]) -> list[str]:
    if not problems:
        return []
    more = f" and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return [f"  {word}: {', '.join(foreign(name, 40) for name in problems[:_SHOWN])}{more}"]


def as_json(a: Side, b: Side, found: list[Compared]) -> dict[str, Any]:
    """The same for programs."""
    return {"a": a.name, "b": b.name, "compared": [_plain(item) for item in found]}


def _plain(item: Compared) -> dict[str, Any]:
    pair = asdict(item.pair) | {"verdict": item.pair.verdict} if item.pair else None
    if pair is not None:
        pair["delta"] = item.delta.model_dump()
        if item.split == "HIDDEN":
            pair |= {"gained": len(pair["gained"]), "lost": len(pair["lost"])}
    return {
        "split": item.split,
        "a": item.before.model_dump(),
        "b": item.after.model_dump(),
        "delta": item.delta.model_dump(),
        "pair": pair,
    }
