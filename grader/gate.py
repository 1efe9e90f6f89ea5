"""The checkpoint gate, host side: a sandbox reads what a trainer left and writes it anew; the result moves into place.

The host opens no file of a trainer. What it moves was written by ``inside/gate_check.py``: a safetensors file with our
header, and configuration that is the base's or rebuilt from a few checked facts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import stat
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from grader.errors import GraderError
from grader.protocol import Gate, GateResult, ModelRef
from grader.strict import LineReader, StrictError
from isolation import bwrap, sandbox
from isolation.clean import clean_line
from isolation.files import fsync_dir
from isolation.limits import Cgroup
from isolation.spec import Limits, Mount, SandboxSpec

MEMORY = 2 << 30
_CPU_SECONDS = 60
_SLOWEST = 20 << 20  # bytes of base, parents and checkpoint per second of CPU
_RULES = Path(__file__).resolve().parent / "inside"
_MODEL = re.compile(r"m[0-9]{2,9}")
_ANSWER = 1 << 16
_FILES = {
    "adapter": frozenset(("adapter_model.safetensors", "adapter_config.json")),
    "full": frozenset(
        (
            "model.safetensors", "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
            "special_tokens_map.json", "chat_template.jinja", "vocab.json", "merges.txt",
        )
    ),
}  # fmt: skip
FOLDERS = {"adapter": "adapter", "full": "weights"}
"""Where an accepted checkpoint lies below its model's folder, by format."""


async def check(
    gate: Gate, *, base_dir: Path, models_dir: Path, python: Path, cgroup: Cgroup | None = None
) -> GateResult:
    """Checks ``gate.out_dir`` and moves what is accepted to ``gate.model_dir``/adapter or /weights, files 0644.

    ``python`` is the model environment's (it needs numpy). A bad checkpoint is a result with ``accepted`` false and
    one line in ``refused``; GraderError and SandboxError mean that our own side failed and nothing can be said.
    ``GateResult.sha256`` is that of the lines ``<sha256>  <name>`` of the weights and an adapter's configuration.
    """
    model_dir = Path(gate.model_dir)
    staging = Path(tempfile.mkdtemp(prefix=".gate-", dir=model_dir))
    try:
        out = staging / "out"
        out.mkdir()
        answer = await _ask(gate, out, base_dir, models_dir, python, cgroup)
        if not answer.get("accepted"):
            return GateResult(accepted=False, refused=_line(answer.get("refused", "")))
        return _move(answer, out, model_dir)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


async def _ask(
    gate: Gate, out: Path, base_dir: Path, models_dir: Path, python: Path, cgroup: Cgroup | None
) -> dict[str, Any]:
    """What the sandbox says. A checkpoint on which it runs out of memory or time, or is killed, is refused."""
    parents = [(ref, _place(ref, models_dir, base_dir)) for ref in gate.parents]
    # A trainer's own files are capped by what the base holds, so their sizes need not be asked for here.
    seconds = _CPU_SECONDS + (4 * _bytes_of(base_dir) + sum(_bytes_of(path) for _, path in parents)) // _SLOWEST
    spec = _spec(gate, parents, base_dir, out, python, seconds)
    box = await sandbox.start(spec, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, cgroup=cgroup)
    try:
        assert box.stdout is not None
        async with asyncio.timeout(4 * seconds):
            line = await LineReader(box.stdout, _ANSWER).line()
        async with asyncio.timeout(30):
            code = await box.wait()
    except (TimeoutError, StrictError):
        return {"accepted": False, "refused": f"the checkpoint could not be checked in {4 * seconds} s"}
    finally:
        await box.kill()
    if line is None or code != 0:
        why = box.death(code) or "no answer"
        if why.startswith(("exit", "no answer")):  # its own failures have words: this never got as far as the files
            raise GraderError(f"the gate did not run ({why})", where=str(python), do="Run `runner prepare`")
        return {"accepted": False, "refused": f"the checkpoint could not be checked (the gate ended: {why})"}
    return _answer(line)


def _answer(line: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(line)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise GraderError("the gate's answer was not understood", where="gate", do="Run it again")
    if "error" in answer:
        raise GraderError(_line(answer["error"]), where="gate", do="Check the disk and the base model")
    return answer


def _place(ref: ModelRef, models_dir: Path, base_dir: Path) -> Path:
    if not _MODEL.fullmatch(ref.id):
        raise GraderError(f"no model is called {clean_line(ref.id, 40)}", where="gate")
    return base_dir if ref.format == "base" else models_dir / ref.id / FOLDERS[ref.format]


def _bytes_of(folder: Path) -> int:
    """The bytes of the files in a folder of ours."""
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def _spec(
    gate: Gate, parents: list[tuple[ModelRef, Path]], base_dir: Path, out: Path, python: Path, seconds: int
) -> SandboxSpec:
    given = [(ref, path) for ref, path in parents if ref.format != "base"]
    request = {
        "in": "/in",
        "base": "/base",
        "out": "/out",
        "parents": [{"dir": f"/parents/{n}", "format": ref.format} for n, (ref, _) in enumerate(given)],
    }
    rules = tuple(Mount(_RULES / name, f"/opt/gate/{name}") for name in ("gate_check.py", "gate_files.py"))
    return SandboxSpec(
        profile="gate",
        argv=(str(python), "/opt/gate/gate_check.py", json.dumps(request)),
        mounts=(
            *bwrap.python_mounts(python),
            *rules,
            Mount(Path(gate.out_dir), "/in"),
            Mount(base_dir, "/base"),
            *(Mount(path, f"/parents/{n}") for n, (_, path) in enumerate(given)),
            Mount(out, "/out", writable=True),
        ),
        env={"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"},
        limits=Limits(memory=MEMORY, pids=64, cpu_seconds=seconds, tmp_bytes=16 << 20),
        hostname="gate",
    )


def _move(answer: dict[str, Any], out: Path, model_dir: Path) -> GateResult:
    """The result, once the files lie in their place: all of them or none."""
    kind = str(answer.get("format"))
    allowed = _FILES.get(kind, frozenset())
    size = 0
    for entry in sorted(os.scandir(out), key=lambda one: one.name):
        found = entry.stat(follow_symlinks=False)
        if entry.name not in allowed or not stat.S_ISREG(found.st_mode):
            raise GraderError("the gate left a file that it may not write", where="gate", do="Run it again")
        size += found.st_size
        with contextlib.suppress(FileNotFoundError):
            Path(entry.path).chmod(0o644)
    try:
        result = GateResult.model_validate({**answer, "bytes": size})
    except ValidationError:
        raise GraderError("the gate's answer was not understood", where="gate", do="Run it again") from None
    target = model_dir / FOLDERS[kind]
    out.chmod(0o755)
    fsync_dir(out)
    try:
        out.rename(target)
    except OSError as error:
        raise GraderError(
            f"the model is there already ({error.strerror})", where=str(target), do="Give it a new id"
        ) from None
    fsync_dir(model_dir)
    return result


def _line(text: object) -> str:
    return clean_line(str(text), 300)
