"""Whatever a harness does ends as data: an answer, or a reason for 0."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from eval_kit import HONEST, Kit

from grader.session import Ground, Session
from isolation.bwrap import python_mounts
from tasks.spec import ProblemLimits


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path)


async def test_an_honest_harness_is_judged(kit: Kit) -> None:
    score = await kit.run(HONEST)
    assert score.score.score == 1.0
    assert [row["reason"] for row in kit.rows()] == ["match"] * 3
    call, end = kit.steps("p2")
    assert call["reply"] == "The answer is \\boxed{3}"
    assert "How much is 2+1" in str(call["prompt"])
    assert (end["kind"], end["reply"], end["reward"]) == ("end", "The answer is \\boxed{3}", 1.0)
    assert not (kit.root / "s").exists() or not list((kit.root / "s").iterdir())


async def test_a_harness_cannot_import_the_code_that_grades_it(kit: Kit) -> None:
    kit.problems = 1
    await kit.run("""
said = []
for name in ("tasks", "runner", "grader", "isolation"):
    try:
        __import__(name)
    except ImportError as error:
        said.append(str(error))
finish("; ".join(said))
""")
    (end,) = kit.steps()
    for name in ("tasks", "runner", "grader", "isolation"):
        assert f"No module named '{name}'" in str(end["reply"])


ENDS = {
    "exits": ("say({'op': 'task.get'})", "no_answer"),
    "fails": ("raise ValueError('broken \\x1b[31m harness')", "crash"),
    "missing_import": ("import no_such_module", "crash"),
    "hangs": ("say({'op': 'task.get'}); import time; time.sleep(99)", "timeout"),
    "chatters": ("while True: say({'op': 'task.get'})", "bad_message"),
    "floods": ("while True: sys.stdout.write('x' * 65536)", "bad_message"),
    "hundred_megabytes": ("sys.stdout.write('\"' + 'x' * 100_000_000 + '\"\\n')", "bad_message"),
    "deep": ("sys.stdout.write('{\"op\":' + '[' * 5000 + ']' * 5000 + '}\\n'); sys.stdin.read()", "bad_message"),
    "slightly_deep": ("sys.stdout.write('{\"op\":' + '[' * 40 + ']' * 40 + '}\\n'); sys.stdin.read()", "bad_message"),
    "not_json": ("print('hello'); sys.stdin.read()", "bad_message"),
    "surrogate": ('print(\'{"op": "finish", "answer": "\\\\ud800"}\'); sys.stdin.read()', "bad_message"),
    "log_flood": ("while True: sys.stderr.write('x' * 65536)", "log_too_big"),
    "huge_answer": ("finish('x' * 200_000)", "answer_too_big"),
    "closes_stdout": ("import time; os.close(1); time.sleep(99)", "timeout"),
    "closes_stdin": ('import time; os.close(0); print(\'{"op": "task.get"}\'); time.sleep(99)', "timeout"),
    "kills_itself": ("os.kill(os.getpid(), 9)", "crash"),
    "unfinished_line": ('sys.stdout.write(\'{"op": "finish", "answer": ""}\'); sys.stdout.flush()', "no_answer"),
}


@pytest.mark.parametrize("name", ENDS)
async def test_every_end_has_a_reason_and_counts_zero(kit: Kit, name: str) -> None:
    program, reason = ENDS[name]
    kit.problems = 1
    patience = (1.5, 5.0) if reason == "timeout" else (30.0, 60.0)  # a busy machine changes no other end
    kit.limits = ProblemLimits(think_s=patience[0], wall_s=patience[1], answer_bytes=100_000)
    score = await kit.run(program)
    (row,) = kit.rows()
    assert (row["reason"], row["reward"], score.score.score) == (reason, 0.0, 0.0)
    assert kit.judged == []
    log = str(kit.steps()[-1]["log"])
    assert len(log) < 5000
    assert "\x1b" not in log
    if name == "fails":
        assert "ValueError: broken" in log


async def test_a_fork_bomb_hurts_itself_alone(kit: Kit) -> None:
    kit.problems = 2
    kit.limits = ProblemLimits(think_s=6.0, wall_s=12.0)  # the other one must end in time on a busy machine
    await kit.run("""
        task = say({"op": "task.get"})
        while "0+1" in task["instruction"]:
            try: os.fork()
            except OSError: pass
        finish(chat(task["instruction"]))
    """)
    assert [row["reason"] for row in kit.rows()] == ["timeout", "match"]


async def test_memory_is_bounded(kit: Kit) -> None:
    kit.problems = 1
    kit.limits = ProblemLimits(think_s=30.0, wall_s=30.0)
    await kit.run("x = [b'x' * (64 << 20) for _ in range(64)]; finish('')")
    assert kit.rows()[0]["reason"] in ("crash", "memory")


async def test_environment_operations_are_refused_and_unknown_ones_too(kit: Kit) -> None:
    kit.problems = 1
    await kit.run("""
        said = [say({"op": op}) for op in ("env.exec", "tool.call", "say", "rm", None, "finish")]
        finish(json.dumps(said))
    """)
    (answer,) = [answer for _, answer in kit.judged]
    assert answer.count("this task has no environment") == 3
    assert answer.count("error") == 6
    assert kit.rows()[0]["parse_errors"] == 6


async def test_only_its_own_harness_socket_and_python_are_there(kit: Kit) -> None:
    kit.problems = 2
    (kit.root / "secret.txt").write_text("gold")
    pythons = [mount.target for mount in python_mounts(Path(sys.executable))]
    program = f"""
        task = say({{"op": "task.get"}})
        system = ("/proc", "/sys", "/usr", "/dev", *{pythons!r})
        found = [os.path.join(at, name) for at, folders, names in os.walk("/") for name in names
                 if not (at + "/").startswith(tuple(place + "/" for place in system))]
        env = sorted(os.environ)
        finish(json.dumps([found, env, os.getuid(), sorted(p for p in os.listdir("/proc") if p.isdigit())]))
    """
    await kit.run(program)
    for _, answer in kit.judged:
        found, env, uid, processes = json.loads(answer)
        ours = [path for path in found if not path.startswith("/etc/")]
        assert sorted(ours) == ["/harness/main.py", "/run/vibe/model.sock"]
        assert "VIBE_MODEL_SOCKET" in env
        assert uid == 1000
        assert len(processes) <= 3


async def test_a_cancel_in_the_very_step_in_which_the_clock_wakes_is_not_lost(kit: Kit) -> None:
    """A call stops the session's clock, and whoever waits for the clock wakes: a cancel that comes then must count."""
    python = Path(sys.executable)
    loop = asyncio.get_running_loop()
    kit.engine.held.clear()
    for late in range(8):
        playing: list[asyncio.Task[object]] = []

        def cancel(steps: int = late, playing: list[asyncio.Task[object]] = playing) -> None:
            if steps:
                loop.call_soon(cancel, steps - 1)
            else:
                playing[0].cancel()

        def seed(problem: str, sample: int, call: int, cancel: Callable[[], None] = cancel) -> int:
            loop.call_soon(cancel)  # the gateway asks for the seed, then stops the clock
            return 0

        ground = Ground(
            kit.engine, kit.judge, kit.harness(HONEST), python, python_mounts(python), kit.root / "s", kit.decoding,
            kit.limits, seed,
        )  # fmt: skip
        session = Session(ground, f"{late:06d}", await kit.public("p1"), 0)
        try:
            await session.prepare()
            await kit.engine.sessions((session.key,), ())
            playing.append(asyncio.create_task(session.play()))
            done, _ = await asyncio.wait(playing, timeout=20)
            assert done and playing[0].cancelled(), f"a cancel {late} steps after a call was lost"
        finally:
            await session.close()


