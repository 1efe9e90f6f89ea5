"""A harness with a calculator and worked examples, written by the scripted agent over H0.

The model writes ``Bought: <<25*20>>``; generation stops at ``>>``, the value is computed here and appended, and the
model goes on from ``=500``. Standard library only; json and _socket keep the start in milliseconds.
"""

import _socket
import json
import os
import sys

TOOL = True
SHOTS = 0
INSTRUCTION = "Solve the problem and put the final integer answer in \\boxed{}."
EXAMPLES = (
    ("Tom has 14 cups and buys 23 more. How many cups does Tom have now?", "Tom has 14+23 = 37\n\\boxed{37}"),
    (
        "Mia buys 5 bags of 12 plums and eats 7 plums. How many plums remain?",
        "Bought: 5*12 = 60\nRemaining: 60-7 = 53\n\\boxed{53}",
    ),
)
ALLOWED = frozenset("0123456789+-*/() ")


def ask(op, **fields):
    sys.stdout.write(json.dumps({"op": op, **fields}) + "\n")
    sys.stdout.flush()
    return json.loads(sys.stdin.readline())


class Model:
    """One keep-alive connection to the model's socket."""

    def __init__(self):
        self.socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self.socket.connect(os.environ["VIBE_MODEL_SOCKET"])

    def chat(self, messages, stop):
        body = json.dumps({"messages": messages, "stop": stop}).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: model\r\nContent-Type: application/json\r\n"
        self.socket.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.receive()
        head, _, rest = data.partition(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        while len(rest) < length:
            rest += self.receive()
        reply = json.loads(rest)
        return reply["choices"][0]["message"]["content"] if "choices" in reply else None

    def receive(self):
        part = self.socket.recv(65536)
        if not part:
            raise SystemExit("the model's connection closed")
        return part


def value_of(text):
    """The value of the call that ``text`` ends in, or None."""
    start = text.rfind("<<")
    expression = text[start + 2 : -2] if start >= 0 and text.endswith(">>") else ""
    if not 0 < len(expression) <= 48 or "**" in expression or not ALLOWED.issuperset(expression):
        return None
    try:
        return int(eval(expression, {"__builtins__": {}}))  # noqa: S307  digits and operators only
    except Exception:
        return None


def conversation(question):
    messages = []
    for example, solution in EXAMPLES[:SHOTS]:
        messages += [{"role": "user", "content": example + "\n" + INSTRUCTION}]
        messages += [{"role": "assistant", "content": solution}]
    return [*messages, {"role": "user", "content": question + "\n" + INSTRUCTION}]


def main():
    task = ask("task.get")
    model = Model()
    messages = conversation(task["instruction"])
    text = ""
    for _ in range(int(task["limits"].get("calls_per_problem", 8))):
        turn = [*messages, {"role": "assistant", "content": text}] if text else messages
        reply = model.chat(turn, [">>"] if TOOL else [])
        if reply is None:
            break
        text += reply
        value = value_of(text) if TOOL else None
        if value is None:
            break
        text += f"={value}"
    ask("finish", answer=text)


main()
