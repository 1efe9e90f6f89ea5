"""The search: propose an edit, see what it does, keep what helps beyond noise, roll back the rest.

Hill climbing over designs. Single moves come first, in the seed's order. A move within noise is not worthless: it may
need another one. Evidence says which (``leads``): a loss that stayed high asks for a stronger trainer on the same
data, calculator calls with wrong values ask for a tool, replies without a box ask for cleaner rows. Such leads are
followed before anything else, the newest first, then the cheapest; where there are none, two good models are averaged,
the best model is trained on with new rows, and then pairs and triples of the moves within noise are tried. A large
base or a short budget allows few trainings: what answers the faults of the initial system is then tried at once, not
move by move.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

import stats
from clock import Clock
from design import LARGE_BYTES, Design, Move, changed, menu_for, merging, permitted, practising, sized, trained
from evidence import FEEDBACK, HIGH_LOSS, WRONG_CALLS, diverged, faults, losses
from lab import Lab, Refused, Unanswered, say, vibe
from memory import Memory

NOISE_P = 0.05
PATIENCE = 2
GOOD_ENOUGH = 0.85
BETTER = 0.9  # a lead is worth going on with when it brought the loss down by a tenth
LONGEST_LEAD = 6
PEER = 0.5  # a model is worth averaging with the best when it scores at least this share of it

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
    leads: list[list[Moves]] = field(default_factory=list)
    reached: dict[frozenset[str], float] = field(default_factory=dict)


def names(moves: Moves) -> frozenset[str]:
    return frozenset(move.name for move in moves)


def together(moves: Moves, wanted: list[Move]) -> Moves:
    """``moves`` and those of ``wanted`` that go with them: one for each field, none bold, none that multiplies time."""
    taken: set[str] = set()
    for move in wanted:
        fields = {name for name, _ in move.change}
        if not move.bold and not fields & {*taken, "epochs"}:
            moves, taken = (*moves, move), taken | fields
    return moves


class Search:
    """One search from the initial system to a selection. ``seed`` changes the order of the moves, nothing else."""

    def __init__(self, lab: Lab, clock: Clock, memory: Memory, seed: int) -> None:
        self.lab = lab
        self.memory = memory
        self.clock = clock
        self.menu = [move for move in menu_for(lab.base_bytes) if permitted(move, lab.writable, lab.recipe)]
        random.Random(seed).shuffle(self.menu)  # noqa: S311  an order of moves, no secret
        self.wanted = faults(FEEDBACK / "c00").mostly
        self.menu.sort(key=lambda move: (move.mends not in self.wanted, move.bold))
        self.models: dict[tuple[object, ...], tuple[str, Design]] = {}
        self.losses: dict[str, list[float]] = {}
        self.standing = Standing()
        self.best = Node(Design(), "c00", "m00", stats.rewards(FEEDBACK / "c00"))
        self.nodes = [self.best]
        self.since_best = 0
        self.improved = False
        if lab.base_bytes > LARGE_BYTES or clock.hurried:
            fitting = [m for m in self.menu if m.component == "trainer" or m.mends in self.wanted]
            bundle = together((), [m for m in fitting if m.component != "harness"])
            self.standing.leads += [[bundle]] if bundle else []

    def run(self) -> Node:
        """Search until the time, the ideas or the patience run out; returns the best node."""
        seen = " and ".join(sorted(self.wanted)) or "no one thing"
        own = ", ".join(
            f"{part} ({len(self.lab.recipe)} keys of the recipe)"
            if part == "trainer" and self.lab.recipe is not None
            else part
            for part in self.lab.writable
        )
        say(f"initial system: {self.best.score:.1%}, mostly wrong: {seen}; I may edit {own}")
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
            if self.memory.knows(self.ended(moves)) or self.clock.fits(self.cost(moves)):
                return moves
        return None

    def candidates(self) -> Iterator[Moves]:
        """Sets of moves in order: leads, two models averaged, the best one trained on, singles, pairs and triples."""
        harmful = self.standing.harmful
        for generation in reversed(self.standing.leads):
            usable = [lead for lead in generation if not names(lead) & harmful]
            yield from sorted(usable, key=lambda lead: (lead[-1].bold, self.cost(lead)))
        yield from self.merges()
        yield from self.practice()
        yield from ((move,) for move in self.menu if move.name not in harmful and not self.mended(move))
        neutral = [move for move in self.standing.neutral if move.name not in harmful]
        yield from itertools.combinations(neutral, 2)
        yield from itertools.combinations(neutral, 3)

    def merges(self) -> Iterator[Moves]:
        """The best model with the runner-up among the other trained ones, where both are any good."""
        if self.best.model == "m00" or not permitted(merging("", ""), self.lab.writable, self.lab.recipe):
            return
        floor = max(PEER * self.best.score, self.nodes[0].score)
        peers = [n for n in self.nodes if n.model not in ("m00", self.best.model) and n.score > floor]
        if peers:
            yield (merging(self.best.model, max(peers, key=lambda node: node.score).model),)

    def mended(self, move: Move) -> bool:
        """The move answers a fault that the best system no longer shows."""
        return self.improved and bool(move.mends) and move.mends not in self.wanted

    def practice(self) -> Iterator[Moves]:
        """The best model, trained on with rows that it has not seen: it has learned what it does, not yet how often."""
        move = practising(self.best.model, self.best.design)
        trained_here = self.best.model != "m00" and not self.best.design.merge
        if self.improved and trained_here and permitted(move, self.lab.writable, self.lab.recipe):
            yield (move,)

    def apply(self, moves: Moves) -> Design:
        design = self.best.design
        for move in moves:
            design = move.apply(design)
        return design

    def cost(self, moves: Moves) -> float:
        """Seconds that trying ``moves`` will take, from what earlier jobs took."""
        design = self.apply(moves)
        known = self.known_model(design) or self.memory.knows(self.training(self.bounded(design)))
        return (0.0 if known else self.clock.train_s(design)) + self.clock.validate_s

    def bounded(self, design: Design) -> Design:
        """The design with the size that a training of it has now."""
        return design if design.merge else sized(design, self.clock.examples(design), self.lab.batch)

    def training(self, design: Design) -> list[object]:
        """How a training is remembered."""
        return ["train", asdict(design)]

    def ended(self, moves: Moves) -> list[object]:
        """How an attempt that came to its end is remembered: an agent that is started again goes through it at once,
        however little time is left."""
        return ["ended", self.best.candidate, sorted(names(moves))]

    def known_model(self, design: Design) -> tuple[str, Design] | None:
        """A model of this design's data and trainer, and the design it was trained for; None before a training."""
        if trained(design) == trained(Design()):
            return "m00", Design()
        return self.models.get(trained(design))

    def attempt(self, moves: Moves) -> None:
        """Try one set of moves and learn from it. A refusal or a failed job counts as harm."""
        self.standing.tried.add(names(moves))
        why, ended = "; and ".join(move.why for move in moves), self.ended(moves)
        say(f"try {' + '.join(sorted(names(moves)))}: {why}")
        try:
            node = self.evaluate(self.apply(moves), why)
        except Unanswered:
            raise  # the desk is gone, which says nothing about the moves
        except Refused as error:
            say(f"dropped: {error}")
            self.standing.harmful.add(moves[-1].name)
            self.since_best += 1
            return
        self.nodes.append(node)
        self.learn(moves, node)
        self.memory.once(ended, dict)

    def evaluate(self, design: Design, why: str) -> Node:
        """Write the files, train where needed, validate. Raises Refused."""
        model, made_for = self.known_model(design) or self.train(design, why)
        design = made_for.with_harness(design)
        self.lab.write(design)
        words = ("validate", "--model", model, "--parent", self.best.candidate, "-m", why)
        answer, seconds = self.memory.once(["validate", model, asdict(design)], lambda: vibe(*words))
        self.clock.validated(seconds)
        candidate = str(answer["candidate"])
        return Node(design, candidate, model, stats.rewards(FEEDBACK / candidate))

    def train(self, design: Design, why: str) -> tuple[str, Design]:
        """A new model, and the design with the size it was trained for. Raises Refused, also for one that diverged."""
        examples, design = self.clock.examples(design), self.bounded(design)
        self.lab.write(design)
        named = ",".join(design.merge) or design.after
        parents = ("--from", named) if named else ()
        answer, seconds = self.memory.once(self.training(design), lambda: vibe("train", *parents, "-m", why))
        if not design.merge:
            self.clock.trained(examples, design.passes, seconds)
        model = str(answer["model"])
        self.models[trained(design)] = model, design
        curve = self.losses[model] = losses(str(answer["job"]))
        if diverged(curve):
            raise Refused(f"{model} diverged (loss {min(curve):.2f}, then {curve[-1]:.2f}): not worth a validation")
        return model, design

    def learn(self, moves: Moves, node: Node) -> None:
        """Accept, reject or remember, by a paired test against the present best."""
        difference, p = stats.compare(self.best.rewards, node.rewards)
        parts = "+".join(changed(self.best.design, node.design)) or "nothing"
        against = f"{difference:+.1%} against {self.best.candidate}, p={p:.3f}"
        verdict = f"{node.candidate} ({parts}): {node.score:.1%}, {against}"
        if p < NOISE_P and difference > 0:
            say(f"{verdict}: keep")
            self.best, self.since_best, self.improved = node, 0, True
            self.standing, self.wanted = Standing(), faults(FEEDBACK / node.candidate).mostly
            vibe("select", node.candidate)
            self.follow((), node)
            return
        self.since_best += 1
        say(f"{verdict}: {'harmful' if p < NOISE_P else 'within noise'}, roll back")
        mended = self.follow(moves, node)
        if len(moves) == 1 and p >= NOISE_P:
            self.standing.neutral += moves
        elif len(moves) == 1 and not mended:
            self.standing.harmful |= names(moves)

    def follow(self, moves: Moves, node: Node) -> bool:
        """Leads from what was seen: which moves would mend it, on top of the ones just tried. True: there are some."""
        if self.learned_no_more(moves, node):
            return False
        taken = {name for move in moves for name, _ in move.change}
        wanted = [move for move in self.mending(node) if not taken & {name for name, _ in move.change}]
        bundle = together(moves, wanted)
        if bundle != moves and self.short(node):
            say("few trainings fit into the time that is left: what belongs together is tried together")
            self.standing.leads.append([bundle])
        elif wanted and len(moves) < LONGEST_LEAD:
            self.standing.leads.append([(*moves, move) for move in wanted])
        return bool(wanted)

    def short(self, node: Node) -> bool:
        """Whether few trainings fit into the time that is left, as it was when ``node`` was new."""
        answer, _ = self.memory.once(["short", node.candidate], lambda: {"short": self.clock.short(node.design)})
        return bool(answer["short"])

    def learned_no_more(self, moves: Moves, node: Node) -> bool:
        """The last move was meant to train harder, and the loss is hardly lower than without it: it is dropped."""
        curve = self.losses.get(node.model, [])
        if not curve:
            return False
        before = self.standing.reached.get(names(moves[:-1])) if len(moves) > 1 else None
        self.standing.reached[names(moves)] = curve[-1]
        if before is None or moves[-1].component != "trainer" or curve[-1] <= BETTER * before:
            return False
        say(f"{node.model} learned no more ({curve[-1]:.2f}) than without {moves[-1].name} ({before:.2f}): drop it")
        self.standing.harmful.add(moves[-1].name)
        return True

    def mending(self, node: Node) -> list[Move]:
        """The moves that answer what is seen in a node's trajectories, then those that answer its training's loss."""
        wanted: list[Move] = []
        curve, seen = self.losses.get(node.model, []), faults(FEEDBACK / node.candidate)
        data = [move for move in self.menu if move.component == "data" and move.mends in seen.mostly and curve]
        if seen.wrong_calls > WRONG_CALLS and not node.design.tool:
            say(f"{seen.wrong_calls:.0%} of the calculator calls of {node.candidate} have a wrong value: compute them")
            wanted += [move for move in self.menu if dict(move.change).get("tool")]
        if any(move.mends == "format" for move in data):
            say(f"{seen.unboxed:.0%} of the replies of {node.candidate} have no box: learn from rows that have one")
        if any(move.mends == "arithmetic" for move in data):
            say(f"{seen.wrong_sums:.0%} of the equations of {node.candidate} are wrong: learn to write them as calls")
        wanted += data
        if curve and curve[-1] > HIGH_LOSS:
            say(f"{node.model} ended at a loss of {curve[-1]:.2f}: not learned yet, train harder")
            wanted += [move for move in self.menu if move.component == "trainer"]
        return [move for move in wanted if move.apply(node.design) != node.design]
