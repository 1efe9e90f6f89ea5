"""Made-up but realistic runs, for tests, fixtures and benchmarks: whole event sequences with every kind of event.

``whole_run`` yields (payload, t, el); ``write_run`` writes them as a run folder that every view can open.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from runner.record import events as ev
from runner.record.journal import Journal
from runner.record.rundir import RunDir

START = 1_796_040_000.0  # 2026-11-30T12:00:00Z
HOSTILE = "\x1b]52;c;ZXZpbA==\x07[bold]<script>alert(1)</script>| a | b |\u202e\u200b`x`\x9b31m\r\n# top\n=cmd()\\|"

Step = tuple[ev.Payload, float, float]


def score(value: float, n: int = 112, samples: int = 1, half: float = 0.05) -> ev.Score:
    """A score with a plain interval around it."""
    return ev.Score(score=value, low=max(0.0, value - half), high=min(1.0, value + half), n=n, samples=samples)


def started(
    run: str = "2026-11-30T12-00-00-7f3a", *, boot_id: str = "boot-1", comparable: bool = False
) -> ev.RunStarted:
    """The first event."""
    return ev.RunStarted(
        run=run,
        task="aime",
        problems="mini",
        model="tiny",
        agent="scripted",
        scope=("data", "trainer", "harness"),
        seed=7,
        samples=1,
        profile="laptop",
        protocol="vibetraining",
        budget=ev.BudgetLimits(wall_s=7200.0, tokens=420_000, money=5.0),
        config_digest="d" * 64,
        boot_id=boot_id,
        version="0.1.0",
        comparable=comparable,
    )


def candidate(
    name: str, parent: str | None, model: str, *components: ev.Component, hypothesis: str = ""
) -> ev.CandidateCreated:
    """A candidate whose ``components`` moved."""
    return ev.CandidateCreated(
        candidate=name,
        parent=parent,
        model=model,
        data="d" * 16,
        trainer="t" * 16,
        harness="h" * 16,
        components=components,
        diff={component: ev.DiffSize(added=12, removed=3, files=1) for component in components},
        hypothesis=hypothesis,
    )


def model(name: str, job: str | None, *parents: str) -> ev.ModelCreated:
    """A model; the base has no job."""
    return ev.ModelCreated(
        model=name,
        job=job,
        format="adapter" if job else "base",
        parents=parents,
        data="d" * 16,
        trainer="t" * 16,
        sha256="5" * 64,
        bytes=3_200_000,
        delta_norm=0.0123 if job else 0.0,
    )


def validated(
    job: str, name: str, evaluation: str, value: float | None, status: ev.JobStatus = "ok", **more: object
) -> ev.ValidationFinished:
    """The end of a validation; ``value`` None has no score."""
    said = {"job": job, "candidate": name, "eval": evaluation, "status": status, "seconds": 61.5, **more}
    return ev.ValidationFinished.model_validate({**said, "score": None if value is None else score(value)})


class _Clock:
    """Counts seconds, so that every event has its times."""

    def __init__(self) -> None:
        self.t, self.el = START, 0.0

    def at(self, payload: ev.Payload, wall: float = 1.0, charged: float | None = None) -> Step:
        self.t += wall
        self.el += wall if charged is None else charged
        return payload, self.t, self.el


def head(clock: _Clock, boot_id: str) -> Iterator[Step]:
    """From the start of the run until the agent begins."""
    yield clock.at(started(boot_id=boot_id), 0, 0)
    yield clock.at(ev.IsolationChecked(weak=("soft limits (no cgroups)",), allowed=()), 1, 0)
    info = ev.SplitInfo(count=112, sha256="a" * 64)
    yield clock.at(
        ev.TaskLoaded(validation=info, hidden=ev.SplitInfo(count=96, sha256="b" * 64), engine="transformers"), 1, 0
    )
    yield clock.at(ev.PhaseChanged(phase="baseline"), 1, 0)
    yield clock.at(model("m00", None), 0, 0)
    yield clock.at(candidate("c00", None, "m00"), 0, 0)
    yield clock.at(ev.LeaseChanged(holder="grading", job="e000"), 0, 0)
    yield clock.at(ev.ValidationStarted(job="e000", candidate="c00", eval="e000", problems=112, samples=1), 0, 0)
    yield clock.at(validated("e000", "c00", "e000", 0.329, cached=True), 60, 0)
    yield clock.at(ev.LeaseChanged(holder=None), 0, 0)
    yield clock.at(ev.PhaseChanged(phase="research"), 1, 0)
    yield clock.at(ev.AgentStarted(agent="scripted", argv=("scripted", "--seed", "7"), version="1"), 1)


def trial(clock: _Clock, n: int, value: float, *, steps: int, hypothesis: str) -> Iterator[Step]:
    """One round of research: train a model, validate a candidate of it, with progress."""
    job, name, made = f"j{2 * n:03d}", f"c{n:02d}", f"m{n:02d}"
    yield clock.at(ev.AgentTurn(n=n, summary=f"editing data for {name}", tool="shell", seconds=4.0, tokens=700), 5)
    yield clock.at(ev.JobQueued(job=job, verb="train"), 1)
    yield clock.at(ev.LeaseChanged(holder="training", job=job), 0)
    yield clock.at(
        ev.TrainStarted(job=job, parents=("m00",), data="d" * 16, trainer="t" * 16, hypothesis=hypothesis), 0
    )
    for step in range(1, steps + 1):
        yield clock.at(ev.TrainProgress(job=job, step=step, steps=steps, loss=2.0 / step), 60.0 / steps)
    yield clock.at(model(made, job, "m00"), 1)
    yield clock.at(ev.TrainFinished(job=job, status="ok", seconds=61.0, model=made), 0)
    check = f"j{2 * n + 1:03d}"
    yield clock.at(candidate(name, f"c{n - 1:02d}", made, "data", "harness", hypothesis=hypothesis), 2)
    yield clock.at(ev.JobQueued(job=check, verb="validate"), 0)
    yield clock.at(ev.LeaseChanged(holder="grading", job=check), 0)
    yield clock.at(ev.ValidationStarted(job=check, candidate=name, eval=f"e{n:03d}", problems=112, samples=1), 0)
    for step in range(1, steps + 1):
        done = 112 * step // steps
        yield clock.at(ev.ValidationProgress(job=check, candidate=name, done=done, total=112), 60.0 / steps)
    yield clock.at(validated(check, name, f"e{n:03d}", value), 0)
    yield clock.at(ev.LeaseChanged(holder=None), 0)
    split = ev.Split(grade=60.0 * n, train=61.0 * n, wait=1.0 * n, think=8.0 * n)
    yield clock.at(ev.BudgetTick(wall_s=round(clock.el, 3), split=split, tokens=700 * n, money=0.01 * n), 1)


def mishaps(clock: _Clock, first: float, boot_id: str) -> Iterator[Step]:
    """What goes wrong in a run: refusals, a failed training, a failed validation, hostile words, a crash and resume."""
    yield clock.at(ev.EditRefused(component="trainer", where="trainer/\x1b[31mx", reason="a symlink"), 1)
    yield clock.at(ev.Integrity(what="spoofed score", where="agent output", detail=HOSTILE), 1)
    yield clock.at(ev.Warned(what="the disk is nearly full", where="runs", do="free 2 GB"), 1)
    yield clock.at(ev.JobQueued(job="j900", verb="train"), 1)
    yield clock.at(ev.TrainStarted(job="j900", parents=("m00", "m01"), data="d" * 16, trainer="t" * 16), 1)
    yield clock.at(ev.TrainFinished(job="j900", status="failed", seconds=3.0, error=HOSTILE), 3)
    yield clock.at(ev.JobQueued(job="j901", verb="sample"), 1)
    yield clock.at(ev.LeaseChanged(holder="sampling", job="j901"), 0)
    yield clock.at(ev.SampleFinished(job="j901", model="m01", prompts=20, n=4, status="ok", seconds=12.0), 12)
    yield clock.at(candidate("c90", "c01", "m01", "harness", hypothesis=HOSTILE), 1)
    yield clock.at(ev.ValidationStarted(job="j902", candidate="c90", eval="e090", problems=112, samples=1), 0)
    yield clock.at(validated("j902", "c90", "e090", None, "failed", error="the engine died twice"), 9)
    yield clock.at(validated("j903", "c01", "e001", first, repeat=True), 1)
    yield clock.at(ev.RunResumed(boot_id=boot_id, gap_s=90.0, phase="research"), 90, 0)


def tail(clock: _Clock, chosen: str, hidden: float) -> Iterator[Step]:
    """From the end of research to the end of the run."""
    yield clock.at(ev.Selected(candidate=chosen, by="agent"), 1)
    yield clock.at(ev.AgentEnded(reason="finished", exit_code=0), 1)
    yield clock.at(ev.PhaseChanged(phase="selecting"), 0, 0)
    yield clock.at(ev.Selected(candidate=chosen, by="agent", final=True), 0, 0)
    yield clock.at(ev.HiddenClaimed(candidate=chosen), 0, 0)
    yield clock.at(ev.PhaseChanged(phase="hidden_test"), 0, 0)
    yield clock.at(ev.HiddenProgress(done=48, total=192, note="P0 hidden"), 20, 0)
    yield clock.at(
        ev.HiddenFinished(
            candidate=chosen,
            initial=score(0.30, 96),
            selected=score(hidden, 96),
            delta=ev.Delta(value=hidden - 0.30, low=hidden - 0.38, high=hidden - 0.22),
            status="ok",
        ),
        20,
        0,
    )
    yield clock.at(ev.PhaseChanged(phase="reporting"), 0, 0)
    yield clock.at(ev.RunFinished(status="ok"), 1, 0)


def whole_run(
    trials: int = 6, *, steps: int = 10, seed: int = 0, finish: bool = True, boot_id: str = "boot-1"
) -> Iterator[Step]:
    """Every kind of event, in the order of a real run; the best candidate is in the middle and is selected."""
    clock, luck = _Clock(), random.Random(seed)
    peak = max(1, (trials + 1) // 2)
    yield from head(clock, boot_id)
    for n in range(1, trials + 1):
        value = 0.537 if n == peak else round(0.33 + 0.15 * luck.random(), 3)
        hypothesis = HOSTILE if n == 2 else f"traj filter v{n} + rep"
        yield from trial(clock, n, value, steps=steps, hypothesis=hypothesis)
        if n == 1:
            yield from mishaps(clock, value, boot_id)
    if finish:
        yield from tail(clock, f"c{peak:02d}", 0.515)


def write_steps(path: Path, steps: Iterator[Step] | list[Step]) -> Journal:
    """Write the steps as a journal at ``path``; the journal stays open."""
    now = [START, 0.0]
    journal = Journal.create(path, lambda: now[1], now=lambda: now[0])
    for payload, t, el in steps:
        now[:] = t, el
        journal.append(payload)
    return journal


def write_run(root: Path, steps: Iterator[Step] | list[Step] | None = None) -> RunDir:
    """A run folder with its journal, as after the end (or the crash) of a run."""
    run = RunDir.create(root, "aime", datetime.fromtimestamp(START, UTC))
    write_steps(run.journal_file, whole_run() if steps is None else steps).close()
    return run
