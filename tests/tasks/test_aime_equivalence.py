"""The child process that compares expressions: killable, restarted, usable from any thread."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Iterator

import pytest

from tasks.aime.equivalence import MEMORY_BYTES, Equivalence

ENDLESS = "9^{9^{9^9}}"


def dead(pid: int | None) -> bool:
    assert pid is not None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture
def own() -> Iterator[Equivalence]:
    equivalence = Equivalence(cpu_s=1.0, wall_s=60.0)
    yield equivalence
    equivalence.close()


def test_a_child_that_thinks_too_long_is_dead_and_the_next_question_gets_a_new_one(own: Equivalence) -> None:
    assert own.pid is None  # nothing starts before it is needed
    assert own.compare("2+2", 4) == "equal"
    first = own.pid
    assert own.compare(ENDLESS, 1) == "timeout"
    assert dead(first)
    assert own.compare("2+2", 5) == "different"
    assert own.pid != first


def test_a_child_that_is_silent_is_killed(own: Equivalence) -> None:
    assert own.compare("2+2", 4) == "equal"
    stopped = own.pid
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    own.wall_s = 0.2
    assert own.compare("2+2", 4) == "timeout"
    assert dead(stopped)


def test_an_exception_in_the_middle_leaves_no_answer_for_the_next_question(own: Equivalence) -> None:
    class Alarm(Exception):
        pass

    def ring(*_: object) -> None:
        raise Alarm

    own.cpu_s = 60.0
    assert own.compare("2+2", 4) == "equal"
    first = own.pid
    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(Alarm):
            own.compare(ENDLESS, 1)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert dead(first)
    assert own.compare("2+2", 5) == "different"


def test_memory_is_limited(own: Equivalence) -> None:
    assert own.compare("2+2", 4) == "equal"
    assert own.pid is not None
    assert 0 < max(resource.prlimit(own.pid, resource.RLIMIT_AS)) <= MEMORY_BYTES


def test_a_child_that_someone_killed_is_replaced(own: Equivalence) -> None:
    assert own.compare("3!", 6) == "equal"
    assert own.pid is not None
    os.kill(own.pid, signal.SIGKILL)
    os.waitid(os.P_PID, own.pid, os.WEXITED | os.WNOWAIT)
    assert own.compare("3!", 7) == "different"


def test_it_answers_in_threads(comparer: Equivalence) -> None:
    answers: dict[int, str] = {}

    def ask(number: int) -> None:
        answers[number] = comparer.compare(f"{number}+1", 4)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number for number, answer in answers.items() if answer == "equal"} == {3}
    assert len(answers) == 6


@pytest.mark.parametrize(
    "text", ["", "x", "\\", "}{", "\x00", "\ud800", "\n{}\n", "\\infty", "\\frac{1}{0}", "é" * 900]
)
def test_odd_text_is_no_number(comparer: Equivalence, text: str) -> None:
    assert comparer.compare(text, 1) in ("no_number", "different")
    assert comparer.compare("1+0", 1) == "equal"
