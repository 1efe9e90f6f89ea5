"""The sandboxes of the research side: what the agent, a trainer, the differ and the disk meter see. Plans only."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from isolation.bwrap import python_mounts
from isolation.sandbox import Sandbox, start
from isolation.spec import SHARED_CORES, Limits, Mount, SandboxSpec
from runner.research.agents.base import AGENTS_DIR, AgentLaunch
from runner.research.lab import Lab
from runner.research.memory import GIB
from tasks.spec import COMPONENTS

CONTROL_DIR = "/run/vibe-control"
VIBE_DIR = "/opt/vibe"
_INSIDE = Path(__file__).parent / "inside"
_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONDONTWRITEBYTECODE": "1",
    "LANG": "C.UTF-8",
}


def research_spec(lab: Lab, launch: AgentLaunch, *, sources: Path, control: Path, resumed: bool) -> SandboxSpec:
    """The agent's sandbox, as in architecture §4. ``control`` holds the desk's socket, ``launch`` the agent's files."""
    python = lab.python
    env = {
        **launch.env,
        **_OFFLINE,
        "PATH": f"{VIBE_DIR}:{python.parent}:{AGENTS_DIR}:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/lab/home",
        "VIBE_CONTROL": f"{CONTROL_DIR}/desk.sock",
        **({"VIBE_RESUMED": "1"} if resumed else {}),
    }
    return SandboxSpec(
        profile="research",
        argv=launch.argv,
        mounts=(
            *python_mounts(python),
            Mount(lab.rundir.models, "/models"),
            Mount(Path(lab.config.base_dir).resolve(), "/models/m00/weights"),
            Mount(lab.rundir.feedback, "/feedback"),
            Mount(sources, "/sources"),
            Mount(vibe_folder(lab), VIBE_DIR),
            Mount(control, CONTROL_DIR),
            *launch.mounts,
            *lab_mounts(lab),
        ),
        env=env,
        cwd="/lab",
        limits=Limits(
            memory=lab.memory.research,
            pids=2048,
            open_files=4096,
            file_bytes=lab.config.intake.data,
            tmp_bytes=min(4 * GIB, lab.memory.research // 2),
            idle=lab.memory.idle,
            oom_score_adj=1000,
        ),
        hostname="lab",
    )


def lab_mounts(lab: Lab) -> tuple[Mount, ...]:
    """/lab: the brief, and one leaf per folder, writable where the scope says so. /lab itself stays read-only."""
    workspace = lab.rundir.workspace
    parts = [Mount(workspace / part, f"/lab/{part}", writable=part in lab.config.editable) for part in COMPONENTS]
    own = [Mount(workspace / name, f"/lab/{name}", writable=True) for name in ("notes", "home")]
    return (Mount(lab.runtime / "brief" / "README.md", "/lab/README.md"), *sorted(parts, key=_writable), *own)


def _writable(mount: Mount) -> bool:
    return mount.writable


def vibe_folder(lab: Lab) -> Path:
    """The folder mounted at /opt/vibe: the client, and a launcher that names the interpreter (a shebang line could
    not hold every path)."""
    folder = lab.runtime / "vibe"
    folder.mkdir(mode=0o755, exist_ok=True)
    (folder / "vibe.py").write_bytes((_INSIDE / "vibe.py").read_bytes())
    launcher = folder / "vibe"
    launcher.write_text(f'#!/bin/sh\nexec {shlex.quote(str(lab.python))} -I -S {VIBE_DIR}/vibe.py "$@"\n')
    launcher.chmod(0o755)
    return folder


def training_spec(
    lab: Lab, *, data: Path, trainer: Path, parents: Mapping[str, Path], out: Path, metrics_fd: int
) -> SandboxSpec:
    """A trainer's sandbox: the trainer contract of architecture §4. No sockets; /out and /tmp are all it can write.

    ``parents``: the files of each parent model (an adapter or whole weights) by its id; the base alone is no parent.
    """
    base = Mount(Path(lab.config.base_dir).resolve(), "/in/base")
    made = [Mount(folder, f"/in/{name}") for name, folder in parents.items()]
    argv = [str(lab.python), "/in/trainer/train.py", "--data", "/in/data", "--base", "/in/base"]
    for mount in made:
        argv += ["--parent", mount.target]
    cores = str(os.cpu_count() or 1)
    return SandboxSpec(
        profile="training",
        argv=(*argv, "--out", "/out"),
        mounts=(
            *python_mounts(lab.python),
            Mount(data, "/in/data"),
            Mount(trainer, "/in/trainer"),
            base,
            *made,
            Mount(out, "/out", writable=True),
        ),
        env={
            **_OFFLINE,
            "PATH": f"{lab.python.parent}:/usr/bin:/bin",
            "HOME": "/tmp",  # noqa: S108  the sandbox's own
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": cores,
            **SHARED_CORES,
            "VIBE_METRICS": str(metrics_fd),
            "VIBE_REQUIRE_ACCELERATOR": "1" if lab.accelerator else "0",
            "VIBE_SEED": str(lab.config.seed),
        },
        limits=Limits(
            memory=lab.memory.training,
            pids=1024,
            open_files=4096,
            file_bytes=64 * GIB,
            tmp_bytes=min(8 * GIB, lab.memory.training // 2),
            shm_bytes=min(2 * GIB, lab.memory.training // 4),
        ),
        accelerator=lab.accelerator,
        hostname="training",
        pass_fds=(metrics_fd,),
    )


def differ_spec(lab: Lab) -> SandboxSpec:
    """The differ's sandbox: it reads hostile text, so it holds nothing but the store's objects."""
    return SandboxSpec(
        profile="intake",
        argv=(str(lab.python), "-I", "-S", "/in/differ.py"),
        mounts=(
            *python_mounts(lab.python),
            Mount(_INSIDE / "differ.py", "/in/differ.py"),
            Mount(lab.rundir.store / "objects", "/in/objects"),
        ),
        limits=Limits(memory=2 * GIB, cpu_seconds=60, pids=16),
        hostname="differ",
    )


def tracer_spec(lab: Lab) -> SandboxSpec:
    """The sandbox that looks for a teacher's replies in data: it holds the store's objects and the replies."""
    return SandboxSpec(
        profile="intake",
        argv=(str(lab.python), "-I", "-S", "/in/teacher_rows.py"),
        mounts=(
            *python_mounts(lab.python),
            Mount(_INSIDE / "teacher_rows.py", "/in/teacher_rows.py"),
            Mount(lab.rundir.store / "objects", "/in/objects"),
            Mount(lab.rundir.feedback / "samples", "/in/samples"),
        ),
        limits=Limits(memory=2 * GIB, cpu_seconds=300, pids=16),
        hostname="tracer",
    )


def meter_spec(folders: Mapping[str, Path]) -> SandboxSpec:
    """``du`` over ``folders`` (name → host path): the host itself never walks what an agent wrote."""
    return SandboxSpec(
        profile="intake",
        argv=("/usr/bin/du", "--block-size=1", "--summarize", "--total", *(f"/in/{name}" for name in folders)),
        mounts=tuple(Mount(path, f"/in/{name}") for name, path in folders.items()),
        limits=Limits(memory=GIB, cpu_seconds=60, pids=16, idle=True),
        hostname="meter",
    )


def sweeper_spec(folder: Path) -> SandboxSpec:
    """Empties ``folder`` from inside a sandbox: hostile trees can be too deep, or closed, for a plain removal."""
    return SandboxSpec(
        profile="intake",
        argv=("/bin/sh", "-c", "chmod -R u+rwX /out; exec find /out -mindepth 1 -delete"),
        mounts=(Mount(folder, "/out", writable=True),),
        limits=Limits(memory=GIB, cpu_seconds=300, pids=16),
        hostname="sweeper",
    )


@asynccontextmanager
async def box(
    spec: SandboxSpec, *, stdin: bool = False, stderr: int = asyncio.subprocess.DEVNULL
) -> AsyncIterator[Sandbox]:
    """A running sandbox, dead when the block ends. Its stdout is a pipe."""
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    running = await start(spec, stdin=pipe if stdin else null, stdout=pipe, stderr=stderr)
    try:
        yield running
    finally:
        await running.kill()


async def capture(spec: SandboxSpec, stdin: bytes, *, limit: int, timeout_s: float) -> tuple[int, bytes]:
    """Run a sandbox to its end: its exit code and at most ``limit`` bytes of its stdout.

    More output, or more time, ends it; the exit code is then not 0.
    """
    output = bytearray()
    try:
        async with box(spec, stdin=True) as running, asyncio.timeout(timeout_s):
            assert running.stdin is not None and running.stdout is not None
            await feed(running.stdin, stdin)
            while chunk := await running.stdout.read(65536):
                output += chunk
                if len(output) > limit:
                    return 1, bytes(output[:limit])
            return await running.wait(), bytes(output)
    except TimeoutError:
        return 1, bytes(output)


async def feed(stdin: asyncio.StreamWriter, content: bytes) -> None:
    """Write ``content`` to a sandbox and close; one that does not read loses it."""
    try:
        stdin.write(content)
        await stdin.drain()
        stdin.close()
    except (BrokenPipeError, ConnectionResetError):
        return
