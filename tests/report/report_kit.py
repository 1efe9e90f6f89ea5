"""Run folders with everything beside the journal that a report reads: rewards, trajectories, diffs, hidden rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from journal_samples import START, candidate, model, started, write_steps

from grader.intervals import paired_delta, score_of
from grader.protocol import ProblemRow, TrajectoryStep
from runner.record import events as ev
from runner.record.events import Payload
from runner.record.rundir import RunDir

Rewards = Mapping[str, list[float]]


def flags(word: str) -> dict[str, list[float]]:
    """``"1010"``: the rewards of problems v000, v001, …"""
    return {f"v{i:03d}": [float(flag)] for i, flag in enumerate(word)}


def row(problem: str, sample: int, reward: float, reason: str = "") -> ProblemRow:
    return ProblemRow(
        problem=problem, sample=sample, reward=reward, reason=reason or ("match" if reward else "mismatch"), calls=1,
        parse_errors=0, tokens_in=1, tokens_out=1, seconds=0.1,
    )  # fmt: skip


def write_evaluation(folder: Path, rewards: Rewards, *, reply: str = "Total: 1", question: str = "How many?") -> None:
    """problems.jsonl and trajectories/ as the grader leaves them."""
    (folder / "trajectories").mkdir(parents=True)
    rows = [row(name, i, value) for name, values in rewards.items() for i, value in enumerate(values)]
    (folder / "problems.jsonl").write_text("".join(item.model_dump_json() + "\n" for item in rows))
    prompt = json.dumps([{"role": "user", "content": question}])
    for name, values in rewards.items():
        steps = [
            TrajectoryStep(problem=name, sample=0, step=0, kind="call", prompt=prompt, reply=reply),
            TrajectoryStep(problem=name, sample=0, step=1, kind="end", reply=reply, reason="match", reward=values[0]),
        ]
        path = folder / "trajectories" / f"{name}.jsonl"
        path.write_text("".join(step.model_dump_json() + "\n" for step in steps))


class Made:
    """A run made candidate by candidate; :meth:`write` leaves it as a folder."""

    def __init__(self, root: Path, *, seed: int = 0, agent: str = "scripted", **more: object) -> None:
        self.run = RunDir.create(root, "aime", datetime.fromtimestamp(START + seed, UTC))
        head = started(self.run.name).model_copy(update={"seed": seed, "agent": agent, **more})
        self.payloads: list[Payload] = [head, ev.IsolationChecked(weak=(), allowed=()), model("m00", None)]
        self.count = 0

    def validate(
        self, rewards: Rewards, *moved: ev.Component, parent: str = "c00", says: str = "", **texts: str
    ) -> str:
        """A candidate with these rewards on validation; the first one is P0."""
        name, evaluation = f"c{self.count:02d}", f"e{self.count:03d}"
        initial = self.count == 0
        self.payloads.append(candidate(name, None if initial else parent, "m00", *moved, hypothesis=says))
        done = ev.ValidationFinished(
            job=f"j{self.count:03d}", candidate=name, eval=evaluation, status="ok", seconds=1.0,
            score=score_of(rewards, max(map(len, rewards.values()))),
        )  # fmt: skip
        self.payloads.append(done)
        write_evaluation(self.run.evaluation(evaluation), rewards, **texts)
        self.count += 1
        return name

    def fail(self, error: str = "the engine died twice") -> str:
        name = f"c{self.count:02d}"
        self.payloads.append(candidate(name, "c00", "m00", "harness"))
        self.payloads.append(
            ev.ValidationFinished(
                job=f"j{self.count:03d}", candidate=name, eval="e900", status="failed", seconds=1.0, error=error
            )
        )
        self.count += 1
        return name

    def finish(self, chosen: str, before: Rewards, after: Rewards) -> None:
        """Selection, hidden test and end."""
        samples = max(map(len, before.values()))
        write_evaluation(self.run.hidden / "initial", before)
        write_evaluation(self.run.hidden / "selected", after)
        self.payloads += [
            ev.Selected(candidate=chosen, by="agent", final=True),
            ev.HiddenClaimed(candidate=chosen),
            ev.HiddenFinished(
                candidate=chosen, initial=score_of(before, samples), selected=score_of(after, samples),
                delta=paired_delta(before, after, samples), status="ok",
            ),
            ev.RunFinished(status="ok"),
        ]  # fmt: skip

    def steps(self) -> Iterator[tuple[Payload, float, float]]:
        for n, payload in enumerate(self.payloads):
            yield payload, START + 10.0 * n, 10.0 * n

    def tick(self, **used: object) -> None:
        split = ev.Split(grade=40.0, train=50.0, think=10.0)
        self.payloads.append(ev.BudgetTick.model_validate({"wall_s": 100.0, "split": split, **used}))

    def write(self) -> RunDir:
        write_steps(self.run.journal_file, self.steps()).close()
        return self.run


def a_good_run(root: Path, *, seed: int = 0, **more: object) -> RunDir:
    """P0 solves 2 of 20; c01 is within noise, c02 fails, c03 is better and is selected, c04 is worse."""
    made = Made(root, seed=seed, **more)  # type: ignore[arg-type]
    made.validate(flags("1" * 2 + "0" * 18))
    made.validate(flags("1" * 3 + "0" * 17), "data", says="clean the data")
    made.fail()
    made.validate(flags("1" * 16 + "0" * 4), "data", "harness", says="and a calculator")
    made.validate(flags("0" * 20), "trainer", parent="c03", says="a wild rate")
    made.tick(tokens=1000, money=0.5)
    made.finish("c03", flags("1" * 3 + "0" * 27), flags("0" + "1" * 20 + "0" * 9))
    return made.write()
