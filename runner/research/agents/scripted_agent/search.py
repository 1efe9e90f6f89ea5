"""The search: propose an edit, see what it does, keep what helps beyond noise, roll back the rest.

Hill climbing over designs. Single moves come first, in the seed's order. A move within noise is not worthless: two
such moves may need each other, so pairs (then triples) of them follow. What the trajectories show decides which
combination is tried first: calculator calls with wrong values ask for a tool, missing boxes for cleaner data.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import arithmetic
import stats
from clock import Clock
from design import MENU, Design, Move, changed, trained
from lab import Lab, Refused, say, vibe

FEEDBACK = Path("/feedback")
NOISE_P = 0.05
PATIENCE = 4
GOOD_ENOUGH = 0.97


@dataclass(frozen=True)
class Node:
    """A validated design: its candidate, its model and its rewards per problem."""

    design: Design
    candidate: str
    model: str
    rewards: dict[str, float]

    @property
    def score(self) -> float:
        return sum(self.rewards.values()) / max(1, len(self.rewards))


@dataclass
class Signals:
    """What the trajectories of a candidate show, as shares in 0…1."""

    wrong_calls: float = 0.0
    wrong_sums: float = 0.0
    no_box: float = 0.0


@dataclass
class Standing:
    """What is known of the moves at the present best: tried sets, and which moves ended within noise or harmed."""

    tried: set[frozenset[str]] = field(default_factory=set)
    neutral: list[Move] = field(default_factory=list)
    harmful: set[str] = field(default_factory=set)


def signals(folder: Path) -> Signals:
    """Read the trajectories below ``folder``: replies and reasons."""
    wrong = calls = sums = wrong_sums = ends = unboxed = 0
    for path in sorted((folder / "trajectories").glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            step = json.loads(line)
            if step["kind"] != "end":
                continue
            ends += 1
            unboxed += step["reason"] == "no_box"
            bad, total = arithmetic.wrong_calls(step["reply"])
            wrong, calls = wrong + bad, calls + total
            plain = arithmetic.PLAIN.findall(step["reply"])
            sums += len(plain)
            wrong_sums += sum(arithmetic.evaluate(left) != int(right) for left, right in plain)
    return Signals(wrong / calls if calls else 0.0, wrong_sums / sums if sums else 0.0, unboxed / max(1, ends))


class Search:
    """One search from the initial system to a selection. ``seed`` changes the order of the moves, nothing else."""

    def __init__(self, lab: Lab, clock: Clock, seed: int) -> None:
        self.lab = lab
        self.clock = clock
        self.random = random.Random(seed)  # noqa: S311  an order of moves, no secret
        self.menu = [move for move in MENU if move.component in lab.writable]
        self.random.shuffle(self.menu)
        self.models: dict[tuple[object, ...], str] = {}
        self.standing = Standing()
        self.seen = Signals()
        start = stats.rewards(FEEDBACK / "c00")
        self.best = Node(Design(), "c00", "m00", start)
        self.since_best = 0
        self.improved = False

    def run(self) -> Node:
        """Search until the time, the ideas or the patience run out; returns the best node."""
        self.seen = signals(FEEDBACK / "c00")
        say(f"initial system: {self.best.score:.1%}; I may edit {', '.join(self.lab.writable)}")
        while (moves := self.propose()) is not None:
            self.attempt(moves)
            if self.best.score >= GOOD_ENOUGH:
                say("good enough: more would be noise")
                break
            if self.improved and self.since_best >= PATIENCE:
                say(f"{PATIENCE} edits without a gain since {self.best.candidate}: going on would only fit noise")
                break
        return self.best

    def propose(self) -> tuple[Move, ...] | None:
        """The next set of moves that is new, fits the time, and promises most; None when there is none."""
        for moves in self.candidates():
            names = frozenset(move.name for move in moves)
            if names in self.standing.tried or self.apply(moves) == self.best.design:
                continue
            if self.clock.fits(self.cost(moves)):
                return moves
        return None

    def candidates(self) -> Iterator[tuple[Move, ...]]:
        """Sets of moves in order: combinations that the evidence asks for, singles, pairs, triples."""
        usable = [move for move in self.menu if move.name not in self.standing.harmful]
        neutral = [move for move in self.standing.neutral if move.name not in self.standing.harmful]
        pairs = sorted(itertools.combinations(neutral, 2), key=self.promise)
        yield from (pair for pair in pairs if self.promise(pair) < 0)
        yield from ((move,) for move in usable)
        yield from pairs
        yield from sorted(itertools.combinations(neutral, 3), key=self.promise)

    def promise(self, moves: tuple[Move, ...]) -> int:
        """Lower is better: how many moves of a set the evidence asks for, if they reach across components."""
        names = {move.name for move in moves}
        points = 0
        if {"calculator-data", "calculator-tool"} <= names and self.seen.wrong_calls > 0.2:
            points -= 2
        if names & {"filter", "bank"} and self.seen.no_box > 0.3 and len({move.component for move in moves}) > 1:
            points -= 1 if "calculator-tool" in names and "calculator-data" in names else 0
        return points

    def apply(self, moves: tuple[Move, ...]) -> Design:
        design = self.best.design
        for move in moves:
            design = move.apply(design)
        return design

    def cost(self, moves: tuple[Move, ...]) -> float:
        """Seconds that trying ``moves`` will take, from what earlier jobs took."""
        design = self.apply(moves)
        train = 0.0 if self.known_model(design) else self.clock.train_s * max(1.0, design.epochs)
        return train + self.clock.validate_s

    def known_model(self, design: Design) -> str | None:
        """A model that this design's data and trainer already made; the number of examples may differ."""
        if trained(design) == trained(Design()):
            return "m00"
        for examples in (design.examples, *{key[2] for key in self.models}):
            model = self.models.get(trained(replace(design, examples=examples)))
            if model is not None:
                return model
        return None

    def attempt(self, moves: tuple[Move, ...]) -> None:
        """Try one set of moves and learn from it. A refusal or a failed job counts as harm."""
        names = frozenset(move.name for move in moves)
        self.standing.tried.add(names)
        why = "; and ".join(move.why for move in moves)
        design = self.apply(moves)
        say(f"try {' + '.join(sorted(names))}: {why}")
        try:
            node = self.evaluate(design, why)
        except Refused as error:
            say(f"refused: {error}")
            self.standing.harmful |= names if len(names) == 1 else set()
            self.since_best += 1
            return
        self.learn(moves, node)

    def evaluate(self, design: Design, why: str) -> Node:
        """Write the files, train where needed, validate. Raises Refused."""
        model = self.known_model(design)
        if model is None:
            design = replace(design, examples=self.clock.examples)
            self.lab.write(design)
            with self.clock.training(design):
                answer = vibe("train", "--from", ",".join(design.merge) or "m00", "-m", why)
            model = str(answer["model"])
            self.models[trained(design)] = model
        else:
            self.lab.write(design)
        with self.clock.validation():
            answer = vibe("validate", "--model", model, "--parent", self.best.candidate, "-m", why)
        candidate = str(answer["candidate"])
        return Node(design, candidate, model, stats.rewards(FEEDBACK / candidate))

    def learn(self, moves: tuple[Move, ...], node: Node) -> None:
        """Accept, reject or remember, by a paired test against the present best."""
        difference, p = stats.compare(self.best.rewards, node.rewards)
        found = signals(FEEDBACK / node.candidate)
        self.seen = Signals(
            max(self.seen.wrong_calls, found.wrong_calls), found.wrong_sums, max(self.seen.no_box, found.no_box)
        )
        parts = "+".join(changed(self.best.design, node.design)) or "nothing"
        verdict = (
            f"{node.candidate} ({parts}): {node.score:.1%}, {difference:+.1%} against {self.best.candidate}, p={p:.3f}"
        )
        if p < NOISE_P and difference > 0:
            say(f"{verdict}: keep")
            self.best, self.since_best, self.improved = node, 0, True
            self.standing = Standing(harmful=set())
            vibe("select", node.candidate)
            return
        self.since_best += 1
        if p < NOISE_P:
            say(f"{verdict}: harmful, roll back")
            self.standing.harmful |= {move.name for move in moves} if len(moves) == 1 else set()
            return
        say(f"{verdict}: within noise, roll back")
        self.standing.neutral += [move for move in moves if len(moves) == 1]
