"""fold: pure, total, idempotent per event, and with bounded memory whatever an agent makes happen."""

from __future__ import annotations

import copy
from typing import Any, get_args

from hypothesis import given, settings
from hypothesis import strategies as st
from journal_samples import HOSTILE, START, candidate, score, started, validated, whole_run
from pydantic import BaseModel

from runner.record import events as ev
from runner.record.events import Event, Payload, Unknown
from runner.record.fold import _HANDLERS, fold
from runner.record.state import RunState, best_so_far, integrity, integrity_count, valid

PAYLOADS: tuple[type[BaseModel], ...] = get_args(Payload)


def events_of(*payloads: Payload | Unknown, first: int = 1) -> list[Event]:
    """Events with plain envelopes, one second apart."""
    return [
        Event(v=1, seq=n, t=START + n, el=float(n), prev="", payload=payload)
        for n, payload in enumerate(payloads, first)
    ]


def folded(*payloads: Payload | Unknown) -> RunState:
    """The state after the payloads."""
    state = RunState()
    for event in events_of(*payloads):
        state = fold(state, event)
    return state


def a_run(**kwargs: Any) -> RunState:
    """The state of a made-up run."""
    return folded(*(payload for payload, _, _ in whole_run(**kwargs)))


names = st.sampled_from(["c00", "c01", "c02", "m00", "m01", "j1", "j2", HOSTILE, ""])
scores = st.floats(0, 1).map(lambda value: score(value))
statuses = st.sampled_from(["ok", "failed", "refused", "cut", "late", "cancelled", "lost"])
payloads = st.one_of(
    st.builds(candidate, names, st.none() | names, names, st.just("data")),
    st.builds(ev.JobQueued, job=names, verb=st.sampled_from(["train", "validate", "sample"])),
    st.builds(ev.TrainStarted, job=names, parents=st.just(("m00",)), data=names, trainer=names),
    st.builds(
        ev.TrainProgress,
        job=names,
        step=st.integers(),
        steps=st.integers(),
        loss=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    ),
    st.builds(ev.TrainFinished, job=names, status=statuses, seconds=st.just(1.0), model=st.none() | names),
    st.builds(
        ev.ValidationStarted, job=names, candidate=names, eval=names, problems=st.integers(), samples=st.integers()
    ),
    st.builds(ev.ValidationProgress, job=names, candidate=names, done=st.integers(), total=st.integers()),
    st.builds(
        ev.ValidationFinished,
        job=names,
        candidate=names,
        eval=names,
        status=statuses,
        seconds=st.just(1.0),
        score=st.none() | scores,
        repeat=st.booleans(),
    ),
    st.builds(
        ev.SampleFinished,
        job=names,
        model=names,
        prompts=st.integers(),
        n=st.integers(),
        status=statuses,
        seconds=st.just(1.0),
    ),
    st.builds(
        ev.LeaseChanged, holder=st.none() | st.sampled_from(["training", "grading", "sampling"]), job=st.none() | names
    ),
    st.builds(ev.PhaseChanged, phase=st.sampled_from(["research", "hidden_test", "finished"])),
    st.builds(ev.Selected, candidate=names, by=st.sampled_from(["agent", "policy"]), final=st.booleans()),
    st.builds(ev.HiddenClaimed, candidate=names),
    st.builds(ev.Integrity, what=st.text(max_size=5)),
    st.builds(ev.Warned, what=st.text(max_size=5)),
    st.builds(ev.EditRefused, component=st.sampled_from(["data", "harness"]), where=names, reason=names),
    st.builds(ev.RunResumed, boot_id=names, gap_s=st.just(1.0), phase=st.just("research")),
    st.builds(ev.RunFinished, status=st.sampled_from(["ok", "stopped"])),
    st.builds(Unknown, kind=st.text(max_size=5), fields=st.just({}), why=st.just("new")),
    st.just(started()),
)
sequences = st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 60), payloads), max_size=60).map(
    lambda items: [Event(v=v, seq=seq, t=float(seq), el=float(seq), prev="", payload=said) for v, seq, said in items]
)


@settings(max_examples=100, deadline=None)
@given(sequences)
def test_any_sequence_folds_and_the_same_event_twice_changes_nothing(events: list[Event]) -> None:
    state = RunState()
    for event in events:
        before = copy.deepcopy(state)
        after = fold(state, event)
        assert state == before, "folding changes the state it was given"
        assert fold(after, event) == after
        assert after.seq == max(before.seq, event.seq if event.v else 0)
        assert set(after.trials.valid) == {name for name, item in after.candidates.items() if item.validation}
        state = after


@settings(max_examples=50, deadline=None)
@given(st.lists(payloads, max_size=40), st.integers(0, 40))
def test_going_back_and_reading_again_is_harmless(said: list[Payload], back: int) -> None:
    events = events_of(*said)
    once = RunState()
    for event in events:
        once = fold(once, event)
    again = once
    for event in events[-back:]:
        again = fold(again, event)
    assert again == once


def test_every_kind_of_event_has_a_meaning() -> None:
    assert set(_HANDLERS) == {*PAYLOADS, Unknown}
    kinds = {payload.kind for payload, _, _ in whole_run()}
    never_in_one_run = {"human_action", "sample_started"}
    assert kinds | never_in_one_run == {str(kind.model_fields["kind"].default) for kind in PAYLOADS}


