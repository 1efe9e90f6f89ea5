"""A whole run for its reports: the state, and beside it everything that explains the numbers, read once.

The renderers (Markdown, HTML, figures) take their facts from here and from :mod:`runner.report.figures_of_merit`.
"""

from __future__ import annotations

from dataclasses import dataclass

from runner.record.describe import foreign
from runner.record.events import AgentTurn
from runner.record.journal import JournalError, read
from runner.record.pairs import Pair, paired
from runner.record.rundir import RunDir
from runner.record.state import INITIAL, CandidateState, RunState, best_so_far
from runner.report import evidence
from runner.report.evidence import Change, Rewards
from runner.report.figures_of_merit import Merit, measure
from runner.report.statistics import Optimism, selection_optimism

_NOISE = frozenset({"train_progress", "validation_progress", "hidden_progress", "lease_changed", "budget_tick"})
_SAYINGS = 12  # lines of the agent shown with one decision


@dataclass(frozen=True, slots=True)
class Decision:
    """One candidate and what came of it. ``to_parent`` and ``to_initial`` compare validations on the same problems.

    ``said`` are the agent's own lines since the candidate before: claims. ``losses`` are its trainer's claims.
    """

    candidate: CandidateState
    to_parent: Pair | None
    to_initial: Pair | None
    changes: tuple[Change, ...]
    said: tuple[str, ...]
    losses: tuple[tuple[int, float], ...]
    selected: bool
    best: bool


@dataclass(frozen=True, slots=True)
class Story:
    """A run, read whole. ``rewards`` are those of validation, by candidate and problem; ``rivals`` the candidates that
    validation cannot tell from the selected; ``hidden`` compares the selected with P0 on hidden problems, of which
    only counts are ever shown."""

    state: RunState
    merit: Merit
    decisions: tuple[Decision, ...]
    rewards: dict[str, Rewards]
    optimism: Optimism | None
    rivals: tuple[str, ...]
    hidden: Pair | None


def tell(run: RunDir, state: RunState) -> Story:
    """Read the run's evidence. Total: what is not there leaves its part empty."""
    merit = measure(state)
    samples = _samples(state)
    rewards = _validation_rewards(run, state, samples)
    told = _sayings(run)
    decisions = []
    since = 0.0
    for candidate in state.candidates.values():
        said = [line for el, line in told if since <= el < max(candidate.el, since)]
        since = max(since, candidate.el)
        decisions.append(_decision(run, state, merit, candidate, rewards, samples, said))
    chosen_from = {name: rewards[name] for name in state.trials.valid if name in rewards and name != INITIAL}
    optimism = selection_optimism(chosen_from, samples) if len(chosen_from) == merit.valid else None
    rivals = _rivals(rewards, merit.selected_id, samples)
    return Story(state, merit, tuple(decisions), rewards, optimism, rivals, _hidden(run, state))


def _rivals(rewards: dict[str, Rewards], selected: str | None, samples: int) -> tuple[str, ...]:
    mine = rewards.get(selected or "")
    if mine is None:
        return ()
    others = ((name, rows) for name, rows in rewards.items() if name != selected and set(rows) == set(mine))
    return tuple(name for name, rows in others if paired(rows, mine, samples).verdict == "within noise")


def _samples(state: RunState) -> int:
    known = [item.validation.samples for item in state.candidates.values() if item.validation is not None]
    return known[0] if known else (state.run.samples if state.run else 1)


def _validation_rewards(run: RunDir, state: RunState, samples: int) -> dict[str, Rewards]:
    """Only of valid candidates whose rows agree with the recorded score."""
    found: dict[str, Rewards] = {}
    for candidate in state.candidates.values():
        score = candidate.validation
        if score is None or not candidate.eval or score.samples != samples:
            continue
        try:
            rows = evidence.rewards(run.evaluation(candidate.eval), samples=samples)
        except JournalError:
            continue
        if rows is not None and evidence.agrees(rows, score):
            found[candidate.id] = rows
    return found


def _decision(
    run: RunDir,
    state: RunState,
    merit: Merit,
    candidate: CandidateState,
    rewards: dict[str, Rewards],
    samples: int,
    said: list[str],
) -> Decision:
    def against(other: str | None) -> Pair | None:
        before, after = rewards.get(other or ""), rewards.get(candidate.id)
        if before is None or after is None or other == candidate.id or set(before) != set(after):
            return None
        return paired(before, after, samples)

    return Decision(
        candidate=candidate,
        to_parent=against(candidate.parent),
        to_initial=against(INITIAL),
        changes=tuple(evidence.changes(run, candidate)),
        said=tuple(said[-_SAYINGS:]),
        losses=tuple(evidence.losses(run, candidate.model)) if candidate.model else (),
        selected=candidate.id == merit.selected_id,
        best=candidate.id == state.trials.best,
    )


def _sayings(run: RunDir) -> list[tuple[float, str]]:
    """What the agent said, with its budget seconds: claims, one clean line each."""
    turns = (event for event in read(run.journal_file, skip=_NOISE) if isinstance(event.payload, AgentTurn))
    return [(e.el, foreign(e.payload.summary, 300)) for e in turns if isinstance(e.payload, AgentTurn)][:20_000]


def _hidden(run: RunDir, state: RunState) -> Pair | None:
    """The paired comparison on hidden problems, where the sealed rows can be read and agree with the journal."""
    known = state.hidden
    if known is None or known.initial.samples != known.selected.samples:
        return None
    samples = known.initial.samples
    before = evidence.rewards(run.hidden / "initial", samples=samples)
    after = evidence.rewards(run.hidden / "selected", samples=samples)
    if before is None or after is None or set(before) != set(after):
        return None
    agrees = evidence.agrees(before, known.initial) and evidence.agrees(after, known.selected)
    return paired(before, after, samples) if agrees else None


def curve(state: RunState) -> list[tuple[float, float]]:
    """The best validation so far as (budget seconds, score) steps, P0 included."""
    return [(el, score) for el, _, score in best_so_far(state)]
