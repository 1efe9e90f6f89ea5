"""The queue decides by who is open and who has asked, never by time; batches are cut by the requests alone."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader.engines.inside.rounds import Job, Refusal, Rounds, Ticket, cut


@dataclass(frozen=True)
class Ready:
    length: int


class Asker(threading.Thread):
    """A session's request in a thread of its own, as an HTTP thread makes it."""

    def __init__(self, rounds: Rounds, session: str, length: int = 1) -> None:
        super().__init__(daemon=True)
        self.rounds, self.session, self.length, self.got = rounds, session, length, None
        self.start()

    def run(self) -> None:
        try:
            self.got: Any = self.rounds.ask(self.session, {"length": self.length})
        except Refusal as refusal:
            self.got = refusal.status


def next_round(rounds: Rounds) -> list[Ticket]:
    """Make requests ready as they come until a round falls."""
    while True:
        work = rounds.next()
        if isinstance(work, list):
            return work
        assert isinstance(work, Ticket)
        work.ready = Ready(work.body["length"])


def test_a_round_waits_for_every_open_session_and_is_sorted() -> None:
    rounds = Rounds()
    rounds.control(["a", "b", "c"], [])
    askers = [Asker(rounds, "c", 5), Asker(rounds, "a", 5), Asker(rounds, "b", 2)]
    work = next_round(rounds)
    assert [t.session for t in work] == ["b", "a", "c"]
    for ticket in work:
        rounds.answer(ticket, ticket.session.upper())
    for asker in askers:
        asker.join(10)
    assert [a.got for a in askers] == ["C", "A", "B"]


def test_closing_the_last_silent_session_lets_the_round_fall() -> None:
    rounds = Rounds()
    rounds.control(["a", "b"], [])
    Asker(rounds, "a")
    closer = threading.Thread(target=rounds.control, args=([], ["b"]))
    first = rounds.next()
    assert isinstance(first, Ticket)
    first.ready = Ready(1)
    closer.start()
    assert [t.session for t in next_round(rounds)] == ["a"]


def test_closing_and_opening_in_one_message_lets_no_round_between() -> None:
    rounds = Rounds()
    rounds.control(["a", "b"], [])
    Asker(rounds, "a")
    first = rounds.next()
    assert isinstance(first, Ticket)
    first.ready = Ready(1)
    rounds.control(["c"], ["b"])
    Asker(rounds, "c")
    assert {t.session for t in next_round(rounds)} == {"a", "c"}


def test_a_second_request_queues_behind_the_first() -> None:
    rounds = Rounds()
    rounds.control(["a"], [])
    Asker(rounds, "a", 1)
    [one] = next_round(rounds)
    Asker(rounds, "a", 2)
    second = rounds.next()
    assert isinstance(second, Ticket)  # made ready while the first is computed
    second.ready = Ready(2)
    rounds.answer(one, "first")
    [two] = next_round(rounds)
    assert two is second


def test_a_closed_session_is_refused_and_forgotten() -> None:
    rounds = Rounds()
    rounds.control(["a", "b"], [])
    asker = Asker(rounds, "a")
    assert isinstance(rounds.next(), Ticket)
    rounds.control([], ["a"])
    asker.join(10)
    assert asker.got == 409
    with pytest.raises(Refusal):
        rounds.ask("a", {})


def test_jobs_come_between_rounds_and_may_refuse() -> None:
    rounds = Rounds()
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(rounds.do(lambda: 41)))
    thread.start()
    work = rounds.next()
    assert isinstance(work, Job)
    work.ticket.settle(work.run() + 1)
    thread.join(10)
    assert got == [42]


def test_without_rounds_whatever_is_pending_runs() -> None:
    rounds = Rounds(rounds=False)
    rounds.control(["a", "b"], [])
    Asker(rounds, "a")
    assert [t.session for t in next_round(rounds)] == ["a"]


@given(st.lists(st.integers(1, 500), min_size=1, max_size=60).map(sorted), st.integers(1, 20), st.integers(1, 3000))
def test_batches_cover_a_round_in_order_within_their_bounds(lengths: list[int], cap: int, tokens: int) -> None:
    parts = cut(lengths, cap, tokens)
    assert [x for part in parts for x in lengths[part]] == lengths
    for part in parts:
        rows = lengths[part]
        assert 0 < len(rows) <= cap
        assert len(rows) == 1 or len(rows) * max(rows) <= tokens
