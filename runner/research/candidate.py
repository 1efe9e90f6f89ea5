"""Models, candidates and evaluations of a run: an index over the journal, so that a resume finds the same one.

A candidate is (model, harness snapshot): equal pairs are the same candidate. Its data and trainer are those recorded
for the model. What a candidate changed is written once, when it is made, under candidates/cNN/.
"""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from grader.identity import tree_digest
from grader.protocol import ModelRef, Score
from isolation.files import write_atomic
from runner.record.events import (
    CandidateCreated,
    DiffSize,
    Event,
    JobQueued,
    ModelCreated,
    SampleFinished,
    SampleStarted,
    Selected,
    TrainStarted,
    ValidationFinished,
    ValidationStarted,
)
from runner.record.journal import Journal, read
from runner.research.diff import compare, write_difference
from runner.research.lab import Lab
from tasks.spec import COMPONENTS, Component

BASE = "m00"
INITIAL = "c00"


@dataclass(slots=True)
class Candidate:
    """One (model, harness) and what is known of it. ``eval`` names the evaluation that gave ``score``."""

    id: str
    parent: str | None
    model: str
    snapshots: dict[Component, str]
    components: tuple[Component, ...]
    hypothesis: str
    score: Score | None = None
    eval: str | None = None
    late: bool = False
    failed: bool = False

    @property
    def usable(self) -> bool:
        """Can it be selected: has it a score from inside the budget?"""
        return self.score is not None and not self.late


@dataclass(slots=True)
class Registry:
    """The index. Feed it every event in order; :meth:`of` does that for a journal's past and future."""

    models: dict[str, ModelCreated] = field(default_factory=dict)
    candidates: dict[str, Candidate] = field(default_factory=dict)
    selected: str | None = None
    last_validated: str = INITIAL
    lessons: list[str] = field(default_factory=list)  # the samples that hold replies of the teacher
    _by_pair: dict[tuple[str, str], str] = field(default_factory=dict)
    _highest: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, journal: Journal) -> Registry:
        """The index of everything ``journal`` holds and will hold."""
        registry = cls()
        for event in read(journal.path):
            registry.apply(event)
        journal.subscribe(lambda event, _state: registry.apply(event))
        return registry

    def apply(self, event: Event) -> None:
        """Take in one event; events of no interest change nothing."""
        match event.payload:
            case ModelCreated() as made:
                self.models[made.model] = made
                self._seen(made.model)
            case CandidateCreated() as made:
                self._add(made)
            case JobQueued(job=job) | TrainStarted(job=job):
                self._seen(job)
            case ValidationStarted(eval=evaluation, job=job):
                self._seen(evaluation)
                self._seen(job)
            case ValidationFinished() as end:
                self._finish(end)
            case Selected(candidate=candidate):
                self.selected = candidate
            case SampleStarted(sample=sample) if sample:
                self._seen(sample)
            case SampleFinished(sample=sample) as end if sample:
                self._seen(sample)
                if end.teacher and end.replies:
                    self.lessons.append(sample)
            case _:
                return

    def next_id(self, letter: str, digits: int) -> str:
        """The next free id: c04, m02, e013, j007, s001. It is taken at once."""
        before_first = -1 if letter in "cm" else 0  # c00 and m00 exist; the rest counts from 1
        name = f"{letter}{self._highest.get(letter, before_first) + 1:0{digits}d}"
        self._seen(name)
        return name

    def give_back(self, name: str) -> None:
        """Free the newest id again: nothing came of it."""
        letter, number = name[0], int(name[1:])
        if self._highest.get(letter) == number:
            self._highest[letter] = number - 1

    def ref(self, model: str) -> ModelRef:
        """How the grader is told of a model: by name, and by what it was when it was made."""
        made, base = self.models[model], self.models[BASE]
        sha256 = "" if made is base else made.sha256
        return ModelRef(id=model, format=made.format, sha256=sha256, base_sha256=base.sha256)

    def newest_model(self) -> str:
        """The model made last; the base before any training."""
        return list(self.models)[-1]

    def equal(self, model: str, harness: str) -> Candidate | None:
        """The candidate of this model and this harness snapshot, if there is one."""
        name = self._by_pair.get((model, harness))
        return self.candidates[name] if name else None

    def best(self) -> Candidate | None:
        """The first of the usable candidates with the highest score."""
        usable = [(-c.score.score, n, c) for n, c in enumerate(self.candidates.values()) if c.score and c.usable]
        return min(usable, key=lambda item: item[:2])[2] if usable else None

    def _add(self, made: CandidateCreated) -> None:
        snapshots: dict[Component, str] = {"data": made.data, "trainer": made.trainer, "harness": made.harness}
        self.candidates[made.candidate] = Candidate(
            made.candidate, made.parent, made.model, snapshots, made.components, made.hypothesis
        )
        self._by_pair[made.model, made.harness] = made.candidate
        self._seen(made.candidate)

    def _finish(self, end: ValidationFinished) -> None:
        self._seen(end.eval)
        candidate = self.candidates.get(end.candidate)
        if candidate is None or end.repeat:
            return
        if end.status in ("ok", "late") and end.score is not None:
            candidate.score, candidate.eval, candidate.late = end.score, end.eval, end.status == "late"
            candidate.failed = False
            if candidate.usable:
                self.last_validated = candidate.id
        else:
            candidate.failed = end.status == "failed"

    def _seen(self, name: str) -> None:
        if found := re.fullmatch(r"([a-z])(\d{1,9})", name):
            self._highest[found[1]] = max(self._highest.get(found[1], -1), int(found[2]))


