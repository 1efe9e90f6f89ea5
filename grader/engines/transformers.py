"""The manager of the CPU (and plain CUDA) engine: keeps a model server alive in its sandbox and asks it.

The server's code is ours, what its model writes is not: replies are capped, checked and taken as text. A server that
dies in a round is started again once for all who wait, told of the model and the open sessions first, and asked again.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from grader.engines.base import Completed, Completion, EngineError, RequestRefused
from grader.engines.wire import Ready, capped, completed, header, request_of, value_of
from grader.protocol import EngineConfig, ModelRef, Noticed
from isolation import bwrap, sandbox
from isolation.clean import clean_line
from isolation.limits import Cgroup
from isolation.problem import SandboxError
from isolation.sandbox import Sandbox
from isolation.spec import SHARED_CORES, Limits, Mount, SandboxSpec

OnNotice = Callable[[Noticed], None]

START_SECONDS = 900.0
LOAD_SECONDS = 900.0
CONTROL_SECONDS = 120.0
ATTEMPTS = 3
"""A call is asked once and, when the engine dies, at most twice again."""

_INSIDE = Path(__file__).resolve().parent / "inside"
_BASE, _MODELS, _SOCKETS = "/base", "/models", "/run/engine"
_ENVIRONMENT = {
    **SHARED_CORES,
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HOME": "/tmp/huggingface",  # noqa: S108  (the sandbox's own)
    "XDG_CACHE_HOME": "/tmp/cache",  # noqa: S108
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONPATH": "/opt/engine",
}


class _Lost(Exception):
    """The server's end of a connection is gone."""


