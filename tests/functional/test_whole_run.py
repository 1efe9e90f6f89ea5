"""One whole run with the scripted agent on the tiny model, in real sandboxes; and the same run killed at six points."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from kills import ALL_PHASES, RUNNER, SIX, suffer
from run_kit import command, descendants, live, rows

from grader.ledger import Ledger
from runner.record import events as ev
from runner.record.files import Report
from runner.record.journal import Journal, load, read, verify
from runner.record.rundir import RunDir, list_runs
from runner.record.state import RunState, valid
from runner.views import status
from tasks.aime import mini

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]
VALIDATION, HIDDEN = 36, 72


PLANNED = ("--agent", f"command:python {Path(__file__).with_name('plan_agent.py')}")
"""The agent that makes the same candidates whatever happens."""


def words(runs: Path, budget: str) -> tuple[str, ...]:
    """The run of these tests: the real thing on a smaller split of its own."""
    sets = []
    for split, count in (("validation", VALIDATION), ("hidden", HIDDEN)):
        file = runs / f"{split}.toml"
        file.write_text(f'seed = "test-{split}"\nproblems = {count}\n')
        sets += ["--set", f"{split}_file={file}"]
    return ("--task", "aime", "--seed", "3", "--budget", budget, "--profile", "laptop", *sets)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(what it printed, its folder) of an undisturbed run."""
    runs = tmp_path_factory.mktemp("whole")
    done = command(*words(runs, "60s"), runs=runs, timeout=400)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    return done.stdout, list_runs(runs)[0]


def answers(run: RunDir, evaluation: Path) -> dict[str, str]:
    """What was handed in, by problem and sample."""
    found = {}
    for path in (evaluation / "trajectories").glob("*.jsonl"):
        for line in path.read_text().splitlines():
            step = json.loads(line)
            if step["kind"] == "end":
                found[f"{step['problem']}/{step['sample']}"] = step["reply"]
    return found


def by_content(run: RunDir) -> dict[tuple[str, str], dict[str, str]]:
    """The answers of each validated candidate under (sha256 of its weights, its harness)."""
    state = load(run.journal_file)
    return {
        (state.models[item.model].made.sha256, item.harness): answers(run, run.evaluation(item.eval))
        for item in valid(state)
    }


def hidden_answers(run: RunDir) -> dict[tuple[str, str], dict[str, str]]:
    """The answers to the hidden problems, of P0 and of the candidate that was selected, under the same keys."""
    state = load(run.journal_file)
    found = {}
    for folder in run.hidden.iterdir():
        candidate = json.loads((folder / "score.json").read_text())["candidate"]
        item = state.candidates[candidate]
        found[(state.models[item.model].made.sha256, item.harness)] = answers(run, folder)
    return found


def test_ends_with_the_card(whole):
    printed, _ = whole
    card = printed[-2500:]
    for word in ("validation", "hidden", "Δ_test", "[", f"n={VALIDATION}", f"n={HIDDEN}", "not AIME"):
        assert word in card, card


def test_the_record_is_whole_and_in_order(whole):
    _, run = whole
    assert verify(run.journal_file).ok
    kinds = [event.payload.kind for event in read(run.journal_file)]
    firsts = [kinds.index(kind) for kind in ("run_started", "agent_started", "agent_ended", "hidden_claimed")]
    assert firsts == sorted(firsts), "the hidden test was claimed before the agent was dead"
    assert kinds.index("hidden_claimed") < kinds.index("hidden_finished") < kinds.index("run_finished")
    assert "?" not in kinds


def test_status_report_and_journal_agree(whole):
    _, run = whole
    report = json.loads((run.report / "report.json").read_text())
    assert Report.model_validate(report)
    shown = status(run)
    for key in ("validation", "hidden", "candidates", "selected_by"):
        assert json.loads(json.dumps(shown[key])) == report[key]
    assert report["hidden"]["selected"]["n"] == HIDDEN


def test_one_candidate_was_tested_and_each_problem_once(whole):
    _, run = whole
    one_hidden_test(run, load(run.journal_file))


def one_hidden_test(run: RunDir, state: RunState) -> None:
    assert state.selected is not None and state.selected.final
    assert Ledger(run.sealed).claimed() == state.selected.candidate
    tested = sorted(path.parent for path in run.hidden.glob("*/problems.jsonl"))
    assert tested
    for folder in tested:
        pairs = [(row["problem"], row["sample"]) for row in rows(folder)]
        assert len(pairs) == len(set(pairs)) == HIDDEN


def test_no_answer_and_no_hidden_problem_lies_outside_the_sealed_folder(whole):
    _, run = whole
    questions = [problem.question for problem in mini.generate("test-hidden", HIDDEN)]
    told = "".join(path.read_text() for path in run.hidden.glob("*/trajectories/*.jsonl"))
    assert all(json.dumps(question)[1:-1] in told for question in questions), "not the problems that were tested"
    for path in run.path.rglob("*"):
        if path.is_file() and run.sealed not in path.parents and path.stat().st_size < 8 << 20:
            text = path.read_bytes().decode(errors="replace")
            assert not any(question in text for question in questions), path
    for path in run.evals.glob("*/problems.jsonl"):
        assert "gold" not in path.read_text()


def test_the_budget_adds_up(whole):
    _, run = whole
    budget = load(run.journal_file).budget
    parts = budget.split
    assert parts.grade + parts.train + parts.sample + parts.wait + parts.think == pytest.approx(budget.wall_s, abs=0.01)
    assert budget.wall_s <= 60 + 15, "the deadline did not hold"


