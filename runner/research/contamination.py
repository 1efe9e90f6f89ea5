"""What an agent's files may not hold: graded problems, the model's answers to them, weights from elsewhere.

Data and trainers that hold any are refused before they are trained with, and the agent is told the lines. A harness is
only flagged: what it does with a problem is seen in its trajectories. The hidden problems are compared by the grader
alone, after the hidden test; what that finds comes back through :func:`record_hidden`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from grader.errors import GraderError
from grader.protocol import Overlap, Scan, ScanPart, ScanResult
from isolation.intake import Manifest
from runner.record.events import Integrity, Warned
from runner.research.candidate import BASE, Candidate, Registry
from runner.research.lab import Lab, ask
from runner.research.workspace import materialised
from tasks.spec import COMPONENTS, Component

_LINES = 12


class Refused(Exception):
    """One line for the agent: what is where, and what to do."""

    def __init__(self, line: str) -> None:
        super().__init__(line)
        self.line = line


class Contamination:
    """The checks of one run's texts, by way of the grader."""

    def __init__(self, lab: Lab, registry: Registry) -> None:
        self._lab = lab
        self._registry = registry

    async def training(self, job: str, data: Manifest, trainer: Manifest) -> None:
        """Raises :class:`Refused` when a training may not begin; journals what was seen."""
        await self._check(job, {"data": data.id, "trainer": trainer.id}, refuse=True)

    async def harness(self, candidate: Candidate, job: str) -> None:
        """Flags validation problems in a harness. Raises Refused for weights in it."""
        await self._check(job, {"harness": candidate.snapshots["harness"]}, refuse=False)

    async def _check(self, job: str, snapshots: dict[Component, str], *, refuse: bool) -> None:
        """Compare the snapshots that are not the run's own first ones."""
        own = {part: name for part, name in snapshots.items() if name != self._lab.initial.get(part)}
        if not own:
            return
        parts = [ScanPart(name=part, folder=str(await materialised(self._lab, name))) for part, name in own.items()]
        found = await self._scan(job, parts)
        if what := self._foreign(found):
            self._lab.journal.append(Integrity(what="foreign weights refused", where=job, detail=what))
            raise Refused(f"{what}. Only text passes: weights come from the training service")
        if found.overlaps:
            detail = described(found.overlaps, found.more)
            what = "validation problems in training data" if refuse else "validation problems in a harness"
            self._lab.journal.append(Integrity(what=what, where=job, detail=detail))
            if refuse:
                raise Refused(f"validation problems in what would be trained on: {detail}. Take these lines out")
        if found.broken:
            where = " and ".join(found.broken)
            self._lab.journal.append(Integrity(what="files that make their reader fail", where=job, detail=where))
            if refuse:
                raise Refused(f"{where} cannot be read: write plain text, without deep nesting, in several files")
        elif found.status == "not_checked":
            why = "; ".join(found.unchecked[:3]) or "the grader did not say why"
            self._lab.journal.append(Warned(what=f"not compared with the validation problems: {why}", where=job))

    async def _scan(self, job: str, parts: Sequence[ScanPart]) -> ScanResult:
        evals = [self._lab.rundir.evaluation(one.eval) for one in self._registry.candidates.values() if one.eval]
        request = Scan(
            id=f"scan-{job}",
            parts=tuple(parts),
            known=await known(self._lab),
            evals=tuple(str(folder / "trajectories") for folder in evals if (folder / "trajectories").is_dir()),
        )
        reply = await ask(self._lab.grader, request)
        if not reply.ok:
            raise GraderError(reply.error or "the files could not be compared", where="scan", do="Try it once more")
        return ScanResult.model_validate(reply.result)

    def _foreign(self, found: ScanResult) -> str:
        """Why the files are no text, or ""."""
        for one in found.foreign:
            if one.what:
                return f"{one.part}/{one.path} is {one.what}"
        sizes = self._lab.config.intake
        limits = {"data": sizes.opaque_data, "trainer": sizes.opaque_trainer, "harness": sizes.opaque_harness}
        for part, size in found.opaque.items():
            if size > limits.get(part, 0):
                worst = next((one.path for one in found.foreign if one.part == part), "")
                return (
                    f"{part} holds {size >> 10} KiB that are no readable text, more than {limits[part] >> 10} KiB "
                    f"(most of it in {worst})"
                )
        return ""


async def known(lab: Lab) -> tuple[str, ...]:
    """The files that every agent of this task is given: what is in them is no evidence."""
    folders = [await materialised(lab, lab.initial[part]) for part in COMPONENTS if part in lab.initial]
    others = (lab.rundir.path / "sources", lab.runtime / "brief")
    return tuple(str(folder) for folder in (*folders, *(one for one in others if one.is_dir())))


async def lineage(lab: Lab, registry: Registry, chosen: Candidate) -> tuple[ScanPart, ...]:
    """Every snapshot that ``chosen`` came from and that is not the run's own: D and T of its models, and its H."""
    wanted: dict[str, str] = {}
    models, seen = [chosen.model], {BASE}
    while models:
        model = models.pop()
        if model in seen:
            continue
        seen.add(model)
        made = registry.models[model]
        wanted |= {made.data: f"{model} data", made.trainer: f"{model} trainer"}
        models += made.parents
    wanted[chosen.snapshots["harness"]] = f"{chosen.id} harness"
    own = set(lab.initial.values())
    rows = [(name, snapshot) for snapshot, name in wanted.items() if snapshot not in own]
    return tuple(
        [ScanPart(name=name, folder=str(await materialised(lab, snapshot))) for name, snapshot in sorted(rows)]
    )


def record_hidden(lab: Lab, found: ScanResult) -> None:
    """Journal what the comparison with the hidden problems found. The research phase is over when this is called."""
    for where, rows in groupby(found.overlaps, lambda row: f"{row.part}/{row.path}"):
        detail = _lines(list(rows))
        lab.journal.append(Integrity(what="hidden problems in the selected candidate", where=where, detail=detail))
    if found.more:
        detail = f"{found.more} more places"
        lab.journal.append(Integrity(what="hidden problems in the selected candidate", where="sealed", detail=detail))
    if found.status == "not_checked":
        why = "; ".join(found.unchecked[:3]) or "the grader did not say why"
        lab.journal.append(Warned(what=f"not compared with the hidden problems: {why}", where="hidden test"))


def described(rows: Iterable[Overlap], more: int = 0) -> str:
    """Findings in one line, by file: ``data/train.jsonl lines 3, 17 (v004, v011; question)``."""
    files = groupby(rows, lambda row: f"{row.part}/{row.path}")
    text = "; ".join(f"{where} {_lines(list(found))}" for where, found in files)
    return text + (f"; and {more} more places" if more else "")


def _lines(rows: Sequence[Overlap]) -> str:
    numbers = list(dict.fromkeys(row.line for row in rows))
    problems = list(dict.fromkeys(row.problem for row in rows))
    ways = list(dict.fromkeys(f"{row.how} in {row.via}" if row.via else row.how for row in rows))
    shown = ", ".join(map(str, numbers[:_LINES])) + (f" and {len(numbers) - _LINES} more" if numbers[_LINES:] else "")
    names = ", ".join(problems[:_LINES]) + ("…" if problems[_LINES:] else "")
    return f"line{'s' if len(numbers) > 1 else ''} {shown} ({names}; {', '.join(ways[:3])})"
