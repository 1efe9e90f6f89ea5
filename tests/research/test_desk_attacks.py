"""The desk under attack: from inside the research sandbox, on its real socket."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import socket
import weakref
from typing import Any

import pytest

from runner.record.journal import JournalError
from runner.research import jobs, verbs
from runner.research.answers import encode
from runner.research.desk import MAX_CLIENTS, Desk
from runner.research.jobs import Job
from runner.research.verbs import Sample, Validate


async def test_malformed_requests_are_refused_and_noted_without_flooding_the_journal(phases: Any) -> None:
    phase = await phases()
    await phase.agent("""
bad = [
    b"not json\\n", b"[1]\\n", b"{}\\n", b'{"verb": "exec"}\\n', b'{"verb": "select", "candidate": "../../sealed"}\\n',
    b'{"verb": "wait", "job": "j001\\\\n"}\\n', b'{"verb": "status", "extra": 1}\\n', b'\\xff\\xfe\\n',
    b'{"verb": "select", "candidate": "c01; rm -rf /"}\\n', b'{"verb": ["train"]}\\n', b"[" * 60000 + b"\\n",
    b'{"verb": "train", "parents": ["m00/../m01"]}\\n', b'{"verb": "status", "verb": "finish"}\\n',
    b'{"verb": "sample", "n": 1000000}\\n', b'{"verb": "train", "message": 5}\\n', b'{"a": ' * 5000 + b"\\n",
]
keep(answers=[raw(line) for line in bad], giant=raw(b'{"verb": "' + b"x" * 10_000_000), status=ask("status"))
""")
    answers = [json.loads(text) for text in phase.facts["answers"]]
    assert all(not answer["ok"] and "not a request" in answer["text"] for answer in answers)
    assert "longer than" in phase.facts["giant"]
    assert phase.facts["status"]["ok"] and not phase.desk.finished.is_set()
    assert len(phase.kinds("integrity")) == 1
    await phase.desk.close()
    assert [event.detail for event in phase.kinds("integrity")][-1] == "16 more"


async def test_a_flood_of_requests_runs_one_job_and_queues_one(phases: Any) -> None:
    phase = await phases()
    phase.grader.open.clear()
    done = asyncio.create_task(
        phase.agent("""
answers = []
open("/lab/harness/solves", "w").write("6")
for n in range(300):
    answers.append(raw(b'{"verb": "validate", "detach": true}\\n').splitlines()[-1])
keep(ok=sum(json.loads(a)["ok"] for a in answers), last=json.loads(answers[-1])["text"])
""")
    )
    await done
    assert phase.facts["ok"] == 2 and "only one may wait" in phase.facts["last"]
    assert len(phase.kinds("job_queued")) == 2
    await phase.until("validation_started", 2)
    assert [event.job for event in phase.kinds("validation_started")] == ["j000", "j001"]
    phase.grader.open.set()


async def test_a_flood_of_connections_is_bounded(phases: Any) -> None:
    phase = await phases()
    await phase.agent("""
held = []
for n in range(1000):
    s = socket.socket(socket.AF_UNIX)
    s.connect(os.environ["VIBE_CONTROL"])
    held.append(s)
time.sleep(0.5)
turned_away = sum(bool(s.recv(100)) for s in held[200:300])
for s in held:
    s.close()
keep(turned_away=turned_away, status=ask("status")["ok"])
""")
    assert phase.facts["turned_away"] == 100 and phase.facts["status"]
    assert {event.what for event in phase.kinds("integrity")} == {"connection flood"}


async def test_clients_that_read_no_answer_are_as_many_as_may_be_there(phases: Any) -> None:
    """What does not fit into a socket stays with its client: neither it nor its descriptor outlives the count."""
    phase = await phases()
    first = phase.kinds("candidate_created")[0]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        taken = ours.send(bytes(1 << 20))
    number = 0
    while len(encode(phase.desk._verbs.history())) < taken + (32 << 10):  # a little more than a socket takes
        number += 1
        made = {"candidate": f"c{number:02d}", "harness": f"h{number}", "parent": "c00", "hypothesis": "é" * 500}
        phase.lab.journal.append(first.model_copy(update=made))
    await phase.agent("""
