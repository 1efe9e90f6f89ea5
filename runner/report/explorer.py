"""What the trajectory explorer shows: validation problems, and what each candidate's model wrote for them.

Validation only: nothing of a hidden problem is ever read here. Bounded: problems whose result changed come first, and
what does not fit is left out and counted. All text is clean; it is still foreign and must be escaped.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from isolation.clean import clean
from runner.record.journal import JournalError
from runner.record.pairs import Pair
from runner.record.rundir import RunDir
from runner.report import evidence
from runner.report.story import Story
from runner.report.words import name_of

_MOST_READ = 6000  # trajectories
_MOST_TEXT = 1_500_000  # characters in the page
_QUESTION, _REPLY = 1200, 700
_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Attempt:
    """One candidate at one problem: the mean reward over samples, the first sample's reason and reply."""

    reward: float
    reason: str
    reply: str


@dataclass(frozen=True, slots=True)
class Explorer:
    """``attempts`` by candidate and problem; ``problems`` are the questions, those that changed first."""

    problems: dict[str, str]
    attempts: dict[str, dict[str, Attempt]]
    left_out: int

    def data(self) -> dict[str, Any]:
        """The same for the page's script: rows of [reward, reason, reply] in the order of ``problems``."""
        return {
            "problems": [[clean(name, 80), text] for name, text in self.problems.items()],
            "candidates": [
                [name_of(candidate), [_row(rows.get(problem)) for problem in self.problems]]
                for candidate, rows in self.attempts.items()
            ],
            "left_out": self.left_out,
        }


def _row(attempt: Attempt | None) -> list[Any] | None:
    return [round(attempt.reward, 3), attempt.reason, attempt.reply] if attempt else None


@dataclass(frozen=True, slots=True)
class Example:
    """A problem that a decision gained or lost, before and after."""

    gained: bool
    problem: str
    question: str
    before: str
    after: str


def explore(run: RunDir, story: Story) -> Explorer:
    """Read the trajectories of the validated candidates, as many as fit."""
    names = list(story.rewards)
    if not names:
        return Explorer({}, {}, 0)
    samples = max((len(values) for rows in story.rewards.values() for values in rows.values()), default=1)
    order = _by_interest(story)
    kept, read, size = dict[str, str](), 0, 0
    attempts: dict[str, dict[str, Attempt]] = {name: {} for name in names}
    for problem in order:
        if read + len(names) > _MOST_READ or size > _MOST_TEXT:
            break
        for name in names:
            found = _attempt(run, story, name, problem, samples)
            read += 1
            if found is None:
                continue
            question, attempt = found
            kept.setdefault(problem, question)
            attempts[name][problem] = attempt
            size += len(attempt.reply)
        size += len(kept.get(problem, ""))
    return Explorer(kept, attempts, len(order) - len(kept))


def _by_interest(story: Story) -> list[str]:
    """Problems that the selected gained or lost first, then those any candidate moved, then the rest; by name."""
    mine = next((item.to_initial for item in story.decisions if item.selected), None)
    first = set(mine.gained + mine.lost) if mine else set()
    pairs = [pair for item in story.decisions for pair in (item.to_parent, item.to_initial) if pair]
    moved = {problem for pair in pairs for problem in pair.gained + pair.lost}
    every = {problem for rows in story.rewards.values() for problem in rows}
    return sorted(every, key=lambda problem: (problem not in first, problem not in moved, problem))


def _attempt(run: RunDir, story: Story, name: str, problem: str, samples: int) -> tuple[str, Attempt] | None:
    values = story.rewards[name].get(problem)
    try:
        folder = run.evaluation(story.state.candidates[name].eval)
    except JournalError:
        return None
    steps = [step for step in evidence.trajectory(folder, problem) if step.sample == 0]
    if values is None or not steps:
        return None
    end = next((step for step in steps if step.kind == "end"), None)
    calls = [step for step in steps if step.kind == "call"]
    reply = "\n".join(clean(step.reply, _REPLY) for step in calls[:3]) or (clean(end.reply, _REPLY) if end else "")
    question = clean(_question(calls[0].prompt), _QUESTION) if calls else ""
    reason = clean(end.reason, 40) if end else "no end recorded"
    return question, Attempt(sum(values) / samples, reason, clean(reply, _REPLY))


def _question(prompt: str) -> str:
    """The user's words in a prompt that is a list of messages, else the prompt."""
    try:
        messages = json.loads(prompt)
        said = [m["content"] for m in messages if isinstance(m, dict) and m.get("role") == "user"]
        return str(said[-1]) if said else prompt
    except (ValueError, TypeError, KeyError, RecursionError):
        return prompt


def examples(explorer: Explorer, candidate: str, pair: Pair | None, parent: str | None) -> list[Example]:
    """A few problems that the candidate gained and lost against its parent, with both replies."""
    if pair is None or parent is None:
        return []
    now, before = explorer.attempts.get(candidate, {}), explorer.attempts.get(parent, {})
    found = []
    for gained, problems in ((True, pair.gained), (False, pair.lost)):
        there = [problem for problem in problems if problem in now and problem in before]
        found += [
            Example(gained, clean(p, 80), explorer.problems[p], before[p].reply, now[p].reply)
            for p in there[:_EXAMPLES]
        ]
    return found
