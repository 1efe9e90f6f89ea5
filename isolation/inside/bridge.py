"""Inside a sandbox: makes unix sockets reachable over TCP for programs that speak nothing else, then runs one.

``bridge.py PORT=SOCKET [PORT=SOCKET ...] -- CMD...``. Listens on 127.0.0.1 before CMD starts. CMD takes this process's
place, so its streams, signals and exit code are its own; the forwarder is a child that ends with the sandbox.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading

MAX_CONNECTIONS = 64
_BLOCK = 1 << 16


def listen(port: int) -> socket.socket:
    """A listening socket on the loopback address."""
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen(MAX_CONNECTIONS)
    return server


def pump(source: socket.socket, target: socket.socket) -> None:
    """Copies one direction until its end, and passes the end on."""
    with contextlib.suppress(OSError):
        while block := source.recv(_BLOCK):
            target.sendall(block)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def serve_one(client: socket.socket, path: str, slots: threading.Semaphore) -> None:
    """One connection in both directions."""
    try:
        with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as upstream:
            upstream.connect(path)
            back = threading.Thread(target=pump, args=(upstream, client), daemon=True)
            back.start()
            pump(client, upstream)
            back.join()
    except OSError:
        pass
    finally:
        slots.release()


def forward(server: socket.socket, path: str, slots: threading.Semaphore) -> None:
    """Accepts for ever; waits where MAX_CONNECTIONS are open."""
    while True:
        slots.acquire()
        client, _ = server.accept()
        threading.Thread(target=serve_one, args=(client, path, slots), daemon=True).start()


def run(pairs: list[tuple[socket.socket, str]]) -> None:
    """The forwarder's life, without the command's streams."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    slots = threading.Semaphore(MAX_CONNECTIONS)
    threads = [threading.Thread(target=forward, args=(server, path, slots)) for server, path in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main(argv: list[str]) -> None:
    """Listens, forks the forwarder, becomes the command."""
    split = argv.index("--")
    routes = [word.partition("=") for word in argv[:split]]
    pairs = [(listen(int(port)), path) for port, _, path in routes]
    if os.fork() == 0:
        try:
            run(pairs)
        finally:
            os._exit(1)
    for server, _ in pairs:
        server.close()
    os.execvp(argv[split + 1], argv[split + 1 :])  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
