"""A harness with a calculator, as an agent might write one: a fixture, run in place of H0. Standard library only.

The model writes ``<<25*20>>``; the harness stops it there, writes ``=500`` and lets it go on.
"""

from __future__ import annotations

import json
import os
import socket
import sys

INSTRUCTION = "Solve the problem and put the final integer answer in \\boxed{}."
ALLOWED = frozenset("0123456789+-*/ ()")
TURNS = 7


def channel(op: str, **fields: object) -> dict:
    print(json.dumps({"op": op, **fields}), flush=True)
    return json.loads(sys.stdin.readline())


def reply(connection: socket.socket, messages: list[dict]) -> str:
    body = json.dumps({"model": "model", "messages": messages, "stop": [">>"]}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: model\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head_bytes, _, rest = data.partition(b"\r\n\r\n")
    length = int(head_bytes.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    while len(rest) < length:
        rest += connection.recv(65536)
    return str(json.loads(rest)["choices"][0]["message"]["content"])


def value(text: str) -> str | None:
    """The result of the call that ``text`` ends with; None where it ends with none that can be worked out."""
    start = text.rfind("<<")
    if not text.endswith(">>") or start < 0:
        return None
    expression = text[start + 2 : -2]
    if not 0 < len(expression) <= 40 or not ALLOWED.issuperset(expression) or "**" in expression:
        return None
    try:
        return str(int(eval(expression, {"__builtins__": {}})))
    except (SyntaxError, ArithmeticError, TypeError):
        return None


def main() -> None:
    question = channel("task.get")["instruction"]
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.environ["VIBE_MODEL_SOCKET"])
    user = {"role": "user", "content": f"{question}\n{INSTRUCTION}"}
    text = ""
    for _ in range(TURNS):
        said = [{"role": "assistant", "content": text}] if text else []
        text += reply(connection, [user, *said])
        result = value(text)
        if result is None:
            break
        text += f"={result}"
    channel("finish", answer=text)


if __name__ == "__main__":
    main()
