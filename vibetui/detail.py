"""What lies beside the journal, as lines to read: diffs, data summaries, problems, trajectories, trainings.

Every file is read through :mod:`vibetui.files` and every text is foreign. Pure but for those reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from runner.record.describe import count, delta_text, duration, number, score_text
from runner.record.evaluation import means, rows_of, steps_of
from runner.record.events import ProblemRow, TrajectoryStep
from runner.record.files import TrainRow
from runner.record.rundir import RunDir
from runner.record.state import INITIAL, CandidateState, RunState, validation_of
from vibetui.files import names_inside, read_inside
from vibetui.text import Line, line, many, one_line
from vibetui.theme import Role

PATCH_BYTES = 2 << 20
ROWS_BYTES = 32 << 20
STEPS_BYTES = 16 << 20
TRAIN_BYTES = 16 << 20
_FIELD = re.compile(r"^([-+])\s*([A-Za-z_][\w.-]*)\s*=\s*(.*?)\s*(?:#.*)?$")
_HUNK = re.compile(r"^@@ -(\d{1,9})(?:,\d+)? \+(\d{1,9})(?:,\d+)? @@")
_TEXT = 4000  # characters of one sample, prompt or reply that are shown at most
_LINES = 20_000
_SIDES: tuple[tuple[str, Role], ...] = (("added", "add"), ("removed", "del"), ("changed", "text"))


def safe_name(name: str) -> bool:
    """May this id from a journal be part of a path?"""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", name) is not None


# -- code ------------------------------------------------------------------------------------------------------------


def patch_of(run: RunDir, candidate: CandidateState, component: str) -> list[Line]:
    """The unified diff of one component against the parent, changed settings first."""
    if candidate.parent is None:
        return [line(("the initial system: nothing was changed", "muted"))]
    if component not in candidate.components:
        return [line((f"the {component} is that of {one_line(candidate.parent, 20)}", "muted"))]
    name = f"candidates/{candidate.id}/diffs/{component}.patch"
    raw = _file(run, name, PATCH_BYTES + 1)
    if raw is None:
        return [line((f"the diff of the {component} is not in this folder", "warn"))]
    lines = patch_lines(raw[:PATCH_BYTES].decode("utf-8", "replace"))
    if len(raw) > PATCH_BYTES or raw.count(b"\n") > _LINES:
        lines.append(line((f"not shown to its end: the whole diff is {run.path / name}", "warn")))
    return lines


def patch_lines(text: str) -> list[Line]:
    """A unified patch with line numbers and colours; settings that changed stand before it as old → new."""
    rows = text.split("\n")[:_LINES]
    lines = _settings(rows)
    new = 0
    for row in rows:
        if found := _HUNK.match(row):
            new = int(found[2])
            lines.append(line((row, "hunk")))
        elif row.startswith(("--- ", "+++ ")):
            if row.startswith("+++ "):
                lines += [*([()] if lines and lines[-1] else []), line((row[4:].removeprefix("b/"), "title"))]
        elif row.startswith("#"):
            lines.append(line((row, "muted")))
        elif row.startswith("-"):
            lines.append(line(("      ", "muted"), (row, "del")))
        elif row:
            role: Role = "add" if row.startswith("+") else "text"
            lines.append(line((f"{new:>5} ", "muted"), (row, role)))
            new += 1
    return lines or [line(("empty", "muted"))]


def _settings(rows: Sequence[str]) -> list[Line]:
    """``learning_rate  2e-4 → 0.001`` for each setting that a patch of .toml files changes."""
    name = ""
    old: dict[tuple[str, str], str] = {}
    new: dict[tuple[str, str], str] = {}
    for row in rows:
        if row.startswith("+++ "):
            name = row[4:].removeprefix("b/").rpartition("/")[2]
        elif name.endswith(".toml") and (found := _FIELD.match(row)):
            (old if found[1] == "-" else new)[name, found[2]] = found[3]
    lines = []
    for key in dict.fromkeys((*old, *new)):
        was, now = old.get(key, "–"), new.get(key, "–")
        if was != now:
            lines.append(
                line(
                    (f"{key[1]:<24}", "strong"),
                    (one_line(was, 60), "del"),
                    ("  →  ", "muted"),
                    (one_line(now, 60), "add"),
                )
            )
    return [line(("settings that changed", "title")), *lines, ()] if lines else []


# -- data ------------------------------------------------------------------------------------------------------------


def data_of(run: RunDir, candidate: CandidateState) -> list[Line]:
    """What happened to the examples: how many came, went and changed, how long they are, a sample of each."""
    if candidate.parent is None:
        return [line(("the initial system: nothing was changed", "muted"))]
    if "data" not in candidate.components:
        return [line((f"the data are those of {one_line(candidate.parent, 20)}", "muted"))]
    raw = _file(run, f"candidates/{candidate.id}/diffs/data.json", PATCH_BYTES)
    if raw is None:
        return patch_of(run, candidate, "data")
    try:
        told = json.loads(raw)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        return [line(("the summary of the data cannot be read", "warn"))]
    return data_lines(told)


def data_lines(told: dict[str, Any]) -> list[Line]:
    """The summary of a data diff in lines; anything may be missing or of another type."""
    lines = [
        line(
            ("examples  ", "title"),
            f"{_count(told.get('rows_before'))} ",
            ("→ ", "muted"),
            (f"{_count(told.get('rows_after'))}   ", "strong"),
            (f"+{_count(told.get('added'))} added   ", "add"),
            (f"−{_count(told.get('removed'))} removed   ", "del"),
            (f"{_count(told.get('changed'))} changed", "text"),
            (" (same prompt)", "muted"),
        )
    ]
    lengths = told.get("lengths")
    if isinstance(lengths, dict):
        for side, label in (("old", "before"), ("new", "after")):
            of = lengths.get(side)
            if isinstance(of, dict):
                mean, longest = _num(of.get("mean")), _num(of.get("longest"))
                lines.append(line((f"length {label:<7}", "muted"), f"mean {mean}, longest {longest} characters"))
    samples = told.get("samples")
    for side, role in _SIDES:
        found = samples.get(side) if isinstance(samples, dict) else None
        if isinstance(found, list) and found:
            lines += [(), line((f"{side}: {len(found)} of them", "title"))]
            for item in found[:20]:
                lines += _example(item, role)
    return lines


def _example(item: object, role: Role) -> list[Line]:
    """One example, its fields apart where it is a JSON object."""
    text = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)[:_TEXT]
    sign = "+ " if role == "add" else "- " if role == "del" else "  "
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        return [*(line((sign, role), (part, role)) for part in text[:_TEXT].split("\n")[:40]), ()]
    lines: list[Line] = []
    for name, value in list(fields.items())[:12]:
        value = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for i, part in enumerate(value[:_TEXT].split("\n")[:40]):
            label = f"{one_line(str(name), 14):<12}" if i == 0 else " " * 12
            lines.append(line((sign, role), (label, "muted"), (part, role)))
    return [*lines, ()]


def _count(value: object) -> str:
    return count(value) if isinstance(value, int) and not isinstance(value, bool) else "–"


def _num(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return count(value)
    return number(min(max(value, -1e12), 1e12)) if isinstance(value, float) and value == value else "–"


# -- validation ------------------------------------------------------------------------------------------------------


def facts_of(state: RunState, candidate: CandidateState) -> list[Line]:
    """A candidate in three lines: what it is, what it scored, what it was meant to do."""
    score = candidate.validation or candidate.late
    parts: list[tuple[str, Role]] = [(score_text(score), "strong" if candidate.validation else "warn")]
    if score is not None:
        for name in dict.fromkeys(one for one in (INITIAL, candidate.parent) if one and one != candidate.id):
            other = validation_of(state, name)
            if other is not None:
                moved = score.score - other.score
                label = "P0" if name == INITIAL else one_line(name, 12)
                parts += [("   ", "text"), (delta_text(moved), _toned(moved)), (f" to {label}", "muted")]
    status = "" if candidate.status == "ok" else f"   {candidate.status}"
    parts.append((status, "warn"))
    parent = f"from {one_line(candidate.parent, 20)}" if candidate.parent else "the initial system P0"
    head = line(
        (f"{one_line(candidate.id, 20)} ", "accent"),
        (parent, "muted"),
        ("   model ", "muted"),
        one_line(candidate.model, 20),
    )
    error = f"   {one_line(candidate.error, 200)}" if candidate.error else ""
    return [head, line(*parts), line((one_line(candidate.hypothesis, 400) or "no hypothesis", "muted"), (error, "bad"))]


def _toned(moved: float) -> Role:
    return "good" if moved > 0 else "bad" if moved < 0 else "text"


def problems_of(run: RunDir, candidate: CandidateState | None) -> list[ProblemRow]:
    """The rows of a candidate's evaluation; empty where they are not in the folder."""
    if candidate is None or not candidate.eval:
        return []
    raw = _file(run, f"evals/{candidate.eval}/problems.jsonl", ROWS_BYTES)
    return rows_of(raw)[0] if raw else []