def test_a_whole_run() -> None:
    state = a_run()
    assert state.run is not None
    assert state.run.task == "aime"
    assert state.weak == ("soft limits (no cgroups)",)
    assert list(state.candidates) == ["c00", "c01", "c90", "c02", "c03", "c04", "c05", "c06"]
    assert [item.id for item in valid(state)] == ["c00", "c01", "c02", "c03", "c04", "c05", "c06"]
    assert state.best is not None
    assert state.best.id == "c03"
    assert [name for _, name, _ in best_so_far(state)] == ["c00", "c01", "c03"]
    assert state.candidates["c90"].status == "failed"
    assert list(state.models) == ["m00", "m01", "m02", "m03", "m04", "m05", "m06"]
    assert state.models["m03"].parents == ("m00",)
    assert state.models["m03"].hypothesis == "traj filter v3 + rep"
    assert state.current is None
    assert state.queue == ()
    assert state.jobs["j901"].verb == "sample"
    assert state.jobs["j901"].started_el is not None
    assert state.selected == ev.Selected(candidate="c03", by="agent", final=True)
    assert state.hidden is not None
    assert state.hidden.selected.score == 0.515
    assert state.finished == ev.RunFinished(status="ok")
    assert state.head.resumes == 1
    assert [mark.phase for mark in state.phases] == [
        "baseline",
        "research",
        "research",
        "selecting",
        "hidden_test",
        "reporting",
    ]


def test_what_happens_now_is_seen_while_it_happens() -> None:
    training = ev.TrainStarted(job="j1", parents=("m00",), data="d", trainer="t")
    state = folded(
        ev.JobQueued(job="j1", verb="train"), training, ev.TrainProgress(job="j1", step=3, steps=12, loss=0.5)
    )
    assert state.current is not None
    assert (state.current.id, state.current.verb, state.current.queued_el, state.current.started_el) == (
        "j1",
        "train",
        1.0,
        2.0,
    )
    assert state.work.progress.share == 0.25
    assert state.queue == ()
    stray = fold(state, events_of(ev.TrainProgress(job="other", step=9, steps=9), first=9)[0])
    assert stray.work.progress.share == 0.25


def test_a_late_a_failed_and_a_repeated_validation_are_no_new_scores() -> None:
    made = [candidate(name, "c00", "m01", "data") for name in ("c01", "c02", "c03")]
    state = folded(
        *made,
        validated("j1", "c01", "e1", 0.5),
        validated("j2", "c02", "e2", 0.9, "late"),
        validated("j3", "c03", "e3", None, "failed"),
        validated("j4", "c01", "e1", 0.99, repeat=True),
        validated("j5", "c01", "e5", 0.7),
    )
    assert [item.id for item in valid(state)] == ["c01"]
    assert state.best is not None
    assert state.best.validation == score(0.5)
    assert state.candidates["c02"].late == score(0.9)
    assert state.candidates["c02"].validation is None
    assert state.candidates["c03"].status == "failed"


def test_of_equal_scores_the_first_is_best() -> None:
    state = folded(validated("j1", "c01", "e1", 0.5), validated("j2", "c02", "e2", 0.5))
    assert state.best is not None
    assert state.best.id == "c01"


def test_a_failed_validation_can_still_become_valid() -> None:
    state = folded(validated("j1", "c01", "e1", None, "failed", error="x"), validated("j2", "c01", "e2", 0.5))
    assert state.candidates["c01"].status == "ok"
    assert state.candidates["c01"].error == ""


def test_a_final_selection_and_a_hidden_result_stay() -> None:
    def result(name: str, value: float) -> ev.HiddenFinished:
        delta = ev.Delta(value=0, low=0, high=0)
        return ev.HiddenFinished(candidate=name, initial=score(0.3), selected=score(value), delta=delta, status="ok")

    state = folded(
        ev.Selected(candidate="c01", by="agent"),
        ev.Selected(candidate="c02", by="agent", final=True),
        ev.Selected(candidate="c03", by="agent", final=True),
        ev.HiddenClaimed(candidate="c02"),
        ev.HiddenClaimed(candidate="c03"),
        result("c02", 0.4),
        result("c03", 0.9),
    )
    assert state.selected is not None
    assert state.selected.candidate == state.outcome.claimed == "c02"
    assert state.hidden == result("c02", 0.4)


def test_a_stopped_run_that_is_resumed_is_not_over() -> None:
    over = folded(started(), ev.RunFinished(status="stopped"))
    assert over.finished is not None
    again = fold(over, events_of(ev.RunResumed(boot_id="b2", gap_s=5.0, phase="research"), first=3)[0])
    assert again.finished is None
    assert (again.phase, again.boot_id, again.head.gap_s) == ("research", "b2", 5.0)


def test_a_wall_that_was_once_weak_stays_weak_on_the_card() -> None:
    state = folded(ev.IsolationChecked(weak=("a",), allowed=("b",)), ev.IsolationChecked(weak=("c",), allowed=()))
    assert (state.weak, state.allowed) == (("a", "c"), ("b",))


def test_a_flood_of_one_kind_hides_no_other_and_keeps_memory_flat() -> None:
    state = RunState()
    flood = events_of(*([ev.Integrity(what="line too long", detail="x" * 100)] * 5000))
    for event in flood:
        state = fold(state, event)
    state = fold(state, events_of(ev.Integrity(what="spoofed score"), first=6000)[0])
    assert integrity_count(state) == 5001
    assert [seen.what.what for seen in integrity(state)][-1] == "spoofed score"
    assert len(integrity(state)) == 21
    for event in events_of(*(Unknown(kind=f"k{n}", fields={}, why="") for n in range(500)), first=7000):
        state = fold(state, event)
    assert state.unknown_count == 500
    assert len(state.notes.unknown) <= 65
