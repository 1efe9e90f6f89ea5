"""The scripted agent's own judgement: arithmetic, significance, designs. Its files run on their own path."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

SOURCE = Path(__file__).parents[2] / "runner" / "research" / "agents" / "scripted_agent"


@pytest.fixture(scope="module", autouse=True)
def agent_path():
    """The agent imports its siblings by name, as it does in its sandbox."""
    sys.path.insert(0, str(SOURCE))
    yield
    sys.path.remove(str(SOURCE))
    for name in ("arithmetic", "stats", "design", "memory", "lab"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("expression", "value"),
    [("25*20", 500), ("460//15", 30), ("(3+4)*5", 35), ("100-7-3", 90), ("12/4", 3), ("2+3*4", 14)],
)
def test_evaluates_as_python_does(expression, value):
    import arithmetic

    assert arithmetic.evaluate(expression) == value == eval(expression)


@pytest.mark.parametrize("expression", ["", "7/2", "1//0", "2**9", "(1+2", "1+", "a+1", "1)"])
def test_what_is_no_whole_value_is_none(expression):
    import arithmetic

    assert arithmetic.evaluate(expression) is None


@given(st.text(alphabet="0123456789+-*/() =<>\\boxed{}\nab.", max_size=200))
def test_reading_a_reply_never_fails(text):
    import arithmetic

    assert arithmetic.consistent(text) in (True, False)
    wrong, calls = arithmetic.wrong_calls(arithmetic.to_calculator(text))
    assert 0 <= wrong <= calls


@given(st.integers(1, 999), st.integers(1, 999), st.sampled_from("+-*"))
def test_rewriting_keeps_the_equation(left, right, sign):
    import arithmetic

    value = eval(f"{left}{sign}{right}")
    text = f"Total: {left}{sign}{right} = {value}\n\\boxed{{{value}}}"
    rewritten = arithmetic.to_calculator(text)
    assert f"<<{left}{sign}{right}>>={value}" in rewritten
    assert arithmetic.wrong_calls(rewritten) == (0, 1)
    assert arithmetic.wrong_calls(rewritten.replace(f"={value}\n", f"={value + 1}\n")) == (1, 1)


def test_consistency_finds_each_flaw_of_the_pool():
    import arithmetic

    good = "Bought: 5*12 = 60\nRemaining: 60-7 = 53\n\\boxed{53}"
    assert arithmetic.consistent(good)
    assert not arithmetic.consistent(good.replace("60\n", "61\n"))
    assert not arithmetic.consistent(good.replace("\\boxed{53}", "\\boxed{54}"))
    assert not arithmetic.consistent(good.replace("\\boxed{53}", "The answer is 53."))


def test_sign_test_is_the_exact_binomial():
    import stats

    for gained, lost in itertools.product(range(6), repeat=2):
        flips = list(itertools.product((0, 1), repeat=gained + lost))
        extreme = sum(abs(2 * sum(f) - len(f)) >= abs(gained - lost) for f in flips)
        assert stats.sign_test(gained, lost) == pytest.approx(extreme / len(flips))


def test_moves_change_the_component_they_name():
    import design

    start = design.Design()
    for move in design.MENU:
        assert design.changed(start, move.apply(start)) == (move.component,)


def test_only_data_and_trainer_decide_the_model():
    import design

    start = design.Design()
    by_name = {move.name: move for move in design.MENU}
    assert design.trained(by_name["calculator-tool"].apply(start)) == design.trained(start)
    assert design.trained(by_name["filter"].apply(start)) != design.trained(start)


def test_an_agent_that_is_started_again_asks_nothing_twice(tmp_path):
    import memory
    from lab import Refused

    asked = []

    def answer(value):
        def ask():
            asked.append(value)
            if value == "bad":
                raise Refused("no")
            return {"model": value}

        return ask

    path = tmp_path / "memory.jsonl"
    for life in range(3):
        one = memory.Memory(path)
        assert one.once(["train", {"b": 1, "a": 2}], answer("m01"))[0] == {"model": "m01"}
        with pytest.raises(Refused, match="no"):
            one.once(["train", "bad"], answer("bad"))
        path.write_bytes(path.read_bytes() + b'{"asked": "tor')  # the next life begins with a torn line
        assert one.once([life], answer(str(life)))[0] == {"model": str(life)}
    assert asked == ["m01", "bad", "0", "1", "2"]
    assert len(memory.Memory(path)) == 5


def test_practice_goes_on_from_the_model_with_the_next_rows():
    import design

    first = design.sized(design.Design(rows="bank"), 320, 16)
    second = design.practising("m01", first).apply(first)
    third = design.practising("m02", second).apply(second)
    assert (second.after, second.skip, third.after, third.skip) == ("m01", 320, "m02", 640)
    assert design.changed(first, second) == ("data", "trainer")
    assert len({design.trained(one) for one in (first, second, third)}) == 3


@pytest.mark.parametrize(("skip", "numbers"), [(0, [0, 1]), (3, [3, 4]), (4, [4, 0]), (5, [0, 1]), (12, [2, 3])])
def test_skipped_rows_come_round_again(tmp_path, skip, numbers):
    import design
    import lab

    for name in lab.COMPONENTS:
        (tmp_path / name).mkdir()
    rows = [{"prompt": "q\nBox it.", "completion": str(number)} for number in range(5)]
    (tmp_path / "data" / "pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "trainer" / "recipe.toml").write_text('method = "lora"\nstart_from = "base"\n')
    (tmp_path / "harness" / "main.py").write_text("")
    (tmp_path / "home" / "original.part" / "data").mkdir(parents=True)  # an agent was killed while it began
    lab.Lab(root=tmp_path).write(design.Design(examples=2, skip=skip, after="m01"))
    written = (tmp_path / "data" / "train.jsonl").read_text().splitlines()
    assert [int(json.loads(line)["completion"]) for line in written] == numbers
    assert 'start_from = "parent"' in (tmp_path / "trainer" / "recipe.toml").read_text()


def test_a_job_longer_than_one_command_waits_is_waited_for(tmp_path, monkeypatch):
    import lab

    program = tmp_path / "vibe"
    program.write_text(
        f"""#!{sys.executable}
import json, pathlib, sys
asked = pathlib.Path({str(tmp_path / "asked")!r})
with asked.open("a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
ends = asked.read_text().count("wait") == 2
print(json.dumps({{"job": "j007", "model": "m01"}} if ends else {{"job": "j007", "text": "j007 goes on"}}))
sys.exit(0 if ends else 3)
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert lab.vibe("train", "-m", "why")["model"] == "m01"
    assert (tmp_path / "asked").read_text().splitlines() == ["train --json -m why", *["wait --json j007"] * 2]