@dataclass(frozen=True, slots=True)
class Solved:
    """One problem of a candidate: its mean reward and what it was at the parent; times and tokens are sums."""

    problem: str
    mean: float
    before: float | None
    reasons: str
    turns: int
    tokens: int
    seconds: float

    @property
    def change(self) -> str:
        """gained, lost, same, or – where the parent has no result."""
        if self.before is None:
            return "–"
        moved = self.mean - self.before
        return "gained" if moved > 1e-9 else "lost" if moved < -1e-9 else "same"


def solved_of(
    rows: Sequence[ProblemRow], before: Sequence[ProblemRow], samples: int, samples_before: int
) -> list[Solved]:
    """The problems of an evaluation, with what became of each against another evaluation."""
    now, was = means(rows, samples), means(before, samples_before)
    by: dict[str, list[ProblemRow]] = {}
    for row in rows:
        by.setdefault(row.problem, []).append(row)
    return [
        Solved(
            problem,
            now[problem],
            was.get(problem),
            ", ".join(dict.fromkeys(one_line(row.reason, 24) for row in found)),
            sum(row.calls for row in found),
            sum(row.tokens_in + row.tokens_out for row in found),
            sum(min(max(row.seconds, 0.0), 1e9) for row in found),
        )
        for problem, found in sorted(by.items())
    ]


