"""What each `vibe` verb does. Requests arrive parsed but hostile; answers are one object, refusals one line."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, TypeAdapter

from grader.protocol import Generate
from isolation.clean import clean_line
from isolation.files import write_atomic
from isolation.problem import IntakeError
from runner.record.events import EditRefused, ModelCreated, SampleFinished, SampleStarted, Selected
from runner.research.answers import budget_lines, change, described, history_line, named, noise, trained, used
from runner.research.candidate import BASE, INITIAL, Candidate, Registry, create, show_feedback
from runner.research.jobs import Answer, Job, Jobs, Refusal
from runner.research.lab import Lab, ask
from runner.research.replies import Replies, taken
from runner.research.teacher import MAX_REPLIES, Lesson, Teacher, Wanted, learn
from runner.research.train import TrainingFailed, TrainingService, TrainJob
from runner.research.validate import ValidationFailed, ValidationService, paired
from runner.research.workspace import snapshot
from tasks.spec import Component, Frozen

TEMPERATURE = 1.0  # of a sampling that names none; a teacher then draws at its own
SHOWN = 500  # candidates in one answer of `vibe history`
MOST_SELECTIONS = 10_000  # of a research phase: each is a line on the disk
_HYPOTHESIS = 500
_Model = Annotated[str, StringConstraints(pattern=r"^m[0-9]{2,6}$")]
_Candidate = Annotated[str, StringConstraints(pattern=r"^c[0-9]{2,6}$")]
_Job = Annotated[str, StringConstraints(pattern=r"^j[0-9]{3,6}$")]
_Text = Annotated[str, StringConstraints(max_length=60_000)]


class Status(Frozen):
    verb: Literal["status"]


class Train(Frozen):
    verb: Literal["train"]
    parents: Annotated[tuple[_Model, ...], Field(max_length=8)] = ()
    message: _Text = ""
    detach: bool = False


class Validate(Frozen):
    verb: Literal["validate"]
    model: _Model | None = None
    parent: _Candidate | None = None
    message: _Text = ""
    detach: bool = False


class Sample(Frozen):
    """Followed by ``{"row": …}`` lines and ``{"end": true}``."""

    verb: Literal["sample"]
    model: _Model | None = None
    teacher: bool = False
    n: Annotated[int, Field(ge=1, le=64)] = 1
    temperature: Annotated[float, Field(ge=0, le=10)] | None = None
    max_tokens: Annotated[int, Field(gt=0)] | None = None
    detach: bool = False


class Wait(Frozen):
    verb: Literal["wait"]
    job: _Job


class CancelJob(Frozen):
    verb: Literal["cancel"]
    job: _Job


class History(Frozen):
    verb: Literal["history"]


class Select(Frozen):
    verb: Literal["select"]
    candidate: _Candidate


class Finish(Frozen):
    verb: Literal["finish"]


Order = Status | Train | Validate | Sample | Wait | CancelJob | History | Select | Finish
ORDER: TypeAdapter[Order] = TypeAdapter(Annotated[Order, Field(discriminator="verb")])


class Verbs:
    """The verbs over the shared services. Starting a job returns it; everything else answers at once."""

    def __init__(self, lab: Lab, registry: Registry, jobs: Jobs, finish: Callable[[], None]) -> None:
        self.lab = lab
        self.registry = registry
        self.jobs = jobs
        self._finish = finish
        self._selections = 0
        self._training = TrainingService(lab, registry)
        self._validation = ValidationService(lab, registry)

    # -- answers at once

    def status(self) -> Answer:
        """Time, jobs, best and selected."""
        best, chosen = self.registry.best(), self.registry.selected
        lines = [f"{job.id} {job.verb} {job.state} {job.note}".rstrip() for job in self.jobs.active] or ["no job"]
        lines.append(f"best: {named(best)}" if best else "best: nothing validated yet")
        lines.append(f"selected: {chosen or 'nothing yet'}")
        lines += budget_lines(self.lab.budget.tick(), self.lab.budget.limits)
        active = [{"job": job.id, "verb": job.verb, "state": job.state, "note": job.note} for job in self.jobs.active]
        return {
            "ok": True,
            "text": "\n".join(lines),
            "jobs": active,
            "best": best and best.id,
            "score": best and best.score and best.score.score,
            "selected": chosen,
            "models": list(self.registry.models),
            "protocol": self.lab.config.protocol,
            "scope": list(self.lab.config.scope),
            "recipe_fields": list(self.lab.config.recipe_fields),
            "teacher": self.lab.config.teacher_model,
            **used(self.lab.budget.tick(), self.lab.budget.limits),
        }

    def history(self) -> Answer:
        """The candidates, oldest first; of very many the newest."""
        every = list(self.registry.candidates.values())
        rows = every[-SHOWN:]
        older = len(every) - len(rows)
        lines = ([f"({older} older ones are not shown)"] if older else []) + list(map(history_line, rows))
        candidates = [described(row) for row in rows]
        return {"ok": True, "text": "\n".join(lines), "candidates": candidates, "left_out": older}

    def select(self, name: str) -> Answer:
        """Choose a candidate; the last choice counts."""
        candidate = self._known_candidate(name)
        if not candidate.usable:
            raise Refusal(f"{name} has no valid score: run `vibe validate` for it first, or select another")
        if self.registry.selected != name:
            if self._selections >= MOST_SELECTIONS:
                chosen = self.registry.selected
                raise Refusal(f"all {MOST_SELECTIONS} selections of this run are used: {chosen} stays selected")
            self._selections += 1
            self.lab.journal.append(Selected(candidate=name, by="agent"), sync=True)
        return {"ok": True, "text": f"selected {named(candidate)}", "selected": name}

    def finish(self) -> Answer:
        """End the research phase: nothing is started any more."""
        self.jobs.closing = True
        self._finish()
        return {"ok": True, "text": f"the research phase ends; selected: {self.registry.selected or 'nothing'}"}

    def cancel(self, name: str) -> Answer:
        """Stop a job; its time stays charged."""
        job = self.job(name)
        if job.state == "done" or self.jobs.closing:
            raise Refusal(f"{name} has ended already, or the phase has: `vibe wait {name}` gives its answer")
        self.jobs.cancel(job, "cancelled")
        return {"ok": True, "text": f"{name} is being stopped", "job": name}

    def job(self, name: str) -> Job:
        """A job by id, or a refusal."""
        if name not in self.jobs.by_id:
            raise Refusal(f"there is no job {name}: `vibe status` shows those there are")
        return self.jobs.by_id[name]

    # -- jobs

    def train(self, order: Train) -> Job:
        """A model from T on D and the parents."""
        parents = tuple(dict.fromkeys(order.parents or (BASE,)))
        for parent in parents:
            self._known_model(parent)
        taken: list[TrainJob] = []

        async def prepare(job: Job) -> None:
            data, trainer = await self._snapshot("data"), await self._snapshot("trainer")
            taken.append(TrainJob(job.id, parents, data, trainer, hypothesis(order.message), job.say))

        async def execute(job: Job) -> Answer:
            try:
                made = await self._training.run(taken[0], lambda: job.stop)
            except TrainingFailed as failed:
                where = f"/feedback/jobs/{job.id}/train.log"
                text = "\n".join(filter(None, (f"{job.id}: {failed.line}", failed.log, f"whole log: {where}")))
                raise Refusal(text, error=failed.line, log=where) from failed
            job.model = made.model
            return trained(made)

        return self.jobs.submit("train", prepare, execute)

    def validate(self, order: Validate) -> Job:
        """A score for (model, H now)."""
        if order.model is not None:
            self._known_model(order.model)
        if order.parent is not None and not self._known_candidate(order.parent).usable:
            raise Refusal(f"{order.parent} has no valid score to compare with: name another --parent")
        ahead = next((job for job in self.jobs.active if job.verb == "train"), None) if not order.model else None
        newest = self.registry.newest_model()
        taken: list[str] = []

        async def prepare(_job: Job) -> None:
            taken.append((await self._snapshot("harness")).id)

        async def execute(job: Job) -> Answer:
            if ahead is not None and ahead.model is None:
                raise Refusal(f"{ahead.id} made no model: name one with --model (newest: {newest})")
            model = order.model or (ahead and ahead.model) or newest
            return await self._validated(job, model, taken[0], order)

        return self.jobs.submit("validate", prepare, execute)

    async def _validated(self, job: Job, model: str, harness: str, order: Validate) -> Answer:
        """Evaluate, or find the recorded result of an equal candidate."""
        known = self.registry.equal(model, harness)
        if known is not None and known.usable:
            self._validation.repeat(known, job.id)
            return {**self._result(known), "repeat": True}
        parent = order.parent or self.registry.last_validated
        candidate = known or await create(
            self.lab,
            self.registry,
            model=model,
            harness=harness,
            parent=parent,
            hypothesis=hypothesis(order.message),
        )
        try:
            await self._validation.run(
                candidate,
                job.id,
                late=self._over,
                on_progress=job.say,
                why_cancelled=lambda: job.stop,
            )
        except ValidationFailed as failed:
            raise Refusal(f"{candidate.id}: {failed}. There is no score; validate again") from failed
        return self._result(candidate)

    def sample(self, order: Sample, prompts: list[bytes]) -> Job:
        """Replies of a model to the agent's prompts (checked lines)."""
        if order.teacher:
            return self._lesson(order, prompts)
        model = order.model or self.registry.newest_model()
        self._known_model(model)
        most = self.lab.config.decoding.max_tokens
        tokens = min(order.max_tokens or most, most)

        async def prepare(_job: Job) -> None:
            return None

        async def execute(job: Job) -> Answer:
            return await self._sampled(job, order, model, tokens, prompts)

        return self.jobs.submit("sample", prepare, execute)

    def _lesson(self, order: Sample, prompts: list[bytes]) -> Job:
        """Replies of the teacher."""
        teacher = self.lab.teacher
        if teacher is None:
            raise Refusal("this run has no teacher model: let one of your own answer, `vibe sample --model m00 FILE`")
        if order.model is not None:
            raise Refusal(f"--teacher and --model {order.model} are two models: name one")
        if len(prompts) * order.n > MAX_REPLIES:
            raise Refusal(f"more than {MAX_REPLIES} replies at once: split the file")
        wanted = Wanted(prompts, order.n, order.max_tokens, order.temperature)

        async def prepare(_job: Job) -> None:
            return None

        async def execute(job: Job) -> Answer:
            return await self._taught(job, teacher, wanted)

        return self.jobs.submit("sample", prepare, execute, lease=False)

    async def _taught(self, job: Job, teacher: Teacher, wanted: Wanted) -> Answer:
        """Ask, and keep what has come however it ends: it is paid for."""
        lab, name = self.lab, self._sample_name()
        began, total = lab.budget.el(), len(wanted.prompts) * wanted.n
        counts = {"job": job.id, "model": teacher.model, "prompts": len(wanted.prompts), "n": wanted.n}
        lab.journal.append(SampleStarted.model_validate({**counts, "sample": name}), sync=True)
        replies = Replies(lab.samples, name)
        lesson = Lesson(replies.add)
        status = "failed"
        try:
            await learn(teacher, wanted, lesson, lambda done, of: job.say(f"{done}/{of} replies of the teacher"))
            status = "ok" if lesson.rows and not lesson.failed and not lesson.spent else "failed"
        except BaseException:
            status = job.stop if job.task and job.task.cancelling() else "failed"
            raise
        finally:
            replies.close()
            kept = {"teacher": True, "sample": name if lesson.rows else "", "replies": len(lesson.rows)}
            end = {"status": status, "seconds": lab.budget.el() - began, "error": lesson.error, **kept}
            lab.journal.append(SampleFinished.model_validate({**counts, **end}), sync=True)
        if not lesson.rows:
            raise Refusal(f"{job.id}: the teacher gave no reply: {lesson.error}")
        where = f"/feedback/samples/{name}.jsonl"
        missing = f"; {total - len(lesson.rows)} did not come: {lesson.error}" if len(lesson.rows) < total else ""
        text = f"{len(lesson.rows)} of {total} replies of the teacher {teacher.model}: {where}{missing}"
        return {"text": text, "path": where, "teacher": teacher.model, "replies": len(lesson.rows)}

    async def _sampled(self, job: Job, order: Sample, model: str, tokens: int, prompts: list[bytes]) -> Answer:
        lab, name, folder = self.lab, self._sample_name(), self.lab.scratch / job.id
        folder.mkdir(parents=True, exist_ok=True)
        began = lab.budget.el()
        status, error = "failed", ""
        try:
            write_atomic(folder / "prompts.jsonl", b"\n".join(prompts) + b"\n")
            request = Generate(
                id=name,
                model=self.registry.ref(model),
                prompts_file=str(folder / "prompts.jsonl"),
                out_file=str(lab.samples / f"{name}.jsonl"),
                n=order.n,
                max_tokens=tokens,
                temperature=TEMPERATURE if order.temperature is None else order.temperature,
                seed=lab.config.seed,
            )
            reply = await ask(lab.grader, request, lambda seen: job.say(f"{seen.done}/{seen.total} replies"))
            error = "" if reply.ok else reply.error
            if not reply.ok:
                raise Refusal(f"{job.id}: sampling failed: {error}. Try it once more")
            status = "ok"
        except BaseException:
            status = job.stop if job.task and job.task.cancelling() else "failed"
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            end = {"status": status, "seconds": lab.budget.el() - began, "error": error}
            counts = {"job": job.id, "model": model, "prompts": len(prompts), "n": order.n, "sample": name}
            lab.journal.append(SampleFinished.model_validate({**counts, **end}))
        where = f"/feedback/samples/{name}.jsonl"
        return {"text": f"{len(prompts)} × {order.n} replies of {model}: {where}", "path": where, "model": model}

    # -- helpers

    def _sample_name(self) -> str:
        """The name of a new sample. None is given twice, not even one that a crash kept out of the record."""
        self.lab.samples.mkdir(exist_ok=True)
        while taken(self.lab.samples, name := self.registry.next_id("s", 3)):
            continue
        return name

    def _over(self) -> bool:
        """Has the research phase ended, by its budget or by `vibe finish`?"""
        return self.jobs.closing or bool(self.lab.budget.exhausted())

    async def _snapshot(self, component: Component) -> Any:
        try:
            return await snapshot(self.lab, component)
        except IntakeError as error:
            self.lab.journal.append(EditRefused(component=component, where=error.where, reason=error.what))
            raise Refusal(f"/lab/{component} was refused: {error}. Mend it and try again") from error

    def _known_model(self, name: str) -> ModelCreated:
        if name not in self.registry.models:
            raise Refusal(f"there is no model {name}: there are {', '.join(self.registry.models)}")
        return self.registry.models[name]

    def _known_candidate(self, name: str) -> Candidate:
        if name not in self.registry.candidates:
            raise Refusal(f"there is no candidate {name}: `vibe history` shows those there are")
        return self.registry.candidates[name]

    def _result(self, candidate: Candidate) -> Answer:
        """A validation in words and numbers: score, change against parent and P0, path of the feedback."""
        changes: list[str] = []
        deltas: dict[str, Any] = {}
        others = dict.fromkeys(name for name in (candidate.parent, INITIAL) if name and name != candidate.id)
        for name in others:
            delta = paired(self.lab, self.registry.candidates[name], candidate)
            if delta is not None:
                changes.append(change(name, delta))
                deltas[name] = {**delta.model_dump(), "noise": noise(delta)}
        late = "; late: it does not count" if candidate.late else ""
        where = f"/feedback/{candidate.id}" if not candidate.late and show_feedback(self.lab, candidate) else None
        text = "\n".join([f"{named(candidate)}{late}", *changes, *([f"feedback: {where}"] if where else [])])
        return {"text": text, **described(candidate), "changes": deltas, "feedback": where}


def hypothesis(message: str) -> str:
    """The agent's own words as the record keeps them: one safe line."""
    return clean_line(message, _HYPOTHESIS)