held, turned_away = [], 0
for n in range(100):
    s = socket.socket(socket.AF_UNIX)
    s.connect(os.environ["VIBE_CONTROL"])
    s.sendall(b'{"verb": "history"}\\n')
    turned_away += b"too many" in s.recv(100)  # one after the other
    held.append(s)
for s in held:
    s.close()
keep(turned_away=turned_away, status=ask("status")["ok"])
""")
    assert 0 < phase.facts["turned_away"] <= 100 - MAX_CLIENTS and phase.facts["status"]


class Prompts(list[bytes]):
    """A list that can be asked whether anybody holds it."""


def sampled(desk: Desk) -> tuple[Job, weakref.ref[Prompts]]:
    prompts = Prompts([b'{"prompt": "x"}'])
    return desk._verbs.sample(Sample(verb="sample"), prompts), weakref.ref(prompts)


async def test_a_job_that_has_ended_keeps_nothing_of_what_was_sent_with_it(phases: Any) -> None:
    """Sent and cancelled, 8 MiB of prompts stayed for the rest of the run, as often as an agent liked."""
    phase = await phases()
    job, prompts = sampled(phase.desk)
    await job.done.wait()
    assert job.task is not None
    await asyncio.wait({job.task})
    gc.collect()
    assert job.answer["ok"] and prompts() is None and phase.desk.jobs.by_id == {job.id: job}


async def test_selections_and_jobs_of_a_run_have_an_end(phases: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "MOST_JOBS", 3)
    monkeypatch.setattr(verbs, "MOST_SELECTIONS", 4)
    monkeypatch.setattr(verbs, "SHOWN", 2)
    phase = await phases()
    await phase.agent("""
open("/lab/harness/solves", "w").write("6")
validated = [ask("validate")]
open("/lab/harness/solves", "w").write("7")
validated += [ask("validate") for n in range(3)]
selected = [ask("select", f"c{n % 2:02d}") for n in range(6)]
again = [ask("select", "c01") for n in range(3)]
keep(jobs=[one["ok"] for one in validated], told=validated[-1]["text"], history=ask("history"),
     selected=[one["ok"] for one in selected], again=[one["ok"] for one in again], refused=selected[-1]["text"])
""")
    facts = phase.facts
    assert facts["jobs"] == [True, True, True, False] and "all 3 jobs" in facts["told"]
    assert facts["selected"] == [True] * 4 + [False, True] and facts["again"] == [True] * 3
    assert len(phase.kinds("selected")) == 4 and phase.desk.selected == "c01"
    assert [one["candidate"] for one in facts["history"]["candidates"]] == ["c01", "c02"]
    assert facts["history"]["left_out"] == 1 and "1 older" in facts["history"]["text"]


async def test_a_job_whose_end_cannot_be_recorded_ends_the_run(phases: Any) -> None:
    """A disk that is full for a moment, and an agent can make it so, would leave a record without that end."""
    phase = await phases()
    phase.grader.open.clear()
    (phase.lab.rundir.workspace / "harness" / "solves").write_text("6")
    job = phase.desk._verbs.validate(Validate(verb="validate"))
    await phase.grader.running.wait()
    assert job.task is not None
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (phase.lab.journal.path.stat().st_size, hard))
    try:
        phase.grader.open.set()
        await asyncio.wait({job.task})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert phase.desk.finished.is_set() and job.state == "done"
    with pytest.raises(JournalError):
        await phase.desk.close()
    phase.desk.jobs.crash = None  # the fixture closes it once more


async def test_a_killed_client_does_not_end_its_job(phases: Any) -> None:
    phase = await phases()
    phase.grader.open.clear()
    agent = asyncio.create_task(
        phase.agent("""