def test_a_finished_run_is_only_reported_again(whole):
    _, run = whole
    before = hashlib.sha256(run.journal_file.read_bytes()).hexdigest()
    done = command("resume", str(run.path), runs=run.path.parent.parent)
    assert done.returncode == 0 and "Δ_test" in done.stdout
    assert hashlib.sha256(run.journal_file.read_bytes()).hexdigest() == before


def cut_before_the_end_of_the_agent(run: RunDir) -> float:
    """Leave of ``run`` what lay there when its agent ended; the seconds that its budget had used."""
    lines = run.journal_file.read_bytes().splitlines(keepends=True)
    kept = itertools.takewhile(lambda line: b'"kind":"agent_ended"' not in line, lines)
    run.journal_file.write_bytes(b"".join(kept))
    for folder in (run.sealed, run.report):
        shutil.rmtree(folder)
        folder.mkdir(mode=0o700)
    return load(run.journal_file).el


def test_a_runner_that_dies_at_the_last_end_of_its_agent_closes_the_research_phase_when_it_goes_on(whole, tmp_path):
    run = RunDir(tmp_path / "aime" / whole[1].name)
    shutil.copytree(whole[1].path, run.path)
    used = cut_before_the_end_of_the_agent(run)
    journal = Journal.reopen(run.journal_file, lambda: used)
    left = [item.id for item in (journal.state.current, *journal.state.queue) if item is not None] + ["j901", "j902"]
    for job in ("j901", "j902"):
        journal.append(ev.JobQueued(job=job, verb="train"))
    journal.append(ev.AgentEnded(reason="exited", exit_code=3, final=True), sync=True)
    journal.close()
    done = command("resume", str(run.path), runs=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    state = ended_all_the_same(run)
    assert {state.jobs[job].status for job in left} == {"lost"}
    assert state.queue == () and state.current is None
    assert state.budget.wall_s == pytest.approx(used, abs=0.01)
    kinds = [event.payload.kind for event in read(run.journal_file)]
    later = kinds[kinds.index("agent_ended") :]
    assert "agent_started" not in later, "an agent that had ended for good was started again"
    assert later.index("budget_tick") < later.index("phase_changed"), "the last word of the budget"


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """The folder of an undisturbed run of the plan."""
    runs = tmp_path_factory.mktemp("planned")
    done = command(*words(runs, "15m"), *PLANNED, runs=runs, timeout=400)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    return list_runs(runs)[0]


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The folder of the same run, killed -9 at six points and taken up again each time."""
    runs = tmp_path_factory.mktemp("killed")
    ordeal = suffer(SIX, (*words(runs, "15m"), *PLANNED), runs)
    assert len(ordeal.struck) == len(SIX)
    return list_runs(runs)[0]


def ended_all_the_same(run: RunDir) -> RunState:
    """The run ended well, with a whole record and one hidden test."""
    state = load(run.journal_file)
    assert verify(run.journal_file).ok
    assert state.finished is not None and state.finished.status == "ok"
    one_hidden_test(run, state)
    kinds = [event.payload.kind for event in read(run.journal_file)]
    assert "agent_started" not in kinds[kinds.index("hidden_claimed") :], "an agent lived after the hidden test began"
    return state


def test_a_killed_run_ends_all_the_same(killed):
    state = ended_all_the_same(killed)
    assert state.head.resumes == sum(kill.victim == RUNNER for kill in SIX)
    ends = [(job.verb, job.status) for job in state.jobs.values()]
    assert ends.count(("train", "lost")) == 1, "of the runner that was killed in a training"
    assert ends.count(("train", "failed")) == 1, "of the trainer that was killed"
    assert all(status == "ok" for verb, status in ends if verb == "validate"), "of the engine and grader that were"


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_run_killed_in_every_phase_ends_all_the_same(tmp_path):
    ordeal = suffer(ALL_PHASES, words(tmp_path, "1200s"), tmp_path)
    state = ended_all_the_same(list_runs(tmp_path)[0])
    assert len(ordeal.struck) >= 25
    assert state.head.resumes == ordeal.resumes >= 18


def test_equal_content_gives_equal_answers_in_both_runs(planned, killed):
    for found in (by_content, hidden_answers):
        one, other = found(planned), found(killed)
        assert one.keys() == other.keys(), "the same weights and harness"
        assert one == other
    assert len(by_content(planned)) == 3 and len(hidden_answers(planned)) == 2, "P0 and what the plan makes"


def test_nothing_is_left_when_a_run_is_stopped(tmp_path):
    with live(*words(tmp_path, "60s"), runs=tmp_path) as run:
        run.wait_for(lambda event: isinstance(event.payload, ev.TrainStarted))
        assert run.find("/in/trainer/train.py")
        below = descendants(run.process.pid)
        os.kill(run.process.pid, signal.SIGINT)
        assert run.process.wait(timeout=60) == 130
        left = [pid for pid, line in below.items() if line and Path(f"/proc/{pid}").exists() and not zombie(pid)]
        assert left == []
        state = load(run.rundir.journal_file)
        assert state.finished is not None and state.finished.status == "stopped"


def zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_second_run_waits_for_the_machine_or_fails(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with live(*words(first, "60s"), runs=first) as one:
        one.wait_for(lambda event: isinstance(event.payload, ev.TaskLoaded))
        refused = command(*words(second, "60s"), "--no-wait", runs=second, timeout=30)
        assert refused.returncode == 6 and "is in use by" in refused.stderr
        with live(*words(second, "60s"), runs=second) as two:
            waiting = two.wait_for(lambda event: isinstance(event.payload, ev.PhaseChanged))
            assert waiting.payload.phase == "waiting" and waiting.el == 0.0
            one.kill()
            began = two.wait_for(lambda event: isinstance(event.payload, ev.TaskLoaded))
            assert began.el == 0.0
