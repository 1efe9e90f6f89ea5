"""How an agent ends: on time, by itself, by force; and when it is started again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from runner.record.events import BudgetLimits
from runner.research.agent_process import TURNS
from runner.research.memory import plan_memory


def alive(mark: str) -> list[str]:
    """Command lines on this machine that hold ``mark``."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if mark in words:
            found.append(words)
    return found


async def test_an_agent_that_stops_itself_ends_on_time_with_all_its_children(phases: Any) -> None:
    phase = await phases(budget=BudgetLimits(wall_s=4.0))
    mark = f"7{time.monotonic_ns()}"
    end = await phase.agent(f"""
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv("/bin/sleep", ["sleep", "{mark}"])
    os._exit(0)
keep(started=True)
os.kill(os.getpid(), signal.SIGSTOP)
""")
    assert end.reason == "deadline"
    assert next(event.el for event in phase.events if event.payload.kind == "agent_ended") >= 4
    assert phase.facts["started"] and alive(mark) == []


async def test_an_agent_that_exits_is_resumed_a_few_times(phases: Any) -> None:
    phase = await phases(agent_resumes=2)
    process = phase.process("""
open("/lab/notes/starts", "a").write(os.environ.get("VIBE_RESUMED", "0"))
time.sleep(1.2)
""")
    end = await process.run(phase.desk.finished)
    assert end.reason == "exited" and end.exit_code == 0
    assert (phase.lab.rundir.workspace / "notes" / "starts").read_text() == "011"
    assert [event.resumed for event in phase.kinds("agent_started")] == [False, True, True]
    assert [event.final for event in phase.kinds("agent_ended")] == [False, False, True], (
        "only the last one is the last"
    )
    assert [event.session for event in phase.kinds("agent_started")] == ["s1"] * 3
    assert len(phase.kinds("agent_ended")) == 3


async def test_an_agent_that_dies_at_once_is_not_started_again(phases: Any) -> None:
    phase = await phases()
    end = await phase.agent("os.kill(os.getpid(), signal.SIGKILL)")
    assert end.reason == "signal" and end.signal == 9
    assert len(phase.kinds("agent_started")) == 1


async def test_a_stop_ends_the_agent(phases: Any) -> None:
    phase = await phases()
    process = phase.process("time.sleep(600)")
    process.stopped.set()
    end = await process.run(phase.desk.finished)
    assert end.reason == "stopped" and not end.final, "a run that a person stopped goes on with its agent"


async def test_the_log_is_capped_and_hostile_lines_are_claims_at_most(phases: Any) -> None:
    phase = await phases()
    await phase.agent("""
print(json.dumps({"say": "\\x1b]52;c;aGk=\\x07hello\\u202e [bold]"}), flush=True)
print("no json", flush=True)
print(json.dumps({"say": 1}), flush=True)
sys.stdout.write("x" * 3_000_000 + "\\n")
print(json.dumps({"say": "unread"}), flush=True)
sys.stderr.write("to the log")
""")
    assert [turn.summary for turn in phase.kinds("agent_turn")] == ["hello [bold]", "1"]
    assert [event.what for event in phase.kinds("integrity")] == ["agent output"]
    log = phase.lab.rundir.log("agent").read_text()
    assert "to the log" in log and "unread" in log


async def test_a_flood_of_claims_ends_in_the_log(phases: Any) -> None:
    """The journal is read by everything; what an agent prints costs it nothing."""
    phase = await phases()
    process = phase.process("""
for number in range(500):
    print(json.dumps({"say": str(number)}), flush=True)
""")
    process._turns = TURNS - 100  # what a run has had already
    await process.run(phase.desk.finished)
    assert len(phase.kinds("agent_turn")) == 100
    assert [event.what for event in phase.kinds("integrity")] == ["agent output"]


async def test_a_full_disk_ends_the_writer(phases: Any) -> None:
    phase = await phases(disk_reserve=1 << 60)
    end = await phase.agent("time.sleep(600)")
    assert end.reason == "crashed"
    assert [event.what for event in phase.kinds("integrity")] == ["disk filled"]


async def test_the_sandbox_shows_what_an_agent_has_and_nothing_else(phases: Any) -> None:
    phase = await phases()
    phase.lab.memory = plan_memory(8 << 30, 1 << 30)
    run = str(phase.lab.rundir.path)
    await phase.agent(
        f"run = {run!r}"
        + """
keep(seen=os.path.exists(run))
keep(root=sorted(os.listdir("/")), lab=sorted(os.listdir("/lab")), run=os.listdir("/run"), home=os.environ["HOME"],
     models=sorted(os.listdir("/models/m00")), base=os.listdir("/models/m00/weights"), uid=os.getuid(),
     policy=os.sched_getscheduler(0), env=sorted(os.environ))
for name in ("tasks", "runner", "grader", "isolation"):
    keep(**{name: subprocess.run([sys.executable, "-c", "import " + name], capture_output=True, text=True).stderr})
"""
    )
    facts = phase.facts
    assert facts["lab"] == ["README.md", "data", "harness", "home", "notes", "trainer"]
    assert facts["run"] == ["vibe-control"] and facts["home"] == "/lab/home" and facts["uid"] == 1000
    assert facts["models"] == ["manifest.json", "weights"] and facts["base"] == ["config.json"]
    assert facts["policy"] == 5
    for name in ("tasks", "runner", "grader", "isolation"):
        assert f"No module named '{name}'" in facts[name]
    assert not {"sealed", "evals", "store", "candidates", "control"} & set(facts["root"])
    assert not facts["seen"]
