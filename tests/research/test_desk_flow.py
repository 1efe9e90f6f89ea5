"""A whole research phase through the real client in the real sandbox."""

from __future__ import annotations

from typing import Any

FLOW = """
keep(status=ask("status"))
open("/lab/harness/solves", "w").write("15")
keep(first=ask("validate", "-m", "solve more"))
keep(train=ask("train", "-m", "a model"))
keep(second=ask("validate"))
keep(again=ask("validate"))
keep(history=ask("history"), chosen=ask("select", "c02"))
keep(feedback=sorted(os.listdir("/feedback/c01")), models=sorted(os.listdir("/models/m01")))
print(json.dumps({"say": "done \\x1b[31m"}), flush=True)
keep(end=ask("finish"))
time.sleep(60)
"""


async def test_an_agent_edits_validates_trains_selects_and_finishes(phases: Any) -> None:
    phase = await phases()
    end = await phase.agent(FLOW)
    assert end.reason == "finished"
    facts = phase.facts
    assert facts["status"]["ok"] and 0 < facts["status"]["left_s"] <= 120
    assert facts["first"]["candidate"] == "c01" and facts["first"]["score"]["score"] == 0.75
    assert facts["first"]["changes"]["c00"]["value"] == 0.5 and not facts["first"]["changes"]["c00"]["noise"]
    assert facts["train"]["model"] == "m01"
    assert facts["second"]["candidate"] == "c02" and facts["second"]["parent"] == "c01"
    assert "within noise of c01" in facts["second"]["text"]
    assert facts["again"]["repeat"] and facts["again"]["candidate"] == "c02"
    assert facts["chosen"]["ok"] and phase.desk.selected == "c02"
    assert facts["feedback"] == ["problems.jsonl", "score.json", "trajectories"]
    assert facts["models"] == ["manifest.json", "train.jsonl", "train.log", "weights"]
    assert [turn.summary for turn in phase.kinds("agent_turn")] == ["done"]


async def test_the_journal_says_what_happened_and_folds_to_it(phases: Any) -> None:
    phase = await phases()
    await phase.agent(FLOW)
    state = phase.lab.journal.state
    assert list(state.candidates) == ["c00", "c01", "c02"]
    assert state.candidates["c01"].components == ("harness",)
    assert state.candidates["c01"].diff["harness"].added == 1
    assert state.candidates["c02"].components == ()
    assert [job.status for job in state.jobs.values()] == ["ok"] * 5
    assert state.candidates["c01"].hypothesis == "solve more"
    repeats = [event.repeat for event in phase.kinds("validation_finished")]
    assert repeats == [False, False, False, True]
    folder = phase.lab.rundir.candidate("c01")
    assert "+15" in (folder / "diffs" / "harness.patch").read_text()


async def test_seconds_carry_the_verb_the_agent_was_blocked_in(phases: Any) -> None:
    phase = await phases()
    await phase.agent(FLOW)
    split = phase.lab.budget.split()
    assert split.train > 0 and split.grade > 0 and split.think > 0 and split.sample == 0
    assert abs(split.train + split.grade + split.think + split.wait - phase.lab.budget.el()) < 0.01


async def test_sampling_writes_replies_to_the_feedback(phases: Any) -> None:
    phase = await phases()
    await phase.agent("""
with open("/lab/notes/p.jsonl", "w") as f:
    for i in range(3):
        f.write(json.dumps({"prompt": "x" * 1000 + str(i), "more": 1}) + "\\n")
answer = ask("sample", "/lab/notes/p.jsonl", "-n", "2")
rows = [json.loads(line) for line in open(answer["path"])]
open("/lab/notes/bad.jsonl", "w").write("not json\\n")
keep(answer=answer, replies=[row["replies"] for row in rows], bad=ask("sample", "/lab/notes/bad.jsonl")["code"])
""")
    assert phase.facts["answer"]["ok"] and phase.facts["replies"] == [["ok", "ok"]] * 3
    assert phase.facts["bad"] == 2
    assert phase.kinds("sample_finished")[0].prompts == 3


async def test_help_teaches_and_wrong_use_is_told_apart(phases: Any) -> None:
    phase = await phases()
    await phase.agent("""
keep(help=vibe("--help"), train=vibe("train", "--help")[0], typo=vibe("select", "../c01"), none=vibe("wait", "j077"))
""")
    code, text, _ = phase.facts["help"]
    assert code == 0 and "vibe validate" in text and phase.facts["train"] == 0
    assert phase.facts["typo"][0] == 2
    assert phase.facts["none"][0] == 1 and "there is no job j077" in phase.facts["none"][1]
    assert not phase.kinds("integrity")