def solved_against(run: RunDir, one: CandidateState, parent: CandidateState | None) -> list[Solved]:
    """The problems of a candidate's evaluation, against those of its parent's."""
    samples = one.validation.samples if one.validation else 1
    before = parent.validation.samples if parent and parent.validation else 1
    return solved_of(problems_of(run, one), problems_of(run, parent), samples, before)


def trajectory_of(run: RunDir, candidate: CandidateState, problem: str) -> list[TrajectoryStep]:
    """The steps of one problem, in order of sample and step."""
    if not candidate.eval or not safe_name(problem):
        return []
    raw = _file(run, f"evals/{candidate.eval}/trajectories/{problem}.jsonl", STEPS_BYTES)
    steps = steps_of(raw)[0] if raw else []
    return sorted(steps, key=lambda step: (step.sample, step.step))


def step_lines(step: TrajectoryStep) -> list[Line]:
    """One step of a trajectory: prompt and reply, or answer and verdict."""
    if step.kind == "end":
        solved = step.reward is not None and step.reward > 0
        verdict = "not judged" if step.reward is None else f"reward {number(step.reward, 2)}"
        lines = [
            line(
                ("verdict  ", "title"),
                (verdict, "good" if solved else "bad"),
                (f"  {one_line(step.reason, 60)}", "text"),
            )
        ]
        lines += [(), line(("answer handed in", "title")), *many(step.reply, limit=_TEXT * 4)]
        return [*lines, (), line(("log", "title")), *many(step.log, "muted", _TEXT * 4)] if step.log else lines
    facts = f"{count(step.tokens_in)} tokens in, {count(step.tokens_out)} out, {duration(step.seconds)}"
    lines = [line((facts, "muted"), (f"  {one_line(step.finish_reason, 24)}", "muted"))]
    if step.overwritten:
        lines.append(
            line(("decoding fields overwritten: " + ", ".join(one_line(f, 30) for f in step.overwritten), "warn"))
        )
    lines += [(), *_prompt(step.prompt), (), line(("reply", "title")), *many(step.reply, "accent", _TEXT * 8)]
    return lines


