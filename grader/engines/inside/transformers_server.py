"""The CPU (and plain CUDA) engine: a model server on a unix socket, run inside the engine sandbox.

``python -P -m inside.transformers_server --base DIR --models DIR --socket PATH …``. One line of JSON on stdout says
that it is ready; afterwards only the socket talks. HTTP threads wait, the main thread alone computes.

POST /v1/chat/completions, /v1/completions (header X-Session); POST /control {"open", "close"}; POST /load {"model",
"format"}; POST /rest {"op"}; GET /health. A refused request gets a status ≥ 400 and {"error": one line}. What goes
wrong while generating ends the process: its manager starts another and asks again.
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import re
import socketserver
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found]
import transformers  # type: ignore[import-not-found]

from .generate import Generator, Row, Written
from .prompts import Prompts, Ready, ends
from .rounds import Job, Refusal, Rounds, Ticket, cut
from .weights import LoadError, Weights

MAX_BODY = 32 << 20
KV_BYTES = {"cpu": 4 << 30, "cuda": 24 << 30}
"""What the keys and values of one batch may take: fixed, so that the cutting of a round is the same everywhere."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_HELLO = [{"role": "user", "content": "Hello"}]


class Server:
    """The model, its requests, and the loop of the computing thread."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._models = Path(options.models)
        self._base = Path(options.base)
        self._cap = options.cap
        self.dtype = arithmetic(options.dtype, options.device)
        self.device = options.device
        self.rounds = Rounds(rounds=not options.free)
        self._weights = Weights(self._base, self.dtype, options.device)
        model = self._weights.model
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            self._base, local_files_only=True, trust_remote_code=False
        )
        self._prompts = Prompts(tokenizer, model.config.get_text_config().max_position_embeddings)
        self._tokens = KV_BYTES[options.device] // kv_bytes(model)
        pad = tokenizer.pad_token_id
        self._generator = Generator(model, tokenizer, ends(model, tokenizer, self._base), pad if pad is not None else 0)
        self._served = {"model": "", "format": "base"}
        self._counts = {"rounds": 0, "batches": 0, "requests": 0, "tokens": 0}

    def health(self) -> dict[str, Any]:
        """What is served and how much was done."""
        return {**self._served, **self._counts, "device": self.device, "dtype": self.dtype}

    def load(self, body: dict[str, Any]) -> dict[str, Any]:
        """Swap the model, then one token; on failure the base is served. Raises Refusal 422."""
        name, kind = body.get("model"), body.get("format")
        if not isinstance(name, str) or not _NAME.fullmatch(name) or kind not in ("base", "adapter", "full"):
            raise Refusal(400, "load takes the id of a model and base, adapter or full")
        folder = self._base if kind == "base" else self._models / name / ("adapter" if kind == "adapter" else "weights")
        started = time.monotonic()
        try:
            self._swap(kind, folder)
            self._served = {"model": name, "format": kind}
        except Exception as error:
            self._swap("base", self._base)
            self._served = {"model": "", "format": "base"}
            if isinstance(error, Refusal | LoadError):
                raise Refusal(422, str(error)) from error
            raise Refusal(422, " ".join(f"{type(error).__name__}: {error}".split())[:300]) from error
        return {"seconds": time.monotonic() - started}

    def _swap(self, kind: str, folder: Path) -> None:
        self._prompts.adopt(folder)
        self._weights.load(kind, folder)
        self._generator.ends = ends(self._weights.model, self._prompts.tokenizer, folder)
        hello = self._prompts.ready({"messages": list(_HELLO), "max_tokens": 1})
        if not self._generator.finite(hello.row.tokens):
            raise LoadError("the model's first logits are not finite numbers")
        self._generator.run([hello.row])

    def rest(self, body: dict[str, Any]) -> dict[str, Any]:
        """Leave the accelerator, or take it back."""
        (self._weights.sleep if body.get("op") == "sleep" else self._weights.wake)()
        return {}

    def compute(self) -> None:
        """The loop of the main thread; never returns."""
        while True:
            work = self.rounds.next()
            if isinstance(work, Job):
                work.ticket.settle(_outcome(work.run))
            elif isinstance(work, Ticket):
                self._make_ready(work)
            else:
                self._round(work)

    def _make_ready(self, ticket: Ticket) -> None:
        outcome = _outcome(lambda: self._prompts.ready(ticket.body))
        ticket.ready = outcome
        if isinstance(outcome, Refusal):
            self.rounds.answer(ticket, outcome)

    def _round(self, tickets: list[Ticket]) -> None:
        self._counts["rounds"] += 1
        for ticket, written in zip(tickets, self.batches([t.ready for t in tickets]), strict=True):
            self.rounds.answer(ticket, (ticket.ready.length, written))

    def batches(self, requests: list[Ready]) -> list[Written]:
        """A sorted round, batch after batch."""
        replies: list[Written] = []
        for part in cut([r.length + r.row.max_tokens for r in requests], self._cap, self._tokens):
            rows: list[Row] = [r.row for r in requests[part]]
            replies += self._generator.run(rows)
            self._counts["batches"] += 1
        self._counts["requests"] += len(replies)
        self._counts["tokens"] += sum(w.tokens for w in replies)
        return replies

    def bench(self, path: Path, most: int) -> dict[str, Any]:
        """The same rows in one process without walls: what an evaluation is measured against."""
        bodies = [json.loads(line) for line in path.read_text().splitlines()]
        started = time.monotonic()
        ready = [self._prompts.ready({**body, "max_tokens": most}) for body in bodies]
        order = sorted(range(len(ready)), key=lambda i: (ready[i].length, i))
        replies = self.batches([ready[i] for i in order])
        seconds = time.monotonic() - started
        texts = [text for _, text in sorted(zip(order, (w.text for w in replies), strict=True))]
        rate = 60 * len(replies) / seconds
        tokens = sum(w.tokens for w in replies)
        return {"requests": len(replies), "seconds": seconds, "per_minute": rate, "tokens": tokens, "texts": texts}


def _outcome(run: Any) -> Any:
    try:
        return run()
    except Refusal as refusal:
        return refusal


def arithmetic(dtype: str, device: str) -> str:
    """The type to compute in. A CPU without bfloat16 instructions takes 6 to 10 times as long in it as in float32."""
    if dtype == "bfloat16" and device == "cpu" and not _cpu_has_bfloat16():
        return "float32"
    return dtype


def _cpu_has_bfloat16() -> bool:
    words = Path("/proc/cpuinfo").read_text().split()
    return bool({"avx512_bf16", "amx_bf16", "bf16", "svebf16"} & set(words))


def kv_bytes(model: Any) -> int:
    """Bytes of keys and values per token and row."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * size * model.dtype.itemsize)


