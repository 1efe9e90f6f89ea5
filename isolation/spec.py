"""What a sandbox is, before it runs: mounts, limits, program, environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

Profile = Literal["research", "intake", "gate", "training", "vault", "engine", "harness"]

SHARED_CORES: Mapping[str, str] = MappingProxyType({"GOMP_SPINCOUNT": "5000"})
"""Environment for torch on cores that other programs use too: a thread that waits at a barrier spins for microseconds,
then sleeps. With the default it spins on a core that the thread it waits for needs (docs/design/0005)."""

_NO_ENV: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Mount:
    """A bind of the host path ``source`` at ``target``; read-only unless ``writable`` (then it must be a leaf)."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds; ``None`` leaves a limit to the machine."""

    memory: int | None = None
    pids: int = 256
    cpu_seconds: int | None = None
    file_bytes: int | None = None
    open_files: int = 1024
    tmp_bytes: int = 256 << 20
    shm_bytes: int = 64 << 20
    idle: bool = False
    oom_score_adj: int = 0


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """Everything that decides what one sandbox can see and use.

    ``argv`` runs inside, under the limits, as uid 1000 without capabilities, network or host environment.
    ``mounts`` come on top of the fixed allow-list of the argument builder (/usr, loader files, generated /etc files).
    ``pass_fds`` are inherited under the same numbers.
    """

    profile: Profile
    argv: tuple[str, ...]
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=lambda: _NO_ENV)
    cwd: str = "/tmp"  # noqa: S108  (the sandbox's own)
    limits: Limits = Limits()
    accelerator: bool = False
    hostname: str = "box"
    pass_fds: tuple[int, ...] = ()
