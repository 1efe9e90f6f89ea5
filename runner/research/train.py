"""The training service: runs the agent's trainer on its data in a sandbox; the gate makes a model of the result.

Everything a trainer writes is hostile: its metrics are claims of bounded size, its log is capped, its checkpoint goes
through the gate, and its folder is read by sandboxes only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from grader.protocol import Gate, GateResult, ModelRef, Rest
from grader.strict import LineReader, StrictError, parse_object
from isolation.clean import clean, clean_line
from isolation.files import write_atomic
from isolation.intake import Manifest
from isolation.sandbox import Sandbox
from runner.record.events import Integrity, ModelCreated, Taught, TrainFinished, TrainProgress, TrainStarted, Warned
from runner.record.files import TrainRow
from runner.research import recipe
from runner.research.candidate import BASE, Registry
from runner.research.contamination import Contamination, Refused
from runner.research.lab import Lab, ask
from runner.research.sandbox import box, capture, tracer_spec, training_spec
from runner.research.workspace import DiskWatch, duration, materialised, sweep

LOG_BYTES = 4 << 20
TAIL_BYTES = 64 << 10
METRIC_LINE = 16 << 10
METRIC_ROWS = 200_000
OUT_BYTES = 64 << 30
FAR = 1.0
"""A change as large as the base is flagged: another model lies that far away, and so does a training that diverged."""
_TAIL_LINES = 40
_PROGRESS_S = 1.0


class TrainingFailed(Exception):
    """The trainer, or the gate, says no: one line, and the end of the log for the agent."""

    def __init__(self, line: str, *, log: str = "", refused: bool = False) -> None:
        super().__init__(line)
        self.line = line
        self.log = log
        self.refused = refused


class CappedLog:
    """A file that keeps the first ``limit`` bytes of a stream; the end of the stream is kept apart."""

    def __init__(self, file: BinaryIO, limit: int = LOG_BYTES) -> None:
        self._file = file
        self._room = limit
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.left_out = 0

    def write(self, chunk: bytes) -> None:
        kept = chunk[: self._room]
        self._room -= len(kept)
        self.left_out += len(chunk) - len(kept)
        if kept:
            self._file.write(kept)
            self._file.flush()
        self._tail.append(chunk[-TAIL_BYTES:])
        self._tail_size += len(self._tail[-1])
        while self._tail_size - len(self._tail[0]) > TAIL_BYTES:
            self._tail_size -= len(self._tail.popleft())

    def end(self) -> None:
        """Write the end of a stream that did not fit. The file stays open."""
        if self.left_out:
            self._file.write(f"\n[{self.left_out} bytes were left out; the end follows]\n".encode())
            self._file.write(b"".join(self._tail)[-TAIL_BYTES:])

    def last_lines(self) -> str:
        """The end of the stream, safe to show."""
        text = clean(b"".join(self._tail)[-TAIL_BYTES:].decode("utf-8", "replace"))
        return "\n".join(line[-500:] for line in text.splitlines()[-_TAIL_LINES:])


@dataclass(slots=True)
class TrainJob:
    """One training as the desk ordered it: snapshots taken, parents known."""

    job: str
    parents: tuple[str, ...]
    data: Manifest
    trainer: Manifest
    hypothesis: str
    on_progress: Callable[[str], None]


class TrainingService:
    """Runs one :class:`TrainJob` at a time; cancelling the task that runs it kills the trainer."""

    def __init__(self, lab: Lab, registry: Registry) -> None:
        self._lab = lab
        self._registry = registry
        self._contamination = Contamination(lab, registry)

    async def run(self, job: TrainJob, why_cancelled: Callable[[], str]) -> ModelCreated:
        """Train and gate. Raises TrainingFailed; on cancellation journals ``why_cancelled()`` (cut, cancelled)."""
        lab = self._lab
        started = asyncio.get_running_loop().time()
        lab.journal.append(
            TrainStarted(
                job=job.job,
                parents=job.parents,
                data=job.data.id,
                trainer=job.trainer.id,
                hypothesis=job.hypothesis,
            )
        )
        model = self._registry.next_id("m", 2)
        status, error, made = "failed", "", None
        try:
            made = await self._make(job, model)
            status = "ok"
            return made
        except TrainingFailed as failed:
            status, error = ("refused" if failed.refused else "failed"), failed.line
            raise
        except asyncio.CancelledError:
            status = why_cancelled()
            raise
        except Exception as failed:
            error = str(failed)
            raise
        finally:
            if made is None:
                self._registry.give_back(model)
            seconds = asyncio.get_running_loop().time() - started
            end = {"status": status, "seconds": seconds, "model": made and made.model, "error": error}
            lab.journal.append(TrainFinished.model_validate({"job": job.job, **end}), sync=True)

    async def _make(self, job: TrainJob, model: str) -> ModelCreated:
        folder = self._lab.rundir.model(model)
        scratch = self._lab.scratch / job.job
        out = scratch / "out"
        await self._tidy(folder)
        self._permitted(job)
        await self._compared(job)
        out.mkdir(parents=True)
        folder.mkdir()
        try:
            await self._rest("sleep", job.job)
            try:
                await self._train(job, folder, out)
            finally:
                await self._rest("wake", job.job)
            made = await self._gate(job, model, out, folder)
        except BaseException:
            await sweep(folder)  # the log stays visible under /feedback/jobs
            raise
        finally:
            await sweep(out)
            with contextlib.suppress(OSError):
                scratch.rmdir()
        return made

    def _permitted(self, job: TrainJob) -> None:
        """Refuse a trainer that is fixed, and was changed in more than the recipe fields of this run."""
        lab = self._lab
        if "trainer" in lab.config.scope or not lab.config.recipe_fields:
            return
        try:
            recipe.check(lab.rundir.store, lab.initial["trainer"], job.trainer, lab.config.recipe_fields)
        except recipe.NotPermitted as refused:
            raise TrainingFailed(f"the recipe was refused: {refused}", refused=True) from None

    async def _compared(self, job: TrainJob) -> None:
        """Refuse data and trainers that hold validation problems, answers to them, or weights."""
        job.on_progress("comparing the data with the validation problems")
        try:
            await self._contamination.training(job.job, job.data, job.trainer)
        except Refused as refused:
            raise TrainingFailed(f"the training was refused: {refused.line}", refused=True) from None

    def _parent_files(self, parents: tuple[str, ...]) -> dict[str, Path]:
        """Where the files of each parent lie. The base is a parent only beside others (an average with it)."""
        found: dict[str, Path] = {}
        for parent in parents if parents != (BASE,) else ():
            folder = self._lab.rundir.model(parent)
            kind = self._registry.models[parent].format
            base = Path(self._lab.config.base_dir).resolve()
            found[parent] = base if kind == "base" else folder / ("adapter" if kind == "adapter" else "weights")
        return found

    async def _tidy(self, folder: Path) -> None:
        """Remove what a crash of the runner left half-made: only one training runs at a time."""
        for left in (folder, *sorted(self._lab.scratch.iterdir())):
            if left.exists():
                await sweep(left)

    async def _train(self, job: TrainJob, folder: Path, out: Path) -> None:
        """Run the trainer to its end; raises TrainingFailed when that was not a good one."""
        lab = self._lab
        data, trainer = await materialised(lab, job.data.id), await materialised(lab, job.trainer.id)
        shown = lab.rundir.feedback / "jobs" / job.job
        shown.mkdir(parents=True, exist_ok=True)
        metrics_out, metrics_in = os.pipe()
        log_file = _shared_file(folder / "train.log", shown)
        log = CappedLog(log_file)
        rows = _shared_file(folder / "train.jsonl", shown)
        try:
            files = self._parent_files(job.parents)
            spec = training_spec(lab, data=data, trainer=trainer, parents=files, out=out, metrics_fd=metrics_in)
            async with box(spec, stderr=asyncio.subprocess.STDOUT) as running:
                os.close(metrics_in)
                metrics_in = -1
                assert running.stdout is not None
                reading = [
                    asyncio.create_task(_pump(running.stdout, log)),
                    asyncio.create_task(self._metrics(metrics_out, job, rows)),
                ]
                metrics_out = -1
                try:
                    code = await self._supervise(running, out)
                    await asyncio.wait(reading, timeout=5)
                finally:
                    for task in reading:
                        task.cancel()
                    await asyncio.gather(*reading, return_exceptions=True)
            if code != 0:
                raise TrainingFailed(f"the trainer ended with {running.death(code)}", log=log.last_lines())
        finally:
            for fd in (metrics_in, metrics_out):
                if fd >= 0:
                    os.close(fd)
            log.end()
            log_file.close()
            rows.close()

    async def _supervise(self, running: Sandbox, out: Path) -> int:
        """The exit code of the trainer, unless its time or the disk ends first."""
        limit = self._lab.config.training_limit_s
        ending = asyncio.create_task(running.wait())
        trouble = asyncio.create_task(DiskWatch(self._lab, {"out": out}, OUT_BYTES).trouble())
        try:
            await asyncio.wait({ending, trouble}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                return ending.result()
            if trouble.done():
                raise TrainingFailed(f"stopped: {trouble.result()}")
            raise TrainingFailed(f"stopped after {duration(limit or 0)}, the limit of one training")
        finally:
            for task in (ending, trouble):
                task.cancel()
            await asyncio.gather(ending, trouble, return_exceptions=True)

    async def _metrics(self, fd: int, job: TrainJob, rows: BinaryIO) -> None:
        """Read metric lines until the pipe closes; what is not a metric is passed over, and said once."""
        loop = asyncio.get_running_loop()
        stream = asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(fd, "rb", buffering=0)
        )
        reader = LineReader(stream, METRIC_LINE)
        said, last, kept = False, 0.0, 0
        try:
            while (line := await _metric_line(reader)) is not None:
                row = parse_metric(line)
                if row is None:
                    if not said:
                        self._lab.journal.append(Warned(what="a trainer's metric was not understood", where=job.job))
                        said = True
                    continue
                if kept < METRIC_ROWS:
                    rows.write(row.model_dump_json().encode() + b"\n")
                    rows.flush()
                    kept += 1
                if loop.time() - last >= _PROGRESS_S or row.step == row.steps:
                    last = loop.time()
                    self._lab.journal.append(TrainProgress(job=job.job, step=row.step, steps=row.steps, loss=row.loss))
                    loss = "" if row.loss is None else f", loss {row.loss:.4f}"
                    job.on_progress(f"step {row.step}/{row.steps or '?'}{loss}")
        finally:
            transport.close()

    async def _taught(self, job: TrainJob) -> Taught | None:
        """What of the teacher's words is in the data; None where the agent had none by then."""
        lab, samples = self._lab, tuple(self._registry.lessons)
        if not samples or lab.teacher is None:
            return None
        task = {"data": [entry.sha256 for entry in job.data.files], "samples": samples}
        code, output = await capture(tracer_spec(lab), json.dumps(task).encode(), limit=1 << 16, timeout_s=400)
        try:
            found = parse_object(output) if code == 0 else {}
            counts = {"rows": found.get("rows"), "of": found.get("of")}
            return Taught.model_validate({"teacher": lab.teacher.model, "samples": samples, **counts})
        except (StrictError, ValidationError):
            return Taught(teacher=lab.teacher.model, samples=samples, rows=None, of=None)

    async def _gate(self, job: TrainJob, model: str, out: Path, folder: Path) -> ModelCreated:
        """Let the grader check the checkpoint; journal the model that comes of it."""
        lab = self._lab
        job.on_progress("checking the checkpoint")
        parents = tuple(self._registry.ref(parent) for parent in job.parents) or (ModelRef(id=BASE, format="base"),)
        request = Gate(id=f"gate-{job.job}", out_dir=str(out), model_dir=str(folder), model=model, parents=parents)
        reply = await ask(lab.grader, request)
        if not reply.ok:
            raise TrainingFailed(f"the checkpoint could not be checked: {reply.error}. Run the training again")
        result = GateResult.model_validate(reply.result)
        if not result.accepted:
            lab.journal.append(Integrity(what="checkpoint refused", where=job.job, detail=result.refused))
            raise TrainingFailed(f"the checkpoint was refused: {result.refused}", refused=True)
        made = ModelCreated(
            model=model,
            job=job.job,
            format=result.format,
            parents=job.parents,
            data=job.data.id,
            trainer=job.trainer.id,
            sha256=result.sha256,
            bytes=result.bytes,
            no_change=result.no_change,
            delta_norm=result.delta_norm,
            delta_norm_max=result.delta_norm_max,
            delta_norm_max_tensor=result.delta_norm_max_tensor,
            taught=await self._taught(job),
        )
        write_atomic(folder / "manifest.json", made.model_dump_json().encode())
        lab.journal.append(made, sync=True)
        if made.delta_norm >= FAR:
            where = f", most in {made.delta_norm_max_tensor}" if made.delta_norm_max_tensor else ""
            detail = f"changed by {made.delta_norm:.2f} of the base's norm{where}; a high learning rate does that, too"
            lab.journal.append(Integrity(what="weights far from the base", where=model, detail=clean_line(detail, 200)))
        return made

    async def _rest(self, op: str, job: str) -> None:
        reply = await self._lab.grader.call(Rest.model_validate({"op": op, "id": f"{op}-{job}"}))
        if not reply.ok:
            self._lab.journal.append(Warned(what=f"the engine did not {op}: {reply.error}", where=job))


def parse_metric(line: bytes) -> TrainRow | None:
    """A metric line as the record keeps it: known keys, finite numbers of sane size; None for anything else."""
    try:
        fields = parse_object(line, max_depth=2)
        return TrainRow.model_validate(
            {key: fields[key] for key in TrainRow.model_fields if key in fields}, strict=True
        )
    except (StrictError, ValidationError):
        return None


async def _metric_line(reader: LineReader) -> bytes | None:
    """The next line; a stream with an endless line counts as ended."""
    try:
        return await reader.line()
    except StrictError:
        return None


async def _pump(stream: asyncio.StreamReader, log: CappedLog) -> None:
    while chunk := await stream.read(65536):
        log.write(chunk)


def _shared_file(path: Path, shown: Path) -> BinaryIO:
    """A new file that the agent sees, too, while it grows: a hard link in ``shown``."""
    file = path.open("xb")
    (shown / path.name).unlink(missing_ok=True)
    os.link(path, shown / path.name)
    return file
