"""The search: propose an edit, see what it does, keep what helps beyond noise, roll back the rest.

Hill climbing over designs. Single moves come first, in the seed's order. A move within noise is not worthless: it may
need another one. Evidence says which: a loss that stayed high asks for a stronger trainer on the same data, calculator
calls with wrong values in the trajectories ask for a tool. Such leads are followed before anything else; where there
are none, pairs and triples of the moves within noise are tried.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import arithmetic
import stats
from clock import Clock
from design import MENU, Design, Move, changed, sized, trained
from lab import Lab, Refused, say, vibe

FEEDBACK = Path("/feedback")
NOISE_P = 0.05
PATIENCE = 2
GOOD_ENOUGH = 0.9
HIGH_LOSS = 0.5  # nats a token: a format that was learned costs less
WRONG_CALLS = 0.2
MOSTLY = 0.4
BETTER = 0.9  # a lead is worth going on with when it brought the loss down by a tenth
LONGEST_LEAD = 5

Moves = tuple[Move, ...]


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
class Standing:
    """What is known at the present best: the sets that were tried, moves within noise, moves that harm, leads."""

    tried: set[frozenset[str]] = field(default_factory=set)
    neutral: list[Move] = field(default_factory=list)
    harmful: set[str] = field(default_factory=set)
    leads: list[Moves] = field(default_factory=list)


def names(moves: Moves) -> frozenset[str]:
    return frozenset(move.name for move in moves)


def wrong_call_share(folder: Path) -> float:
    """The share of calculator calls in a candidate's final replies whose value is wrong; 0 where there are none."""
    wrong = calls = 0
    for path in sorted((folder / "trajectories").glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            step = json.loads(line)
            if step["kind"] == "end":
                bad, total = arithmetic.wrong_calls(step["reply"])
                wrong, calls = wrong + bad, calls + total
    return wrong / calls if calls else 0.0


def faults(folder: Path) -> set[str]:
    """What is mostly wrong in a candidate's final replies: their sums ("arithmetic"), or the box is missing."""
    wrong = sums = unboxed = ends = 0
    for path in sorted((folder / "trajectories").glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            step = json.loads(line)
            if step["kind"] == "end":
                found = arithmetic.PLAIN.findall(step["reply"])
                sums += len(found)
                wrong += sum(arithmetic.evaluate(left) != int(right) for left, right in found)
                ends, unboxed = ends + 1, unboxed + (step["reason"] == "no_box")
    shares = {"arithmetic": wrong / sums if sums else 0.0, "format": unboxed / ends if ends else 0.0}
    return {name for name, share in shares.items() if share > MOSTLY}


def losses(job: str) -> list[float]:
    """The training losses that the trainer reported, in order."""
    path = FEEDBACK / "jobs" / job / "train.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [float(row["loss"]) for row in map(json.loads, lines) if row.get("loss") is not None]


def diverged(curve: list[float]) -> bool:
    """The loss ended clearly above where it had been."""
    return bool(curve) and curve[-1] > 1.2 * min(curve) + 0.1


class Search:
    """One search from the initial system to a selection. ``seed`` changes the order of the moves, nothing else."""

    def __init__(self, lab: Lab, clock: Clock, seed: int) -> None:
        self.lab = lab
        self.clock = clock
        self.menu = [move for move in MENU if move.component in lab.writable]
        random.Random(seed).shuffle(self.menu)  # noqa: S311  an order of moves, no secret
        self.wanted = faults(FEEDBACK / "c00")
        self.menu.sort(key=lambda move: move.mends not in self.wanted)
        self.models: dict[tuple[object, ...], tuple[str, Design]] = {}
        self.losses: dict[str, list[float]] = {}
        self.reached: dict[frozenset[str], float] = {}
        self.standing = Standing()
        self.best = Node(Design(), "c00", "m00", stats.rewards(FEEDBACK / "c00"))
        self.since_best = 0
        self.improved = False

    def run(self) -> Node:
        """Search until the time, the ideas or the patience run out; returns the best node."""
        seen = " and ".join(sorted(self.wanted)) or "no one thing"
        say(f"initial system: {self.best.score:.1%}, mostly wrong: {seen}; I may edit {', '.join(self.lab.writable)}")
        while (moves := self.propose()) is not None:
            self.attempt(moves)
            if self.best.score >= GOOD_ENOUGH:
                say("good enough: more would be noise")
                break
            if self.improved and self.since_best >= PATIENCE:
                say(f"{PATIENCE} edits without a gain since {self.best.candidate}: going on would only fit noise")
                break
        return self.best

    def propose(self) -> Moves | None:
        """The next set of moves that is new and fits the time; None when there is none."""
        for moves in self.candidates():
            if names(moves) in self.standing.tried or self.apply(moves) == self.best.design:
                continue
            if self.clock.fits(self.cost(moves)):
                return moves
        return None

    def candidates(self) -> Iterator[Moves]:
        """Sets of moves in order: leads, newest first; singles; pairs and triples of what ended within noise."""
        harmful = self.standing.harmful
        yield from (lead for lead in reversed(self.standing.leads) if not names(lead) & harmful)
        yield from ((move,) for move in self.menu if move.name not in harmful)
        neutral = [move for move in self.standing.neutral if move.name not in harmful]
        yield from itertools.combinations(neutral, 2)
        yield from itertools.combinations(neutral, 3)

    def apply(self, moves: Moves) -> Design:
        design = self.best.design
        for move in moves:
            design = move.apply(design)
        return design

    def cost(self, moves: Moves) -> float:
        """Seconds that trying ``moves`` will take, from what earlier jobs took."""
        design = self.apply(moves)
        train = 0.0 if self.known_model(design) else self.clock.train_s * max(1.0, design.epochs)
        return train + self.clock.validate_s

    def known_model(self, design: Design) -> tuple[str, Design] | None:
        """A model of this design's data and trainer, and the design it was trained for; None before a training."""
        if trained(design) == trained(Design()):
            return "m00", Design()
        return self.models.get(trained(design))

    def attempt(self, moves: Moves) -> None:
        """Try one set of moves and learn from it. A refusal or a failed job counts as harm."""
        self.standing.tried.add(names(moves))
        why = "; and ".join(move.why for move in moves)
        say(f"try {' + '.join(sorted(names(moves)))}: {why}")
        try:
            node = self.evaluate(self.apply(moves), why)
        except Refused as error:
            say(f"dropped: {error}")
            self.standing.harmful.add(moves[-1].name)
            self.since_best += 1
            return
        self.learn(moves, node)

    def evaluate(self, design: Design, why: str) -> Node:
        """Write the files, train where needed, validate. Raises Refused."""
        known = self.known_model(design)
        if known is None:
            design = sized(design, self.clock.examples, self.lab.batch)
            self.lab.write(design)
            with self.clock.training(design):
                answer = vibe("train", "-m", why)
            known = str(answer["model"]), design
            self.models[trained(design)] = known
            self.losses[known[0]] = losses(str(answer["job"]))
            self.must_have_learned(known[0])
        model, made_for = known
        self.lab.write(made_for.with_harness(design))
        with self.clock.validation():
            answer = vibe("validate", "--model", model, "--parent", self.best.candidate, "-m", why)
        candidate = str(answer["candidate"])
        return Node(made_for.with_harness(design), candidate, model, stats.rewards(FEEDBACK / candidate))

    def must_have_learned(self, model: str) -> None:
        """Raises Refused for a training that diverged: its validation would be time for nothing."""
        curve = self.losses[model]
        if diverged(curve):
            raise Refused(f"{model} diverged (loss {min(curve):.2f}, then {curve[-1]:.2f}): not worth a validation")

    def learn(self, moves: Moves, node: Node) -> None:
        """Accept, reject or remember, by a paired test against the present best."""
        difference, p = stats.compare(self.best.rewards, node.rewards)
        parts = "+".join(changed(self.best.design, node.design)) or "nothing"
        against = f"{difference:+.1%} against {self.best.candidate}, p={p:.3f}"
        verdict = f"{node.candidate} ({parts}): {node.score:.1%}, {against}"
        if p < NOISE_P and difference > 0:
            say(f"{verdict}: keep")
            self.best, self.since_best, self.improved = node, 0, True
            self.standing, self.reached = Standing(), {}
            vibe("select", node.candidate)
            self.follow((), node)
            return
        self.since_best += 1
        if p < NOISE_P:
            say(f"{verdict}: harmful, roll back")
            self.standing.harmful |= names(moves) if len(moves) == 1 else set()
            return
        say(f"{verdict}: within noise, roll back")
        self.standing.neutral += [move for move in moves if len(moves) == 1]
        self.follow(moves, node)

    def follow(self, moves: Moves, node: Node) -> None:
        """Leads from what was seen: which moves would mend it, on top of the ones just tried."""
        wanted: list[Move] = []
        curve = self.losses.get(node.model, [])
        before = self.reached.get(names(moves[:-1]), float("inf")) if len(moves) > 1 else float("inf")
        if curve and moves and moves[-1].component == "trainer" and curve[-1] > BETTER * before:
            say(f"{node.model} learned no more ({curve[-1]:.2f}) than without {moves[-1].name} ({before:.2f}): drop it")
            self.standing.harmful.add(moves[-1].name)
            return
        if curve:
            self.reached[names(moves)] = curve[-1]
        if curve and curve[-1] > HIGH_LOSS:
            say(f"{node.model} ended at a loss of {curve[-1]:.2f}, still falling: not learned yet, train harder")
            usable = [move for move in self.menu if move.name not in self.standing.harmful]
            wanted += [move for move in usable if move.component == "trainer"]
        share = wrong_call_share(FEEDBACK / node.candidate)
        if share > WRONG_CALLS and not node.design.tool:
            say(f"{share:.0%} of the calculator calls of {node.candidate} have a wrong value: compute them")
            wanted += [move for move in self.menu if dict(move.change).get("tool")]
        for move in wanted:
            fields = {name for name, _ in move.change}
            if len(moves) < LONGEST_LEAD and not any(fields & {name for name, _ in other.change} for other in moves):
                self.standing.leads.append((*moves, move))
