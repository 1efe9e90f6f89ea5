"""One formatter, clean whatever it is given."""

from __future__ import annotations

import io
import json
import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_samples import HOSTILE, candidate, score, started, validated, whole_run
from test_record_fold import PAYLOADS, a_run, events_of, folded, payloads

from runner.plain import PlainPrinter, wants_color
from runner.record import describe as words
from runner.record import events as ev
from runner.record.describe import describe, tone
from runner.record.events import Event, Payload, Unknown
from runner.record.fold import fold
from runner.record.state import RunState

UGLY = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


def is_clean(text: str) -> bool:
    """Nothing that a terminal acts on, nothing invisible; newlines are the caller's business."""
    return not UGLY.search(text) and not any(unicodedata.category(letter) in ("Cs", "Cf") for letter in text)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.3294, "32.9 %"), (0.0, "0.0 %"), (1.0, "100.0 %"), (-0.0001, "0.0 %"), (None, "–")],
)
def test_percent(value: float | None, text: str) -> None:
    assert words.percent(value) == text


def test_scores_and_differences() -> None:
    plain = ev.Score(score=0.3289, low=0.2911, high=0.3688, n=112, samples=1)
    assert words.score_text(plain) == "32.9 % [29.1, 36.9] n=112"
    assert words.score_text(plain.model_copy(update={"samples": 4})) == "32.9 % [29.1, 36.9] n=112×4"
    assert words.delta_text(0.02) == "+2.0"
    assert words.delta_text(-0.0304) == "−3.0"
    assert words.delta_text(-0.0001) == "0.0"
    assert words.delta_text(ev.Delta(value=0.02, low=-0.01, high=0.05)) == "+2.0 [−1.0, +5.0]"
    assert words.delta_text(None) == "–"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.04, "0s"),
        (0.44, "0.4s"),
        (9.96, "10s"),
        (45, "45s"),
        (59.6, "1m00s"),
        (723, "12m03s"),
        (3599.7, "1h00m"),
        (7500, "2h05m"),
        (442_800, "123h"),
        (1e300, "∞"),
        (-5, "−5.0s"),
        (None, "–"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (999, "999"),
        (9999, "9999"),
        (10_000, "10k"),
        (173_400, "173k"),
        (999_600, "1.0M"),
        (1_234_567, "1.2M"),
        (10**40, "≥1T"),
        (-5, "−5"),
    ],
)
def test_counts(value: int, text: str) -> None:
    assert words.tokens(value) == text


def test_components_and_diffs() -> None:
    assert words.letters(("harness", "data")) == "D+H"
    assert words.letters(()) == "–"
    cells = [ev.DiffSize(added=412), ev.DiffSize(removed=3), ev.DiffSize(added=30, removed=8), ev.DiffSize(), None]
    assert [words.diff_cell(cell) for cell in cells] == ["+412", "−3", "±38", "·", "·"]


def test_a_validation_says_what_it_means() -> None:
    said = validated("j1", "c02", "e2", 0.55)
    before = folded(validated("j0", "c00", "e0", 0.329), validated("j9", "c01", "e1", 0.5))
    events = events_of(candidate("c02", "c01", "m01", "data"), said, first=10)
    state = before
    for event in events:
        state = fold(state, event)
    expected = "validation of c02: 55.0 % [50.0, 60.0] n=112, +22.1 to P0, +5.0 to c01 in 1m02s"
    assert describe(events[-1], state) == expected
    assert tone(events[-1]) == "good"


def test_every_kind_has_one_line() -> None:
    seen = set()
    state = RunState()
    for event in events_of(
        *(said for said, _, _ in whole_run()),
        ev.HumanAction(action="stop"),
        ev.SampleStarted(job="j902", model=HOSTILE, prompts=3, n=2),
        Unknown(kind=HOSTILE, fields={}, why=HOSTILE),
    ):
        state = fold(state, event)
        line = describe(event, state)
        seen.add(type(event.payload))
        assert line
        assert "\n" not in line
        assert len(line) <= 400
        assert is_clean(line)
    assert seen == {*PAYLOADS, Unknown}


hostile = st.text(st.sampled_from("\x1b]52;c[31m\x07\x9b\u202e\u200b\n\r|<b>`*a \ud800"), max_size=30)


def poisoned(payload: Payload, text: str) -> Payload:
    """The payload with ``text`` in every free string of it."""
    fixed = {"kind", "reason", "phase", "status", "by", "verb", "holder", "action", "component", "format"}
    free = {key: text for key, value in payload if isinstance(value, str) and key not in fixed}
    return payload.model_copy(update=free)


