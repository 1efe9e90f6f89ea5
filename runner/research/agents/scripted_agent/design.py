"""A design: what the agent has decided about data, trainer and harness; and the moves that lead from one to another."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True)
class Design:
    """All decisions at once. Equal designs give equal files; the default is exactly what the lab started with.

    ``rows``: the pool as given, its consistent rows (filtered), or worked problems of /sources (bank).
    ``examples`` and ``steps`` bound how much is trained, 0 leaves it alone. ``learning_rate`` multiplies the recipe's.
    ``after`` names the model that the training goes on from ("" is the base); ``skip`` rows it has already seen.
    """

    rows: str = "pool"
    notation: str = "plain"
    skip: int = 0
    examples: int = 0
    learning_rate: float = 1.0
    epochs: float = 0.0
    method: str = ""
    batch: int = 0
    steps: int = 0
    after: str = ""
    merge: tuple[str, ...] = ()
    tool: bool = False
    shots: int = 0

    def with_harness(self, other: Design) -> Design:
        """This design's data and trainer with the harness of ``other``."""
        return replace(self, tool=other.tool, shots=other.shots)

    @property
    def passes(self) -> float:
        """How often a training sees each example."""
        return max(1.0, self.epochs)


COMPONENT = {
    "rows": "data",
    "notation": "data",
    "skip": "data",
    "examples": "data",
    "learning_rate": "trainer",
    "epochs": "trainer",
    "method": "trainer",
    "batch": "trainer",
    "steps": "trainer",
    "after": "trainer",
    "merge": "trainer",
    "tool": "harness",
    "shots": "harness",
}


@dataclass(frozen=True)
class Move:
    """One change of one component, with the hypothesis that an agent would state for it.

    ``mends`` names the fault in trajectories that the move is meant for: "arithmetic", "format" or nothing. A ``bold``
    move comes after the others that mend the same.
    """

    name: str
    change: tuple[tuple[str, object], ...]
    why: str
    mends: str = ""
    bold: bool = False

    @property
    def component(self) -> str:
        return COMPONENT[self.change[0][0]]

    def apply(self, design: Design) -> Design:
        """The design with this change. New data or another trainer make a merged model's own recipe count again."""
        unmerged = design if self.component == "harness" else replace(design, merge=())
        return replace(unmerged, **dict(self.change))  # type: ignore[arg-type]


FULL = "full-tuning"

MENU = (
    Move("filter", (("rows", "filtered"),), "the pool holds wrong and unboxed solutions: keep the good ones", "format"),
    Move("bank", (("rows", "bank"),), "train on the worked problems of /sources, not on the noisy pool", "format"),
    Move("calculator-data", (("notation", "calculator"),), "write each computation as <<a*b>>=c", "arithmetic"),
    Move("calculator-tool", (("tool", True),), "stop at >>, compute the value, and let the model go on", "arithmetic"),
    Move("shots", (("shots", 2),), "two solved examples in the prompt show the format", "format"),
    Move("higher-rate", (("learning_rate", 5.0),), "the recipe's learning rate looks timid"),
    Move("wild-rate", (("learning_rate", 150.0),), "a far higher learning rate could learn faster", bold=True),
    Move(FULL, (("method", "full"),), "train all weights: an adapter may be too small a change"),
    Move("epochs", (("epochs", 3.0),), "see each example three times"),
)

RECIPE_KEYS = {
    "learning_rate": "learning_rate",
    "epochs": "epochs",
    "method": "method",
    "steps": "max_steps",
    "batch": "batch_size",
    "after": "start_from",
    "merge": "method",
}
"""The key of the recipe that a decision about the trainer sets."""

SIZES = ("examples", "steps")
LARGE_BYTES = 100_000_000
SMALLER_BATCH = Move("smaller-batch", (("batch", 8),), "few rows will be seen: smaller batches make more steps of them")


def menu_for(base_bytes: int) -> tuple[Move, ...]:
    """The moves for a base model whose files have so many bytes. The trainer's README: all weights are for models of a
    few million parameters, adapters for those from about 100 million up."""
    if base_bytes <= LARGE_BYTES:
        return MENU
    return (*(replace(move, bold=move.bold or move.name == FULL) for move in MENU), SMALLER_BATCH)


def permitted(move: Move, writable: tuple[str, ...], recipe: tuple[str, ...] | None) -> bool:
    """May this move be made: its component is writable, and where only some keys of the recipe may be set, its keys
    are among them. ``recipe`` None: the whole trainer is the agent's."""
    if move.component not in writable:
        return False
    keys = {RECIPE_KEYS[name] for name, _ in move.change if name in RECIPE_KEYS}
    return recipe is None or keys <= set(recipe)


def merging(first: str, second: str) -> Move:
    """The move that averages two models of this run. It costs no training."""
    why = f"{first} and {second} learned from different edits: their average may keep what both learned"
    return Move(f"merge-{first}-{second}", (("merge", (first, second)),), why)


def practising(model: str, design: Design) -> Move:
    """The move that trains ``model``, which was made for ``design``, on with rows that it has not seen."""
    why = f"{model} has seen {design.examples or 'few'} of the rows: go on from it with the next ones"
    return Move(f"on-from-{model}", (("after", model), ("skip", design.skip + design.examples)), why)


def trained(design: Design) -> tuple[object, ...]:
    """What decides the model but for how much was trained: two designs with the same value can share a training."""
    return tuple(
        getattr(design, f.name) for f in fields(design) if COMPONENT[f.name] != "harness" and f.name not in SIZES
    )


def sized(design: Design, examples: int, batch: int) -> Design:
    """The design bounded to ``examples``, through the component that it edits anyway: data if it can, else trainer."""
    if "data" in changed(Design(), design):
        return replace(design, examples=examples)
    return replace(design, steps=max(1, int(examples * design.passes) // (design.batch or batch)))


def changed(before: Design, after: Design) -> tuple[str, ...]:
    """The components in which two designs differ."""
    names = {COMPONENT[f.name] for f in fields(before) if getattr(before, f.name) != getattr(after, f.name)}
    return tuple(name for name in ("data", "trainer", "harness") if name in names)