async def test_nothing_is_left_for_the_next_problem(kit: Kit) -> None:
    kit.problems, kit.wave = 2, 1  # one after the other
    await kit.run("""
        import ctypes, fcntl
        task = say({"op": "task.get"})
        seen = []
        for path in ("/tmp/mark", "/dev/shm/mark", "/var/tmp/mark", "/harness/mark", "/run/vibe/mark", "/mark"):
            seen += [path] if os.path.exists(path) else []
            try: open(path, "w").write("here")
            except OSError: pass
        s = socket.socket(socket.AF_UNIX)
        try: s.connect("\\0mark"); seen.append("abstract")
        except OSError: pass
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.shmget(4711, 4096, 0) >= 0: seen.append("sysv")
        libc.shmget(4711, 4096, 0o1666)
        key = libc.syscall(249, b"user", b"mark", 0, -3)
        if key >= 0: seen.append("keyring")
        libc.syscall(248, b"user", b"mark", b"here", 4, -3)
        t = socket.socket()
        try: t.connect(("127.0.0.1", 4711)); seen.append("tcp")
        except OSError: pass
        if os.fork() == 0:
            os.setsid()
            a = socket.socket(socket.AF_UNIX); a.bind("\\0mark"); a.listen()
            b = socket.socket(); b.bind(("127.0.0.1", 4711)); b.listen()
            import time
            time.sleep(99)
        import time
        time.sleep(0.1)
        finish(json.dumps(seen))
    """)
    assert kit.judged == [("p0", "[]"), ("p1", "[]")]


async def test_siblings_of_main_and_installed_packages_can_be_imported(kit: Kit) -> None:
    kit.problems = 1
    kit.extra_files["helper.py"] = "VALUE = 'from a sibling'"
    await kit.run("import helper; import pydantic; finish(helper.VALUE)")
    assert kit.judged == [("p0", "from a sibling")]


async def test_the_clock_stands_while_a_request_is_pending(kit: Kit) -> None:
    """Session p0 thinks for a while; the others wait for its round far longer than they may think themselves."""
    kit.problems = 2
    kit.limits = ProblemLimits(think_s=1.0, wall_s=1.5)
    await kit.run("""
        import time
        task = say({"op": "task.get"})
        for turn in range(3):
            if "0+1" in task["instruction"]: time.sleep(0.6)
            text = chat(task["instruction"]) if turn < 2 or "1+1" in task["instruction"] else ""
        finish(text)
    """)
    assert [row["reason"] for row in kit.rows()] == ["timeout", "match"]
