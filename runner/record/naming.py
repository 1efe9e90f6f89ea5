"""What the two scores of a run are called, by its protocol: the one that the agent sees, and the one that counts.

The default protocol has *validation* and *hidden*. rsibench-data has *selection* and *official*; where the official
problems are the selection problems themselves, the official score is called so wherever it is printed.
"""

from __future__ import annotations

from dataclasses import dataclass

from runner.record.state import RunState


@dataclass(frozen=True, slots=True)
class Names:
    """``seen`` and ``counted`` name the scores, ``test`` the one test, ``problems`` what it is on, ``looks`` what the
    agent's attempts are counted as. ``counts_trainings``: one that made no model is such an attempt, too."""

    seen: str
    counted: str
    test: str
    problems: str
    looks: str
    same: bool = False
    counts_trainings: bool = False

    @property
    def SEEN(self) -> str:
        """The score that the agent sees, as a loud label."""
        return self.seen.upper()

    @property
    def COUNTED(self) -> str:
        """The score that counts, as a loud label."""
        return self.counted.upper()

    @property
    def delta(self) -> str:
        """The difference that counts."""
        return f"{self.counted} Δ_test" if not self.same else "official Δ, on the selection set"


_DEFAULT = Names("validation", "hidden", "hidden test", "hidden problems", "validations")
_RSIBENCH = Names("selection", "official", "official test", "official problems", "attempts", counts_trainings=True)
_SAME = Names(
    "selection", "official on the selection set", "official test on the selection set",
    "the selection problems, drawn anew", "attempts", same=True, counts_trainings=True,
)  # fmt: skip


def names_of(protocol: str, *, same: bool = False) -> Names:
    """The names under a protocol; ``same``: both scores are on the same problems."""
    if protocol != "rsibench-data":
        return _DEFAULT
    return _SAME if same else _RSIBENCH


def names(state: RunState) -> Names:
    """The names of a run; those of the default protocol before it has begun."""
    if state.run is None:
        return _DEFAULT
    return names_of(state.run.protocol, same=state.head.task is not None and state.head.task.same)