open("/lab/harness/solves", "w").write("7")
client = subprocess.Popen(["vibe", "validate"], stdout=subprocess.PIPE, text=True)
job = client.stdout.readline().split()[0]
client.kill()
client.wait()
keep(timeout=vibe("wait", job, "--timeout", "1")[0], label=ask("status")["jobs"][0]["state"])
print(json.dumps({"say": "waited"}), flush=True)
code, out, _ = vibe("wait", job)
keep(job=job, code=code, out=out)
""")
    )
    await phase.said("waited")
    phase.grader.open.set()
    await agent
    facts = phase.facts
    assert facts["timeout"] == 3 and facts["label"] == "running"
    assert facts["code"] == 0 and "c01 35.0 %" in facts["out"]


async def test_select_finish_and_validate_at_once_leave_one_consistent_end(phases: Any) -> None:
    phase = await phases()
    await phase.agent("""
open("/lab/harness/solves", "w").write("9")
keep(c01=ask("validate")["candidate"])
open("/lab/harness/solves", "w").write("10")
from concurrent.futures import ThreadPoolExecutor
lines = [b'{"verb": "select", "candidate": "c00"}\\n', b'{"verb": "select", "candidate": "c01"}\\n',
         b'{"verb": "finish"}\\n', b'{"verb": "validate", "detach": true}\\n'] * 5
with ThreadPoolExecutor(20) as pool:
    list(pool.map(raw, lines))
time.sleep(60)
""")
    await phase.desk.close()
    order = [event.payload for event in phase.events]
    selections = [event.candidate for event in order if event.kind == "selected"]
    assert phase.desk.selected == (selections[-1] if selections else None)
    assert all(job.state == "done" for job in phase.desk.jobs.by_id.values())
    ended = [event.job for event in order if event.kind == "validation_finished"]
    queued = [event.job for event in order if event.kind == "job_queued"]
    assert sorted(ended) == sorted(["j000", *queued])


async def test_after_finish_everything_but_looking_is_refused(phases: Any) -> None:
    phase = await phases()
    phase.desk.finished = asyncio.Event()  # the agent outlives its own finish here
    await phase.agent("""
keep(end=ask("finish"), train=ask("train"), select=ask("select", "c00"), status=ask("status"))
""")
    facts = phase.facts
    assert facts["end"]["ok"] and facts["status"]["ok"]
    assert facts["train"]["code"] == 1 and "over" in facts["train"]["text"]
    assert facts["select"]["code"] == 1 and phase.desk.selected is None


async def test_hostile_prompts_are_refused(phases: Any) -> None:
    phase = await phases()
    await phase.agent("""
head = b'{"verb": "sample"}\\n'
keep(
    role=raw(head + b'{"row": {"messages": [{"role": ["user"], "content": "x"}]}}\\n{"end": true}\\n'),
    wrong=raw(head + b'{"row": {"file": "/etc/passwd"}}\\n{"end": true}\\n'),
    big=raw(head + (b'{"row": {"prompt": "' + b"x" * 60000 + b'"}}\\n') * 200),
    none=raw(head + b'{"end": true}\\n'),
    torn=raw(head + b'{"row": {"prompt": "x"}}\\n', wait=False),
)
""")
    assert "prompt 1" in phase.facts["role"]
    assert "prompt 1" in phase.facts["wrong"] and "no prompts" in phase.facts["none"]
    assert "split the file" in phase.facts["big"]
    assert not phase.kinds("job_queued")


async def test_the_socket_is_private_and_cannot_be_replaced(phases: Any) -> None:
    phase = await phases()
    await phase.agent("""
def attempt(what):
    try:
        what()
        return ""
    except OSError as error:
        return error.strerror
keep(unlink=attempt(lambda: os.unlink("/run/vibe-control/desk.sock")),
     plant=attempt(lambda: open("/run/vibe-control/x", "w")),
     client=attempt(lambda: open("/opt/vibe/vibe", "a")))
""")
    assert set(phase.facts.values()) == {"Read-only file system"}
    assert os.stat(phase.control / "desk.sock").st_mode & 0o777 == 0o600  # noqa: PTH116