class Handler(http.server.BaseHTTPRequestHandler):
    """HTTP/1.1 with keep-alive; every answer is one JSON object."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    server: Socket

    def do_GET(self) -> None:
        """GET /health."""
        self._send(200, self.server.engine.health()) if self.path == "/health" else self._send(404, {"error": "?"})

    def do_POST(self) -> None:
        """Everything else."""
        try:
            self._send(200, self._answer(self._body()))
        except Refusal as refusal:
            self._send(refusal.status, {"error": refusal.why})

    def _body(self) -> dict[str, Any]:
        size = self.headers.get("Content-Length", "")
        if not size.isdigit() or int(size) > MAX_BODY:
            self.close_connection = True
            raise Refusal(413, f"a body has a length of at most {MAX_BODY} bytes")
        try:
            body = json.loads(self.rfile.read(int(size)))
        except (ValueError, RecursionError) as error:
            raise Refusal(400, "the body is not JSON") from error
        if not isinstance(body, dict):
            raise Refusal(400, "the body is not an object")
        return body

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        engine, path = self.server.engine, self.path
        if path in ("/v1/chat/completions", "/v1/completions"):
            asked = body.keys() & {"messages", "prompt"}
            if asked != {"messages" if "chat" in path else "prompt"}:
                raise Refusal(400, "chat completions take messages, completions a prompt")
            length, written = engine.rounds.ask(self.headers.get("X-Session", ""), body)
            return completion(path, length, written)
        if path == "/control":
            engine.rounds.control(map(str, body.get("open", ())), map(str, body.get("close", ())))
            return {}
        if path in ("/load", "/rest"):
            run = engine.load if path == "/load" else engine.rest
            answer: dict[str, Any] = engine.rounds.do(lambda: run(body))
            return answer
        raise Refusal(404, "no such path")

    def _send(self, status: int, answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""

    def address_string(self) -> str:
        """A unix socket's peer has no address."""
        return "peer"


def completion(path: str, length: int, written: Written) -> dict[str, Any]:
    """The OpenAI shape of a reply."""
    chat = path.endswith("/chat/completions")
    text = {"message": {"role": "assistant", "content": written.text}} if chat else {"text": written.text}
    return {
        "object": "chat.completion" if chat else "text_completion",
        "choices": [{"index": 0, **text, "finish_reason": written.finish_reason}],
        "usage": {
            "prompt_tokens": length,
            "completion_tokens": written.tokens,
            "total_tokens": length + written.tokens,
        },
    }


class Socket(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """One daemon thread per connection."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, path: str, engine: Server) -> None:
        Path(path).unlink(missing_ok=True)
        self.engine = engine
        super().__init__(path, Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A peer that went away is no news."""


def options(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="transformers_server", allow_abbrev=False)
    parser.add_argument("--base", required=True)
    parser.add_argument("--models", default="/models")
    parser.add_argument("--socket", default="")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--cap", type=int, default=128, help="rows of a batch, at most")
    parser.add_argument("--threads", type=int, default=0, help="0: what OpenMP takes")
    parser.add_argument("--free", action="store_true", help="run what is pending, without rounds")
    parser.add_argument("--bench", default="", help="a file of request bodies; prints the time they take, and ends")
    parser.add_argument("--max-tokens", type=int, default=96)
    return parser.parse_args(argv)


def main(argv: list[str]) -> None:
    """Start, say that it is ready, compute for ever."""
    chosen = options(argv)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    if chosen.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("there is no CUDA device here")
    server = Server(chosen)
    if chosen.bench:
        sys.stdout.write(json.dumps(server.bench(Path(chosen.bench), chosen.max_tokens)) + "\n")
        return
    threading.Thread(target=Socket(chosen.socket, server).serve_forever, daemon=True).start()
    ready = {"ready": True, "transformers": transformers.__version__, "torch": torch.__version__}
    ready |= {"device": server.device, "dtype": server.dtype, "threads": torch.get_num_threads(), "pid": os.getpid()}
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    server.compute()


if __name__ == "__main__":
    main(sys.argv[1:])
