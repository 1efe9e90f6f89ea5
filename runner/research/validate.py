"""The validation service: a candidate in, its recorded score out. A failed evaluation is retried, never scored 0."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from grader.errors import GraderError
from grader.intervals import paired_delta, rewards_of
from grader.protocol import Delta, Evaluate, ProblemRow, Progress, Reply, Score, ScoreFile
from isolation.problem import BenchError
from runner.record.events import Integrity, JobStatus, ValidationFinished, ValidationProgress, ValidationStarted, Warned
from runner.research.candidate import INITIAL, Candidate, Registry, show_feedback
from runner.research.contamination import Contamination, Refused
from runner.research.lab import Lab, ask
from runner.research.workspace import materialised

_PROGRESS_S = 1.0
ATTEMPTS = 2


class ValidationFailed(GraderError):
    """The infrastructure broke twice: there is no score, and it is not 0."""


class ValidationService:
    """Evaluates candidates, one call at a time; cancelling the task that runs it ends the evaluation in the grader."""

    def __init__(self, lab: Lab, registry: Registry) -> None:
        self._lab = lab
        self._registry = registry
        self._contamination = Contamination(lab, registry)

    async def run(
        self,
        candidate: Candidate,
        job: str,
        *,
        late: Callable[[], bool],
        on_progress: Callable[[str], None],
        why_cancelled: Callable[[], JobStatus],
        evaluation: str | None = None,
    ) -> Score:
        """Evaluate; journal start, progress and end; show the feedback. Raises ValidationFailed.

        ``late`` is asked at the end: a score that comes after the budget's end counts nowhere. ``evaluation`` names one
        that a crash cut short: its committed waves are not run again.
        """
        lab = self._lab
        name = evaluation or self._registry.next_id("e", 3)
        loop = asyncio.get_running_loop()
        began = loop.time()
        start = ValidationStarted(
            job=job, candidate=candidate.id, eval=name, problems=lab.problems, samples=lab.config.samples
        )
        lab.journal.append(start, sync=True)
        status: JobStatus = "failed"
        score, error, cached = None, "", False
        try:
            result = await self._evaluate(candidate, job, name, on_progress)
            score, cached = result[0].score, result[1]
            status = "late" if late() else "ok"
            return score
        except BenchError as failed:
            error = str(failed)
            raise
        except asyncio.CancelledError:
            status = why_cancelled()
            raise
        finally:
            lab.journal.append(
                ValidationFinished(
                    job=job,
                    candidate=candidate.id,
                    eval=name,
                    status=status,
                    seconds=loop.time() - began,
                    score=score,
                    cached=cached,
                    error=error,
                ),
                sync=True,
            )
            if status == "ok":
                show_feedback(lab, candidate)

    def repeat(self, candidate: Candidate, job: str) -> None:
        """Journal that the recorded result of an equal candidate was handed out again."""
        assert candidate.eval is not None
        self._lab.journal.append(
            ValidationFinished(
                job=job,
                candidate=candidate.id,
                eval=candidate.eval,
                status="ok",
                seconds=0.0,
                score=candidate.score,
                repeat=True,
            )
        )

    async def _evaluate(
        self, candidate: Candidate, job: str, name: str, on_progress: Callable[[str], None]
    ) -> tuple[ScoreFile, bool]:
        """The evaluation's score file, and whether it came from the grader's cache."""
        lab = self._lab
        out = lab.rundir.evaluation(name)
        out.mkdir(exist_ok=True)
        harness = await materialised(lab, candidate.snapshots["harness"])
        try:
            await self._contamination.harness(candidate, job)
        except Refused as refused:
            raise ValidationFailed(f"the harness was refused: {refused.line}") from None
        error = ""
        for attempt in range(ATTEMPTS):
            request = Evaluate(
                id=f"{name}-{attempt}",
                eval=name,
                candidate=candidate.id,
                model=self._registry.ref(candidate.model),
                harness_dir=str(harness),
                out_dir=str(out),
                cache_dir=str(lab.rundir.shared_cache) if candidate.id == INITIAL else None,
            )
            reply = await ask(lab.grader, request, self._watch(candidate.id, job, on_progress))
            found, error = _score_file(reply)
            if found is not None:
                self._flag_calls(candidate, found)
                return found, bool(reply.result.get("cached", False))
            lab.journal.append(Warned(what=f"evaluation failed: {error}", where=name))
        raise ValidationFailed(f"the evaluation failed {ATTEMPTS} times: {error}")

    def _flag_calls(self, candidate: Candidate, score: ScoreFile) -> None:
        """Problems solved without a model call: a harness that computes, or one that knows the answers."""
        if score.zero_call_solves:
            detail = f"{score.zero_call_solves} of {score.score.n} problems"
            self._lab.journal.append(Integrity(what="solved without a model call", where=candidate.id, detail=detail))

    def _watch(self, candidate: str, job: str, on_progress: Callable[[str], None]) -> Callable[[Progress], None]:
        """A progress callback that says all to the waiting client and at most one a second to the journal."""
        loop = asyncio.get_running_loop()
        last = -_PROGRESS_S

        def seen(progress: Progress) -> None:
            nonlocal last
            on_progress(f"{candidate}: {progress.done}/{progress.total} {progress.note}".rstrip())
            if loop.time() - last >= _PROGRESS_S or progress.done == progress.total:
                last = loop.time()
                event = ValidationProgress(job=job, candidate=candidate, done=progress.done, total=progress.total)
                self._lab.journal.append(event)

        return seen


def _score_file(reply: Reply) -> tuple[ScoreFile | None, str]:
    """The score file in a reply, or why there is none."""
    if not reply.ok:
        return None, reply.error or ("cancelled" if reply.cancelled else "no reason given")
    fields = {key: value for key, value in reply.result.items() if key in ScoreFile.model_fields}
    try:
        return ScoreFile.model_validate(fields), ""
    except ValidationError as error:
        return None, f"the grader's answer does not fit ({error.error_count()} fields)"


def paired(lab: Lab, before: Candidate, after: Candidate) -> Delta | None:
    """score(after) − score(before) over the same problems, from their problems.jsonl; None if one is missing."""
    rows = [_rows(lab, candidate) for candidate in (before, after)]
    if not rows[0] or not rows[1]:
        return None
    problems = {row.problem for part in rows for row in part}
    first, second = (rewards_of(part, problems) for part in rows)
    return paired_delta(first, second, lab.config.samples)


def _rows(lab: Lab, candidate: Candidate) -> list[ProblemRow]:
    if candidate.eval is None:
        return []
    path: Path = lab.rundir.evaluation(candidate.eval) / "problems.jsonl"
    if not path.is_file():
        return []
    return [ProblemRow.model_validate_json(line) for line in path.read_bytes().splitlines() if line.strip()]