class TransformersEngine:
    """An :class:`grader.engines.base.Engine`. One event loop, main thread. ``memory`` is in bytes.

    ``rounds`` false batches freely, for tasks whose sessions cannot wait for each other. ``more_memory`` is what a
    person can do where it dies of its bound.
    """

    def __init__(
        self,
        config: EngineConfig,
        model_env: Path,
        base_dir: Path,
        models_dir: Path,
        runtime_dir: Path,
        log_path: Path,
        cgroup: Cgroup | None = None,
        *,
        on_notice: OnNotice | None = None,
        memory: int | None = None,
        rounds: bool = True,
        more_memory: str = "`engine_memory` in the configuration, or a smaller engine.wave",
    ) -> None:
        self._config = config
        self._python = model_env / "bin" / "python"
        self._mounts = (Mount(base_dir, _BASE), Mount(models_dir, _MODELS), Mount(_INSIDE, "/opt/engine/inside"))
        self._runtime_dir = runtime_dir
        self._log_path = log_path
        self._cgroup = cgroup
        self._on_notice = on_notice
        self._memory = memory
        self._rounds = rounds
        self._more_memory = more_memory
        self._open: dict[str, None] = {}
        self._model: ModelRef | None = None
        self._box: Sandbox | None = None
        self._folder: Path | None = None
        self._http: aiohttp.ClientSession | None = None
        self._generation = 0
        self._failure: EngineError | None = None
        self._reviving = asyncio.Lock()
        self._telling = asyncio.Lock()
        self._word = ""

    async def start(self) -> str:
        """Start the server; returns ``transformers/VERSION/DEVICE/DTYPE``. Raises EngineError."""
        async with self._reviving:
            await self._close()
            self._failure = None
            await self._launch()
            self._generation += 1
        return self._word

    @property
    def pid(self) -> int:
        """The init of the server's sandbox, as this side numbers it; 0 when there is none."""
        return self._box.inner_pid if self._box is not None and not self._box.ended else 0

    async def load(self, model: ModelRef) -> None:
        """Serve ``model`` and generate one token with it. Raises EngineError; afterwards the base is served."""
        async with self._reviving:
            self._failure = None
            if not self.pid:
                await self._close()
                await self._launch()
                self._generation += 1
                await self._tell_all()
            self._model = None
            await self._load(model)
            self._model = model

    async def sessions(self, opened: Sequence[str], closed: Sequence[str]) -> None:
        """Tell of sessions that begin and end, in one message. Raises EngineError."""
        generation = self._generation
        try:
            async with self._telling:
                self._open.update(dict.fromkeys(opened))
                for session in closed:
                    self._open.pop(session, None)
                await self._tell(opened, closed)
        except _Lost:
            await self._revive(generation)

    async def complete(self, session: str, call: Completion) -> Completed:
        """One reply; survives two deaths of the server. Raises EngineError, and RequestRefused for this call alone."""
        path, body = request_of(call)
        started = time.monotonic()
        for _ in range(ATTEMPTS):
            generation = await self._settled()
            try:
                answer = await self._post(path, body, None, session)
            except _Lost:
                await self._revive(generation)
                continue
            return completed(answer, "messages" in body, time.monotonic() - started)
        raise EngineError("the engine died three times in one round", where="engine", do=f"See {self._log_path.name}")

    async def sleep(self) -> None:
        """Leave the accelerator; on the CPU an idle server costs nothing but memory."""
        await self._rest("sleep")

    async def wake(self) -> None:
        """Take the accelerator back."""
        await self._rest("wake")

    async def stop(self) -> None:
        """End the server; nothing of it is left."""
        async with self._reviving:
            self._failure = EngineError("the engine was stopped", where="engine")
            self._open.clear()
            self._model = None
            await self._close()

    async def _rest(self, op: str) -> None:
        if self._config.device == "cuda":
            try:
                await self._post("/rest", {"op": op}, CONTROL_SECONDS)
            except _Lost as error:
                raise EngineError(f"the engine died: {await self._death()}", where="engine") from error

    async def _settled(self) -> int:
        """The number of the server to ask, once no restart is under way."""
        async with self._reviving:
            if self._failure is not None:
                raise self._failure
            return self._generation

    async def _revive(self, generation: int) -> None:
        """Replace the dead server ``generation``; whoever comes later finds it done, or failed for the same reason."""
        async with self._reviving:
            if self._failure is not None:
                raise self._failure
            if self._generation != generation:
                return
            try:
                self._notice("the engine died and is started again", await self._death())
                await self._close()
                await self._launch()
                if self._model is not None:
                    await self._load(self._model)
                await self._tell_all()
            except (_Lost, EngineError) as error:
                what = "the engine died again before it was ready" if isinstance(error, _Lost) else str(error)
                self._failure = EngineError(what, where="engine", do=f"See {self._log_path.name}")
                raise self._failure from error
            self._generation += 1

    async def _launch(self) -> None:
        """Start a server in a fresh socket folder and wait for its line. Raises EngineError."""
        self._folder = Path(tempfile.mkdtemp(prefix="engine-", dir=self._runtime_dir))
        try:
            with self._log_path.open("ab") as log:
                self._box = await sandbox.start(self._spec(), stdout=PIPE, stderr=log, cgroup=self._cgroup)
            ready = await self._ready_line(self._box)
        except (OSError, SandboxError, EngineError) as error:
            await self._close()
            raise error if isinstance(error, EngineError) else EngineError(str(error), where="engine") from error
        except BaseException:
            await self._close()
            raise
        connector = aiohttp.UnixConnector(str(self._folder / "s"), limit=0, keepalive_timeout=3600.0)
        timeout = aiohttp.ClientTimeout(total=None)
        self._http = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)
        self._word = (
            f"transformers/{clean_line(ready.transformers)}/{clean_line(ready.device)}/{clean_line(ready.dtype)}"
        )

    async def _ready_line(self, box: Sandbox) -> Ready:
        assert box.stdout is not None
        try:
            async with asyncio.timeout(START_SECONDS):
                line = await box.stdout.readline()
            if not line:
                raise EngineError(f"the engine did not start: {await self._death()}", where="engine")
            return Ready.model_validate_json(line)
        except TimeoutError as error:
            raise EngineError(f"the engine was not ready after {START_SECONDS:.0f} s", where="engine") from error
        except ValueError as error:
            raise EngineError("the engine did not say that it is ready", where="engine") from error

    def _spec(self) -> SandboxSpec:
        config = self._config
        assert self._folder is not None
        argv = [str(self._python), "-P", "-m", "inside.transformers_server", "--base", _BASE, "--models", _MODELS]
        argv += ["--socket", f"{_SOCKETS}/s", "--dtype", config.dtype, "--device", config.device]
        argv += ["--cap", str(config.wave), "--threads", str(config.threads), *([] if self._rounds else ["--free"])]
        sockets = Mount(self._folder, _SOCKETS, writable=True)
        return SandboxSpec(
            "engine",
            tuple(argv),
            mounts=(*bwrap.python_mounts(self._python), *self._mounts, sockets),
            env=_ENVIRONMENT,
            limits=Limits(memory=self._memory, pids=2 * config.wave + 512, open_files=2 * config.wave + 512),
            accelerator=config.device == "cuda",
            hostname="engine",
        )

    async def _close(self) -> None:
        """Kill the server and drop its connections and its folder."""
        http, self._http = self._http, None
        if http is not None:
            await http.close()
        box, self._box = self._box, None
        if box is not None:
            await box.kill()
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    async def _load(self, model: ModelRef) -> None:
        """POST /load. Raises EngineError, also when the server dies of it (it is then started by the next load)."""
        body = {"model": model.id, "format": model.format}
        try:
            await self._post("/load", body, LOAD_SECONDS)
        except RequestRefused as refusal:
            raise EngineError(f"{model.id} cannot be served: {refusal.what}", where="engine") from refusal
        except _Lost as error:
            death = await self._death()
            if death.startswith("memory"):
                self._notice(f"the engine ran out of memory while loading {model.id}", death)
            raise EngineError(f"the engine died while loading {model.id}: {death}", where="engine") from error

    async def _tell_all(self) -> None:
        """Tell a fresh server of every open session."""
        async with self._telling:
            await self._tell(tuple(self._open), ())

    async def _tell(self, opened: Sequence[str], closed: Sequence[str]) -> None:
        body = {"open": [header(s) for s in opened], "close": [header(s) for s in closed]}
        await self._post("/control", body, CONTROL_SECONDS)

    async def _post(self, path: str, body: Mapping[str, Any], seconds: float | None, session: str = "") -> Any:
        """The JSON value of a reply. Raises _Lost, RequestRefused (status 4xx) or EngineError (anything else)."""
        if self._http is None:
            raise _Lost
        timeout = aiohttp.ClientTimeout(total=seconds)
        headers = {"X-Session": header(session)}
        try:
            async with self._http.post(f"http://engine{path}", json=body, headers=headers, timeout=timeout) as reply:
                data = await capped(reply)
                status = reply.status
        except (aiohttp.ClientResponseError, aiohttp.ClientPayloadError) as error:
            if self._box is not None and self.pid and not await self._dying():
                raise EngineError("the engine's reply is not HTTP", where="engine") from error
            raise _Lost from error
        except TimeoutError as error:
            raise EngineError(f"the engine did not answer {path} in {seconds:.0f} s", where="engine") from error
        except (aiohttp.ClientError, RuntimeError, OSError) as error:
            raise _Lost from error
        return value_of(status, data)

    def _notice(self, what: str, detail: str) -> None:
        if self._on_notice is not None:
            self._on_notice(Noticed(level="warning", what=what, where="engine", detail=detail))

    async def _dying(self) -> bool:
        """Whether the server, whose connection just broke, is on its way out."""
        box = self._box
        if box is None:
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                await box.wait()
        return box.ended

    async def _death(self) -> str:
        """Why the server died and the last line of its log, cleaned."""
        box = self._box
        if box is None:
            return "it is not running"
        silent = not await self._dying()
        if silent:
            await box.kill()
        why = _cause(box, await box.wait(), silent, self._more_memory)
        last = _last_line(self._log_path)
        return f"{why}: {last}" if last else why


def _cause(box: Sandbox, code: int, silent: bool, more_memory: str) -> str:
    """Why a server's sandbox ended, in words that say what to do where its memory was the reason."""
    if silent:
        return "it hung up and did not end by itself"
    why = box.death(code) or "it ended"
    if why == "memory":
        bound = (box.spec.limits.memory or 0) / (1 << 30)
        return f"memory (it may hold {bound:.1f} GiB; {more_memory})"
    if why == "signal 9" and box.cgroup is None:
        return "signal 9 (for want of memory, most likely: without control groups the kernel does not say)"
    return why


def _last_line(path: Path) -> str:
    """The last line of a log that says something, cleaned; at most its last 8 KiB are read."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - 8192))
            lines = [clean_line(line, 300) for line in stream.read().decode("utf-8", "replace").splitlines()]
    except OSError:
        return ""
    return next((line for line in reversed(lines) if line), "")