@settings(max_examples=100, deadline=None)
@given(hostile, st.sampled_from([said for said, _, _ in whole_run(2)]))
def test_no_hostile_word_reaches_a_terminal_through_any_event(text: str, said: Payload) -> None:
    event = events_of(poisoned(said, text + HOSTILE))[0]
    stream = io.StringIO()
    PlainPrinter(stream, color=False)(event, fold(RunState(), event))
    assert is_clean(stream.getvalue())
    assert stream.getvalue().count("\n") <= 1
    machine = io.StringIO()
    PlainPrinter(machine, json_lines=True)(event, RunState())
    assert is_clean(machine.getvalue())
    assert json.loads(machine.getvalue())["kind"] == said.kind


@settings(max_examples=100, deadline=None)
@given(st.lists(payloads, max_size=10))
def test_any_event_can_be_described_in_any_state(said: list[Payload]) -> None:
    state = folded(*said)
    for event in events_of(*said):
        assert is_clean(describe(event, state))
        assert is_clean(describe(event, RunState()))


# -- plain output ----------------------------------------------------------------------------------------------------


def printed(events: list[Event], **how: bool) -> list[str]:
    """The lines that a printer makes of the events."""
    stream, state = io.StringIO(), RunState()
    printer = PlainPrinter(stream, **how)
    for event in events:
        state = fold(state, event)
        printer(event, state)
    return stream.getvalue().splitlines()


def ticks(total: int, seconds: float) -> list[Event]:
    """A training whose steps are ``seconds`` apart."""
    begin = events_of(started(), ev.TrainStarted(job="j1", parents=(), data="d", trainer="t"))
    steps = [
        Event(
            v=1,
            seq=n + 10,
            t=2e9 + n * seconds,
            el=n * seconds,
            prev="",
            payload=ev.TrainProgress(job="j1", step=n, steps=total),
        )
        for n in range(1, total + 1)
    ]
    return begin + steps


def progress_lines(events: list[Event]) -> int:
    return sum("training: step" in line for line in printed(events))


def test_nothing_is_written_over_a_person_at_the_terminal() -> None:
    shell = ev.AgentStarted(agent="shell", argv=("bash",), version="", session="", resumed=False)
    events = events_of(started(), shell, ev.Warned(what="late", where="x"))
    whole = events_of(started(), shell, ev.Warned(what="late", where="x"), ev.AgentEnded(reason="finished"))
    assert not any("late" in line for line in printed(events, attended=True))
    assert printed(whole, attended=True) == printed(whole)


def test_progress_is_told_in_tenths_not_in_ticks() -> None:
    assert progress_lines(ticks(1000, 0.5)) == 9
    assert progress_lines(ticks(1000, 0.001)) == 0, "one second of training needs no line"
    assert progress_lines(ticks(1000, 36.0)) in range(450, 501), "a slow one is told about every minute"
    assert progress_lines(ticks(0, 1.0)) == 0


def test_a_flood_of_notices_is_told_by_its_first_lines() -> None:
    lines = printed(events_of(*([ev.Integrity(what="line too long")] * 5000)))
    assert len(lines) == 22


def test_machine_output_is_every_event_on_a_line() -> None:
    steps = [said for said, _, _ in whole_run(2)]
    lines = [json.loads(line) for line in printed(events_of(*steps), json_lines=True)]
    assert [line["kind"] for line in lines] == [said.kind for said in steps]
    assert [line["seq"] for line in lines] == list(range(1, len(steps) + 1))


def test_colour_only_where_it_is_wanted() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert wants_color(Terminal(), {})
    assert not wants_color(Terminal(), {"NO_COLOR": "1"})
    assert not wants_color(Terminal(), {"TERM": "dumb"})
    assert not wants_color(io.StringIO(), {})
    finished = events_of(ev.RunFinished(status="ok"))
    assert printed(finished, color=True) == ["0:00:01  \x1b[1mrun finished: ok\x1b[0m"]
    assert printed(finished, color=False) == ["0:00:01  run finished: ok"]


def test_a_stream_that_cannot_show_a_character_or_is_gone_never_harms_the_run() -> None:
    raw = io.BytesIO()
    narrow = io.TextIOWrapper(raw, encoding="ascii")
    printer = PlainPrinter(narrow)
    printer.line("Δ −2 · ok")
    assert raw.getvalue() == b"? ?2 ? ok\n"
    narrow.close()
    printer.line("more")
    assert printer.broken
    printer.finish(a_run())


def test_the_score_of_a_tie_is_shown_the_same_everywhere() -> None:
    assert words.score_text(score(0.5)) in describe(events_of(validated("j", "c00", "e", 0.5))[0], RunState())
