"""--protocol rsibench-data: what it fixes, what it refuses, and whole runs of it with the scripted agent."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from run_kit import command

from grader.ledger import Ledger
from runner import protocols
from runner.config import ConfigError, RunConfig
from runner.record.journal import load, read
from runner.record.rundir import list_runs
from runner.resolve import Flags, resolve
from tasks.aime import mini
from tasks.registry import load_spec

RULES = Flags(task="aime", profile="laptop", protocol="rsibench-data")


def of(**more: object) -> RunConfig:
    return resolve(Flags(**{"task": "aime", "profile": "laptop", "protocol": "rsibench-data", **more}))  # type: ignore[arg-type]


def test_the_protocol_brings_its_scope_budget_whitelist_and_seed() -> None:
    config = of(seed=5)
    assert config.scope == ("data",) and config.editable == ("data", "trainer")
    assert config.budget.wall_s == 16 * 3600 and config.budget.money == protocols.MONEY
    assert config.recipe_fields == load_spec("aime").recipe_fields
    assert config.official_seed == protocols.official_seed(5) != 5
    assert of(seed=6).official_seed != config.official_seed
    assert RunConfig.from_toml(config.to_toml(), "run.toml") == config
    short = of(budget="4m", sets=("budget.money=none", "recipe_fields=[]"))
    assert (short.budget.wall_s, short.budget.money, short.editable) == (240.0, None, ("data",))
    plain = resolve(Flags(task="aime", profile="laptop"))
    assert plain.recipe_fields == () and plain.official_seed is None and plain.editable == plain.scope


def test_the_whitelist_names_keys_of_the_recipe_and_leaves_the_kind_of_training_alone() -> None:
    recipe = Path(__file__).parents[2] / "tasks" / "aime" / "workspace" / "trainer" / "recipe.toml"
    known = set(tomllib.loads(recipe.read_text()))
    fields = set(load_spec("aime").recipe_fields)
    assert fields < known and not fields & {"method", "start_from", "merge_weights", "weights", "seed"}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"scope": "data+harness"}, "edits data alone"),
        ({"protocol": "rsibench"}, "Did you mean 'rsibench-data'"),
        ({"protocol": "vibetraining", "sets": ('recipe_fields=["epochs"]',)}, "belongs to the protocol"),
        ({"sets": ("official_seed=0",)}, "must differ"),
        ({"teacher_model": "wise"}, "the price of 'wise' is not known"),
        ({"sets": ('teacher.style="openai"',)}, "an address without a model"),
        ({"teacher_model": "wise", "sets": ("teacher.base_url=http://10.0.0.1",)}, "teacher.base_url"),
    ],
)
def test_what_it_forbids_is_one_line(more: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        of(**more)
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_a_teacher_is_where_the_agents_model_is_unless_it_says_otherwise() -> None:
    sets = ("budget.money=none", "llm.base_url=http://127.0.0.1:9", "llm.style=openai")
    config = of(agent='command:"true"', agent_model="thinker", teacher_model="wise", sets=sets)
    assert config.teacher is not None and config.teacher.base_url == "http://127.0.0.1:9"
    own = of(teacher_model="wise", sets=("budget.money=none", "teacher.style=anthropic"))
    assert own.teacher is not None and own.teacher.key_env == "ANTHROPIC_API_KEY" and own.llm is None


def small(runs: Path) -> list[str]:
    """The settings of a small run: splits of its own."""
    sets = []
    for split, count in (("validation", 36), ("hidden", 72)):
        file = runs / f"{split}.toml"
        file.write_text(f'seed = "test-{split}"\nproblems = {count}\n')
        sets += ["--set", f"{split}_file={file}"]
    return sets


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_whole_run_of_the_scripted_agent(tmp_path: Path) -> None:
    words = ("--task", "aime", "--profile", "laptop", "--protocol", "rsibench-data", "--budget", "3m", "--seed", "1")
    done = command(*words, *small(tmp_path), runs=tmp_path, timeout=800)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert "official Δ_test" in done.stdout and "selection" in done.stdout
    (run,) = list_runs(tmp_path)
    state = load(run.journal_file)
    assert state.hidden is not None and state.finished is not None and state.finished.status == "ok"
    assert any(attempt.valid for attempt in state.trials.attempts)
    made = [item for name, item in state.candidates.items() if name != "c00"]
    initial = state.candidates["c00"]
    assert made and all("harness" not in item.components and item.harness == initial.harness for item in made)
    kinds = [event.payload.kind for event in read(run.journal_file)]
    assert kinds.index("agent_ended") < kinds.index("hidden_claimed") < kinds.index("hidden_finished")
    assert Ledger(run.sealed).claimed() == state.hidden.candidate
    report = json.loads((run.report / "report.json").read_text())
    assert report["official"]["seed"] == protocols.official_seed(1) and not report["official"]["is_selection_set"]


AGENT = """cd /lab
sed -i 's/"lora"/"full"/; s/^seed = 0/seed = 1/' trainer/recipe.toml
vibe train -m 'all weights'
sed -i 's/"full"/"lora"/; s/^seed = 1/seed = 0/; s/^epochs = 1.0/epochs = 2.0/' trainer/recipe.toml
head -n 32 data/train.jsonl > home/few && cp home/few data/train.jsonl
vibe train -m 'few rows, twice' && vibe validate -m 'few rows, twice' && vibe select c01
vibe finish
"""


def with_agent(folder: Path) -> list[str]:
    """A short research of its own: one attempt that the whitelist refuses, one that is valid and selected."""
    (folder / "agent.sh").write_text(AGENT)
    sets = []
    for split in ("validation", "hidden"):
        file = folder / f"{split}.toml"
        file.write_text(f'seed = "test-{split}"\nproblems = 12\n')
        sets += ["--set", f"{split}_file={file}"]
    return ["--agent", f"command:bash {folder / 'agent.sh'}", *sets]


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_refused_attempt_and_a_valid_one(tmp_path: Path) -> None:
    words = ("--task", "aime", "--profile", "laptop", "--protocol", "rsibench-data", "--budget", "15m")
    done = command(*words, *with_agent(tmp_path), runs=tmp_path, timeout=1100)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    (run,) = list_runs(tmp_path)
    state = load(run.journal_file)
    assert [(one.candidate, one.valid) for one in state.trials.attempts] == [(None, False), ("c01", True)]
    why = state.trials.attempts[0].why
    assert "method was changed from 'lora' to 'full'" in why and "seed was changed from 0 to 1" in why
    assert state.candidates["c01"].components == ("data", "trainer"), "the recipe is part of the trainer's record"
    assert state.hidden is not None and state.hidden.candidate == "c01" == Ledger(run.sealed).claimed()
    assert "1 valid of 2 attempts (invalid: j001)" in done.stdout and "official Δ_test" in done.stdout


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_official_set_may_be_the_selection_set_and_is_drawn_anew(tmp_path: Path) -> None:
    problems = mini.generate("test-same", 12)
    file = tmp_path / "problems.jsonl"
    rows = ({"id": n, "problem": one.question, "answer": one.answer} for n, one in enumerate(problems))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = ("--problems", str(file), "--hidden", str(file), "--sources", str(file))
    words = ("--task", "aime", "--profile", "laptop", *files, "--model", "tiny", "--samples", "2", "--budget", "90s")
    sets = ("--set", "decoding.max_tokens=96", "--agent", "command:vibe finish")
    refused = command(*words, *sets, runs=tmp_path)
    assert refused.returncode == 4 and "share a problem" in refused.stderr
    done = command(*words, *sets, "--protocol", "rsibench-data", runs=tmp_path, timeout=800)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert "OFFICIAL = SELECTION" in done.stdout and "official on the selection set" in done.stdout
    run = next(run for run in list_runs(tmp_path) if load(run.journal_file).hidden is not None)
    seen = [json.loads(line) for line in (run.evaluation("e001") / "problems.jsonl").read_text().splitlines()]
    counted = [json.loads(line) for line in (run.hidden / "initial" / "problems.jsonl").read_text().splitlines()]
    assert len(seen) == len(counted) == 24
    assert [row["tokens_out"] for row in seen] != [row["tokens_out"] for row in counted], "the same draws twice"