async def create(
    lab: Lab, registry: Registry, *, model: str, harness: str, parent: str | None, hypothesis: str
) -> Candidate:
    """Make the candidate of (model, harness snapshot): its design against the parent, its diffs, its event."""
    made = registry.models[model]
    snapshots: dict[Component, str] = {"data": made.data, "trainer": made.trainer, "harness": harness}
    before = registry.candidates[parent].snapshots if parent else snapshots
    changed = tuple(part for part in COMPONENTS if snapshots[part] != before[part])
    name = registry.next_id("c", 2)
    folder = lab.rundir.candidate(name)
    sizes: dict[Component, DiffSize] = {}
    (folder / "diffs").mkdir(parents=True, exist_ok=True)
    for part in changed:
        difference = await compare(lab, part, before[part], snapshots[part])
        write_difference(folder / "diffs", part, difference)
        if difference is not None:
            sizes[part] = difference.size
    event = CandidateCreated(
        candidate=name,
        parent=parent,
        model=model,
        data=made.data,
        trainer=made.trainer,
        harness=harness,
        components=changed,
        diff=sizes,
        hypothesis=hypothesis,
    )
    write_atomic(folder / "manifest.json", event.model_dump_json().encode())
    lab.journal.append(event, sync=True)
    return registry.candidates[name]


async def create_initial(lab: Lab, registry: Registry) -> Candidate:
    """m00 and c00: the initial system P0, from the snapshots in ``lab.initial``."""
    initial = lab.initial
    if BASE not in registry.models:
        folder = Path(lab.config.base_dir)
        base = ModelCreated(
            model=BASE,
            job=None,
            format="base",
            parents=(),
            data=initial["data"],
            trainer=initial["trainer"],
            sha256=await asyncio.to_thread(tree_digest, folder, cards=False),
            bytes=await asyncio.to_thread(_weight_bytes, folder),
        )
        write_atomic(lab.rundir.model(BASE) / "manifest.json", base.model_dump_json().encode())
        lab.journal.append(base)
    found = registry.equal(BASE, initial["harness"])
    return found or await create(lab, registry, model=BASE, harness=initial["harness"], parent=None, hypothesis="")


def _weight_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def link_feedback(evaluation: Path, feedback: Path) -> None:
    """Show a finished evaluation to the agent: hard links of score.json, problems.jsonl and the trajectories."""
    (feedback / "trajectories").mkdir(parents=True, exist_ok=True)
    names = ["score.json", "problems.jsonl"]
    names += [f"trajectories/{path.name}" for path in sorted((evaluation / "trajectories").glob("*.jsonl"))]
    for name in names:
        source, target = evaluation / name, feedback / name
        if source.is_file() and not target.exists():
            os.link(source, target)


def show_feedback(lab: Lab, candidate: Candidate) -> Path | None:
    """The feedback folder of a validated candidate, filled; None when there is no evaluation."""
    if candidate.eval is None:
        return None
    folder = lab.rundir.feedback_of(candidate.id)
    link_feedback(lab.rundir.evaluation(candidate.eval), folder)
    return folder


def differing(candidate: Candidate, other: Candidate) -> tuple[Component, ...]:
    """The components in which two candidates differ."""
    return tuple(part for part in COMPONENTS if candidate.snapshots[part] != other.snapshots[part])
