"""H0: one problem, one reply. Standard library only; a few milliseconds to start.

Asks the channel for the task, sends the question to the model once, and hands the whole reply back as the answer.
README.md says how the channel and the model are reached and where a better harness would begin.
"""

import _socket  # the C module behind socket: a fifth of its start-up time
import json
import os
import sys

INSTRUCTION = "Solve the problem and put the final integer answer in \\boxed{}."
LARGEST_REPLY = 8 << 20  # bytes; a longer one is a fault, not an answer


class Channel:
    """The grader on descriptors 0 and 1: one JSON object a line, each answered by one."""

    def call(self, op: str, **fields: object) -> dict:
        """Send ``{"op": op, …}`` and return the answer. Exits when the channel closes or answers with an error."""
        sys.stdout.write(json.dumps({"op": op, **fields}) + "\n")
        sys.stdout.flush()
        line = sys.stdin.buffer.readline()
        if not line:
            sys.exit(f"{op}: the channel is closed")
        answer = json.loads(line)
        if "error" in answer:
            sys.exit(f"{op}: {answer['error']}")
        return answer


class Model:
    """The model server on a Unix socket: HTTP/1.1, one connection, one request at a time."""

    def __init__(self, path: str) -> None:
        self.socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self.socket.connect(path)

    def chat(self, messages: list[dict], **fields: object) -> str:
        """The assistant's text for ``messages``.

        When the last message is the assistant's, the model goes on from its text. ``stop=[…]`` ends the text *with* the
        string that was hit. ``max_tokens`` asks for fewer tokens than the limit. Exits on any other reply than 200.
        """
        body = json.dumps({"model": "model", "messages": messages, **fields}).encode()
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: model\r\nContent-Type: application/json\r\n"
        self.socket.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        status, reply = self._receive()
        if status != 200:
            sys.exit(f"model: status {status}: {reply[:300].decode(errors='replace')}")
        return json.loads(reply)["choices"][0]["message"]["content"]

    def _receive(self) -> tuple[int, bytes]:
        """(status, body) of one response."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._more(len(data))
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        fields = dict(line.lower().split(":", 1) for line in lines[1:] if ":" in line)
        length = int(fields["content-length"])
        while len(body) < length:
            body += self._more(len(body))
        return int(lines[0].split(" ")[1]), body[:length]

    def _more(self, held: int) -> bytes:
        chunk = self.socket.recv(65536)
        if not chunk or held > LARGEST_REPLY:
            sys.exit(
                "model: the connection closed in the middle of a reply" if not chunk else "model: too long a reply"
            )
        return chunk


def solve(model: Model, question: str) -> str:
    """The text that is handed in: the judge reads the last \\boxed{} in it."""
    return model.chat([{"role": "user", "content": f"{question}\n{INSTRUCTION}"}])


def main() -> None:
    channel = Channel()
    task = channel.call("task.get")
    answer = solve(Model(os.environ["VIBE_MODEL_SOCKET"]), task["instruction"])
    channel.call("finish", answer=answer)


if __name__ == "__main__":
    main()
