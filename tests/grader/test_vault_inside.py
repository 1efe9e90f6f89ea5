"""What the vault says, to whom, and what it never says; in process, without its walls."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from grader.vault import Vault, same_problems, serve, shares_a_problem
from tasks.spec import Problem


def _file(path: Path, rows: list[tuple[str, int]]) -> str:
    lines = [
        json.dumps({"problem_idx": i, "problem": question, "answer": gold}) for i, (question, gold) in enumerate(rows)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def _opened(folder: Path, hidden: list[tuple[str, int]] | None = None) -> tuple[Vault, dict[str, Any]]:
    files = {
        "validation": _file(folder / "v.jsonl", [("What is 2 + 2?", 4), ("What is 30 + 3?", 33)]),
        "hidden": _file(folder / "h.jsonl", hidden or [("What is 7 + 7?", 14)]),
    }
    vault = Vault()
    opened = vault.answer({"id": 1, "op": "open", "task_name": "aime", "problem_set": "aime", "files": files})
    return vault, opened


def _ask(vault: Vault, op: str, **fields: Any) -> dict[str, Any]:
    return vault.answer({"id": 2, "op": op, **fields})


def test_it_opens_with_counts_and_digests_and_no_problem(tmp_path: Path) -> None:
    _, opened = _opened(tmp_path)
    assert opened["ok"]
    assert opened["result"]["validation"]["count"] == 2 and opened["result"]["hidden"]["count"] == 1
    assert len(opened["result"]["hidden"]["sha256"]) == 64
    assert opened["result"]["overlap"] is False
    assert "7 + 7" not in json.dumps(opened)


@pytest.mark.parametrize("same", ["What is 2 + 2?", "  WHAT is\n2 +  2 ", "What is $2+2$?", "What is ２ + ２?"])
def test_an_overlap_is_seen_through_spelling(tmp_path: Path, same: str) -> None:
    assert _opened(tmp_path, [("What is 7 + 7?", 14), (same, 4)])[1]["result"]["overlap"] is True


def test_texts_of_signs_alone_are_not_all_one_problem() -> None:
    plus, minus = (Problem(id="x", question=question, gold="1") for question in ("+", "−"))
    assert not shares_a_problem([plus], [minus])
    assert shares_a_problem([plus], [plus])


def test_two_splits_are_the_same_only_when_every_problem_and_answer_is(tmp_path: Path) -> None:
    both = [("What is 30  + 3?", 33), ("what is 2 + 2?", 4)]
    for hidden, same in (
        (both, True),
        (both[:1], False),
        ([*both, ("And 1?", 1)], False),
        ([both[0], ("2 + 2?", 4)], False),
    ):
        _, opened = _opened(tmp_path, hidden)
        assert (opened["result"]["same"], opened["result"]["overlap"]) == (same, True)
    one, other = (Problem(id="x", question="What?", gold=gold) for gold in "12")
    assert not same_problems([one], [other]) and same_problems([one, other], [other, one])


def test_hidden_problems_are_served_only_when_unsealed_and_to_one_candidate(tmp_path: Path) -> None:
    vault, _ = _opened(tmp_path)
    for request in (
        ("ids", {"split": "hidden"}),
        ("public", {"split": "hidden", "problem": "h001"}),
        ("judge", {"split": "hidden", "problem": "h001", "submission": "\\boxed{14}"}),
    ):
        answer = _ask(vault, request[0], **request[1])
        assert not answer["ok"] and "sealed" in answer["error"]
    assert _ask(vault, "unseal", candidate="c07")["ok"]
    assert _ask(vault, "unseal", candidate="c07")["ok"]
    refused = _ask(vault, "unseal", candidate="c08")
    assert not refused["ok"] and "another candidate" in refused["error"]
    assert _ask(vault, "ids", split="hidden")["result"] == ["h001"]
    judged = _ask(vault, "judge", split="hidden", problem="h001", submission="\\boxed{14}")
    assert judged["result"] == {"reward": 1.0, "reason": "match"}


def test_a_hidden_file_that_changed_after_the_start_is_refused(tmp_path: Path) -> None:
    vault, _ = _opened(tmp_path)
    _file(tmp_path / "h.jsonl", [("What is 8 + 8?", 16)])
    answer = _ask(vault, "unseal", candidate="c07")
    assert not answer["ok"] and "changed" in answer["error"]
    assert not _ask(vault, "ids", split="hidden")["ok"]


def test_no_answer_holds_a_gold(tmp_path: Path) -> None:
    vault, opened = _opened(tmp_path, [("What is 900 + 71?", 971)])
    _ask(vault, "unseal", candidate="c00")
    said = [opened]
    for split, problem in (("validation", "v002"), ("hidden", "h001")):
        said.append(_ask(vault, "ids", split=split))
        said.append(_ask(vault, "public", split=split, problem=problem))
        said += [_ask(vault, "judge", split=split, problem=problem, submission=text) for text in ("", "\\boxed{1}")]
    assert all(answer["ok"] for answer in said)
    text = json.dumps([answer["result"] for answer in said])
    assert "gold" not in text and "971" not in text.replace(said[2]["result"]["instruction"], "")


@pytest.mark.parametrize(
    "text", ["\ud800", "\0" * 1000, "\\boxed{" * 5000, "{" * 100_000, "9" * 100_000, "", "\u202e\\boxed{4}"]
)
def test_any_text_has_a_verdict(tmp_path: Path, text: str) -> None:
    vault, _ = _opened(tmp_path)
    answer = _ask(vault, "judge", split="validation", problem="v002", submission=text)
    assert answer["ok"] and answer["result"]["reward"] == 0.0


class _Scorer:
    """A task whose scorer does what the submission says."""

    def load(self, name: str, split: str, files: dict[str, Path]) -> list[Problem]:
        return [Problem(id="p1", question=split, gold="secret")]

    def plan(self, problem: Problem, submission: str) -> object:
        if submission == "crash":
            raise ValueError(problem.gold)
        if submission == "recurse":
            return self.plan(problem, submission)
        while submission == "spin":
            pass
        return {"files": {}}


@pytest.mark.parametrize(
    ("submission", "reason"), [("crash", "judge_error"), ("recurse", "judge_error"), ("spin", "timeout")]
)
def test_a_scorer_that_fails_gives_nothing_and_tells_nothing(tmp_path: Path, submission: str, reason: str) -> None:
    files = {"validation": _file(tmp_path / "v", []), "hidden": _file(tmp_path / "h", [])}
    vault = Vault(lambda name: _Scorer(), judge_s=0.2)
    assert vault.answer({"id": 1, "op": "open", "task_name": "t", "problem_set": "s", "files": files})["ok"]
    assert _ask(vault, "judge", split="validation", problem="p1", submission=submission)["result"] == {
        "reward": 0.0,
        "reason": reason,
    }
    plan = _ask(vault, "judge", split="validation", problem="p1", submission="plan")
    assert not plan["ok"] and "secret" not in plan["error"]


def test_what_it_cannot_do_is_one_line(tmp_path: Path) -> None:
    vault, _ = _opened(tmp_path)
    for op, fields in (
        ("public", {"split": "validation", "problem": "v999"}),
        ("public", {"split": "validation"}),
        ("dump", {}),
        ("ids", {"split": "other"}),
    ):
        answer = _ask(vault, op, **fields)
        assert not answer["ok"] and "\n" not in answer["error"]
    assert not Vault().answer({"id": 1, "op": "ids", "split": "validation"})["ok"]


def test_it_serves_lines_in_order_until_its_input_ends(tmp_path: Path) -> None:
    requests = b"".join(json.dumps({"id": n, "op": "ids", "split": "hidden"}).encode() + b"\n" for n in range(3))
    sink = io.BytesIO()
    serve(io.BytesIO(requests), sink)
    assert [json.loads(line)["id"] for line in sink.getvalue().splitlines()] == [0, 1, 2]