def _prompt(prompt: str) -> list[Line]:
    """The messages of a prompt, by who said them; as it is where it is no list of messages."""
    try:
        messages = json.loads(prompt)
    except (ValueError, RecursionError):
        messages = None
    if not (isinstance(messages, list) and all(isinstance(one, dict) for one in messages)):
        return [line(("prompt", "title")), *many(prompt, limit=_TEXT * 8)]
    lines: list[Line] = []
    for one in messages[:200]:
        content = one.get("content")
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        lines += [line((one_line(str(one.get("role", "prompt")), 20), "title")), *many(text, limit=_TEXT * 8)]
    return lines


# -- training --------------------------------------------------------------------------------------------------------


def training_of(run: RunDir, model: str) -> list[TrainRow]:
    """The metrics that a trainer reported, decimated to some thousands; lines that are no metrics are left out."""
    raw = _file(run, f"models/{model}/train.jsonl", TRAIN_BYTES)
    if not raw:
        return []
    lines = [part for part in raw.split(b"\n") if part.strip()]
    stride = max(1, len(lines) // 4000)
    rows = []
    for part in (*lines[::stride], *lines[-1:]):
        try:
            rows.append(TrainRow.model_validate_json(part))
        except (ValidationError, ValueError):
            continue
    return sorted({row.step: row for row in rows}.values(), key=lambda row: row.step)


def training_lines(run: RunDir, state: RunState, model: str, rows: Sequence[TrainRow]) -> list[Line]:
    """The facts of a model's training and the end of its log."""
    known = state.models.get(model)
    lines: list[Line] = []
    if known is not None and known.made.format != "base":
        made = known.made
        moved = "no change against its parent" if made.no_change else f"moved {number(made.delta_norm, 4)}"
        lines.append(
            line(
                ("model ", "muted"),
                one_line(model, 20),
                (f"  {made.format} from {', '.join(made.parents)}  {moved}", "muted"),
            )
        )
    if rows:
        last = rows[-1]
        parts = [f"step {count(last.step)}/{count(last.steps)}"]
        parts += [f"loss {number(last.loss, 4)}"] if last.loss is not None else []
        parts += [f"lr {last.lr:.2e}"] if last.lr is not None else []
        parts += [f"{count(last.tokens)} tokens"] if last.tokens is not None else []
        parts += [duration(last.seconds)] if last.seconds is not None else []
        lines.append(line(("last    ", "muted"), " · ".join(parts)))
    log = _file(run, f"models/{model}/train.log", 200_000)
    if log:
        lines += [(), line(("train.log", "title")), *many(log.decode("utf-8", "replace"), "muted")]
    return lines or [line(("the base model: nothing was trained", "muted"))]


def newest_model(run: RunDir) -> str | None:
    """The model whose training log is the newest, by its number."""
    found = [name for name in names_inside(run.path, "models") if re.fullmatch(r"m\d{2,9}", name)]
    return max(found, key=lambda name: int(name[1:]), default=None)


def _file(run: RunDir, name: str, limit: int) -> bytes | None:
    """A file of the run folder; names come from the journal, so every part is checked."""
    return read_inside(run.path, name, limit) if all(safe_name(part) for part in name.split("/")) else None
