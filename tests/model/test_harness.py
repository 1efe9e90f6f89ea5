"""H0 and the calculator fixture against a real Unix-socket server and a real pair of pipes."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tasks

H0 = Path(tasks.__file__).parent / "aime" / "workspace" / "harness" / "main.py"
CALCULATOR = Path(__file__).with_name("harness_calculator.py")
Answer = Callable[[dict], bytes]


def http(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


def said(text: str) -> bytes:
    return http(json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode())


class ModelServer:
    """One connection at a time; every request's body is kept and answered by ``answer``."""

    def __init__(self, path: Path, answer: Answer) -> None:
        self.path, self.answer, self.asked = path, answer, list[dict]()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as stream:
            while stream.readline():
                length = 0
                while (line := stream.readline().strip()) != b"":
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                self.asked.append(json.loads(stream.read(length)))
                reply = self.answer(self.asked[-1])
                connection.sendall(reply)
                if not reply.endswith((b"}", b"\n")):
                    return

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Answer], ModelServer]]:
    servers: list[ModelServer] = []

    def start(answer: Answer) -> ModelServer:
        servers.append(ModelServer(tmp_path / "model.sock", answer))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def run(harness: Path, server: ModelServer, channel: list[str]) -> subprocess.CompletedProcess[str]:
    """The harness with ``channel`` as what the grader answers, line by line."""
    return subprocess.run(
        [sys.executable, "-I", str(harness)],
        input="".join(f"{line}\n" for line in channel),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=30,
        env={"VIBE_MODEL_SOCKET": str(server.path), "PATH": os.environ["PATH"]},
    )


TASK = json.dumps({"instruction": "Was ist 2+2? é", "tools": [], "limits": {}}, ensure_ascii=False)


def sent(done: subprocess.CompletedProcess[str]) -> list[dict]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_h0_asks_once_and_hands_in_the_whole_reply(serve: Callable[[Answer], ModelServer]) -> None:
    server = serve(lambda _: said("four, so \\boxed{4}\nétrange"))
    done = run(H0, server, [TASK, '{"ok": true}'])
    assert done.returncode == 0, done.stderr
    assert sent(done) == [{"op": "task.get"}, {"op": "finish", "answer": "four, so \\boxed{4}\nétrange"}]
    instruction = "Solve the problem and put the final integer answer in \\boxed{}."
    assert [asked["messages"] for asked in server.asked] == [
        [{"role": "user", "content": f"Was ist 2+2? é\n{instruction}"}]
    ]


def test_h0_sends_the_prompt_that_training_rows_begin_with(serve: Callable[[Answer], ModelServer]) -> None:
    from tasks.aime.text import prompt

    server = serve(lambda _: said("x"))
    run(H0, server, [TASK, '{"ok": true}'])
    assert server.asked[0]["messages"][0]["content"] == prompt("Was ist 2+2? é")


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (http(b'{"error": "too many calls"}', "429 Too Many Requests"), "status 429"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nshort", "connection closed"),
        (b"", "connection closed"),
        (http(b"not json}"), "JSONDecodeError"),
        (http(b'{"choices": []}'), "IndexError"),
        (b"HTTP/1.1 200 OK\r\n\r\n{}", "content-length"),
    ],
)
def test_h0_never_finishes_on_a_reply_that_is_none(
    serve: Callable[[Answer], ModelServer], reply: bytes, told: str
) -> None:
    done = run(H0, serve(lambda _: reply), [TASK, '{"ok": true}'])
    assert done.returncode == 1
    assert told in done.stderr
    assert sent(done) == [{"op": "task.get"}]


def test_h0_stops_reading_an_endless_reply(serve: Callable[[Answer], ModelServer]) -> None:
    done = run(H0, serve(lambda _: b"x" * (9 << 20)), [TASK])
    assert done.returncode == 1
    assert "too long a reply" in done.stderr


@pytest.mark.parametrize(("channel", "told"), [([], "closed"), (['{"error": "no task"}'], "no task")])
def test_h0_says_why_the_channel_failed(serve: Callable[[Answer], ModelServer], channel: list[str], told: str) -> None:
    done = run(H0, serve(lambda _: said("x")), channel)
    assert done.returncode == 1
    assert told in done.stderr


def test_h0_imports_no_slow_module() -> None:
    """It starts once per problem: what `import socket` or http.client cost would be paid each time."""
    slow = {"http.client", "socket", "typing", "asyncio", "subprocess", "ssl", "email", "urllib", "pathlib"}
    script = (
        f"import sys; exec(compile(open({str(H0)!r}).read(), 'main.py', 'exec'), {{'__name__': 'harness'}});"
        f"print(sorted({slow} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_calculator_goes_on_from_its_own_text(serve: Callable[[Answer], ModelServer]) -> None:
    """Each call's last message is what was written so far, the results filled in."""
    parts = iter(["Bought: <<25*20>>", "\nRemaining: <<500-3>>", "\n\\boxed{497}"])
    server = serve(lambda _: said(next(parts)))
    done = run(CALCULATOR, server, [TASK, '{"ok": true}'])
    assert sent(done)[-1]["answer"] == "Bought: <<25*20>>=500\nRemaining: <<500-3>>=497\n\\boxed{497}"
    assert [asked["messages"][1:] for asked in server.asked] == [
        [],
        [{"role": "assistant", "content": "Bought: <<25*20>>=500"}],
        [{"role": "assistant", "content": "Bought: <<25*20>>=500\nRemaining: <<500-3>>=497"}],
    ]
    assert all(asked["stop"] == [">>"] for asked in server.asked)


@pytest.mark.parametrize("call", ["<<9**9**9>>", "<<1/0>>", "<<__import__('os')>>", "<<(1>>", "<<>>", "1>>"])
def test_calculator_hands_in_what_it_cannot_work_out(serve: Callable[[Answer], ModelServer], call: str) -> None:
    done = run(CALCULATOR, serve(lambda _: said(call)), [TASK, '{"ok": true}'])
    assert sent(done)[-1]["answer"] == call


def test_calculator_stops_after_its_turns(serve: Callable[[Answer], ModelServer]) -> None:
    server = serve(lambda _: said("<<1+1>>"))
    done = run(CALCULATOR, server, [TASK, '{"ok": true}'])
    assert done.returncode == 0
    assert len(server.asked) == 7
