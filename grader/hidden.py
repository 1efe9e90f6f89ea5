"""The one hidden test: the selected candidate and P0 on the hidden split, each (problem, sample) judged at most once.

Called after the research sandbox is dead and the ledger holds the claim. A crash anywhere leaves the claim and the
committed waves; asking again goes on from there, with the same candidate alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from grader.engines.base import EngineError
from grader.errors import GraderError
from grader.evaluate import Bench, Evaluation, OnAttempt, Rules, Split, Subject
from grader.intervals import paired_delta, rewards_of
from grader.ledger import Ledger
from grader.protocol import Delta, HiddenResult, ProblemRow, ScoreFile

CRASHED = "candidate_crash"
OnNoted = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class HiddenParts:
    """What the test needs. ``fresh`` ends the engine and starts a new one, and returns the bench with it."""

    rules: Rules
    split: Split
    selected: Subject
    initial: Subject
    ledger: Ledger
    fresh: Callable[[], Awaitable[Bench]]
    on_progress: OnNoted
    on_attempt: OnAttempt


class HiddenTest:
    """The test of one claim. The order is fixed: the selected candidate, then P0; equal systems are run once."""

    def __init__(self, parts: HiddenParts) -> None:
        self._parts = parts
        self._same = parts.selected.identity == parts.initial.identity
        self._each = len(parts.split.problems) * parts.rules.samples
        self._total = self._each * (1 if self._same else 2)

    async def run(self) -> HiddenResult:
        """Both scores and their difference. Raises GraderError; the run then stays claimed and resumable."""
        parts = self._parts
        bench = await parts.fresh()
        if self._same:
            initial = await self._evaluate(bench, parts.initial, 0, "P0 hidden")
            return self._record(HiddenResult(initial=initial, selected=initial, delta=Delta(value=0, low=0, high=0)))
        selected, bench = await self._selected(bench)
        initial = await self._evaluate(bench, parts.initial, self._each, "P0 hidden")
        if selected is None:
            selected = await self._evaluation(bench, parts.selected, 0, "P* hidden").give_up(CRASHED)
        delta = paired_delta(self._rewards(parts.initial), self._rewards(parts.selected), parts.rules.samples)
        crashed = selected.reasons.get(CRASHED, 0) > 0
        return self._record(
            HiddenResult(initial=initial, selected=selected, delta=delta, status="candidate_crash" if crashed else "ok")
        )

    async def _selected(self, bench: Bench) -> tuple[ScoreFile | None, Bench]:
        """The candidate's score, or None when a second fresh engine died on it too; and an engine for P0."""
        try:
            return await self._evaluation(bench, self._parts.selected, 0, "P* hidden").run(), bench
        except EngineError as error:
            self._parts.ledger.record("engine_failed", {"candidate": self._parts.selected.candidate, "why": str(error)})
        bench = await self._parts.fresh()
        try:
            return await self._evaluation(bench, self._parts.selected, 0, "P* hidden, again").run(), bench
        except EngineError as error:
            self._parts.ledger.record("engine_failed", {"candidate": self._parts.selected.candidate, "why": str(error)})
        return None, await self._parts.fresh()

    async def _evaluate(self, bench: Bench, subject: Subject, before: int, note: str) -> ScoreFile:
        """P0: an engine that cannot serve it is the machine's fault, not the candidate's."""
        try:
            return await self._evaluation(bench, subject, before, note).run()
        except EngineError as error:
            raise GraderError(f"the engine fails on P0: {error}", where="hidden test", do="Resume the run") from None

    def _evaluation(self, bench: Bench, subject: Subject, before: int, note: str) -> Evaluation:
        parts = self._parts
        return Evaluation(
            bench,
            parts.rules,
            parts.split,
            subject,
            on_progress=lambda done, _: parts.on_progress(before + done, self._total, note),
            on_attempt=parts.on_attempt,
        )

    def _rewards(self, subject: Subject) -> dict[str, list[float]]:
        lines = (subject.out_dir / "problems.jsonl").read_bytes().splitlines()
        return rewards_of((ProblemRow.model_validate_json(line) for line in lines), self._parts.split.problems)

    def _record(self, result: HiddenResult) -> HiddenResult:
        """Once, also when a resume finds everything already there."""
        if not any(entry.kind == "finished" for entry in self._parts.ledger.read()):
            self._parts.ledger.record("finished", result.model_dump(mode="json"))
        return result
