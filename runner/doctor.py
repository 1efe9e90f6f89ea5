"""`runner doctor`: what holds on this machine, tried and not guessed; one line each, with the command that mends it.

A *missing* wall refuses runs (exit 3) unless it is named by ``--allow-weak``; a *weak* one is recorded in every run;
a *note* is no wall: it says what this machine has not got.
"""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from isolation import probe
from isolation.probe import Finding
from runner import places
from runner.config import ConfigError, RunConfig
from runner.research.memory import ENGINE_LEAST, GIB, machine_memory, plan_memory

Group = Literal["walls", "machine", "prepared"]
State = Literal["ok", "weak", "missing", "note"]
MISSING_WALL = 3

_LEAST_MEMORY = 8 * GIB
_ROOM = 5 * GIB
_YEAR = 365 * 86_400
_GPU_NODES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")
_BENCHMARKS = ("lm_eval", "lighteval", "opencompass", "bigcode_eval", "evals", "helm", "evalplus", "inspect_evals")
_TITLES: dict[Group, str] = {"walls": "Walls", "machine": "Machine", "prepared": "Prepared"}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: what was seen, why it matters, and what to type."""

    group: Group
    name: str
    state: State
    what: str
    why: str = ""
    do: str = ""


async def examine(runs: Path) -> list[Check]:
    """Every check. ``runs`` is where runs would lie. Never raises for what is missing: the check says it."""
    walls = await probe.probe()
    if not any(finding.name in ("bwrap", "seccomp", "namespaces", "user") for finding in probe.missing(walls)):
        walls += await probe.probe_profiles()
    return [*map(_wall, walls), *_machine(runs), *_prepared()]


def exit_code(checks: Iterable[Check]) -> int:
    """3 where a wall is missing, else 0: weak walls and notes do not stop a run."""
    return MISSING_WALL if any(check.state == "missing" for check in checks) else 0


def text(checks: Iterable[Check]) -> str:
    """The checks as a person reads them, and what they come to."""
    lines: list[str] = []
    rows = list(checks)
    for group, title in _TITLES.items():
        lines += ["", title, *(_line(check) for check in rows if check.group == group)]
    return "\n".join([*lines[1:], "", _verdict(rows)])


def _line(check: Check) -> str:
    said = "; ".join(part.rstrip(".") for part in (check.what, check.why) if part)
    return f"  {check.state:<8} {check.name:<14} {said}" + (f"\n{'':26}Do: {check.do}" if check.do else "")


def _verdict(checks: list[Check]) -> str:
    missing = [check.name for check in checks if check.state == "missing"]
    weak = [check.name for check in checks if check.state == "weak"]
    if missing:
        return f"Runs are refused here: {', '.join(missing)} missing."
    recorded = f" Weak, and recorded in every run: {', '.join(weak)}." if weak else ""
    return f"Every wall stands: runs can start.{recorded}"


def _wall(finding: Finding) -> Check:
    do = finding.do if finding.state != "ok" else ""
    if finding.state == "missing" and finding.name not in ("user", "bwrap", "namespaces"):
        do = f"{do}. Or `--allow-weak {finding.name}` runs without it; card, report and journal carry that for ever"
    return Check("walls", finding.name, finding.state, finding.what, finding.why, do)


def _machine(runs: Path) -> Iterator[Check]:
    yield _memory(machine_memory())
    yield _disk(runs)
    yield _clock(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic())
    yield _gpu([node for node in _GPU_NODES if Path(node).exists()])
    yield _subuids()


def _memory(total: int) -> Check:
    plan = plan_memory(total, ENGINE_LEAST)
    what = (
        f"{total / GIB:.1f} GiB: research {plan.research / GIB:.1f}, training {plan.training / GIB:.1f}, "
        f"engine {ENGINE_LEAST / GIB:.0f} or more, by the model"
    )
    if total < _LEAST_MEMORY:
        why = "a training may be killed for want of memory"
        return Check("machine", "memory", "note", what, why, "Use a smaller model, or a machine with 8 GiB")
    return Check("machine", "memory", "ok", what)


def _disk(runs: Path) -> Check:
    place = next(folder for folder in (runs, *runs.parents) if folder.is_dir())
    info = os.statvfs(place)
    free, reserve = info.f_bavail * info.f_frsize, int(RunConfig.model_fields["disk_reserve"].default)
    what = f"{free / GIB:.1f} GiB free for runs at {place}, {reserve / GIB:.0f} GiB of it in reserve"
    if not os.access(place, os.W_OK):
        return Check("machine", "disk", "note", f"{place} cannot be written", "runs lie there", "Give another --runs")
    if free < reserve + _ROOM:
        why = "a run ends when the reserve is reached"
        return Check("machine", "disk", "note", what, why, "Free some space, or give another --runs")
    return Check("machine", "disk", "ok", what)


def _clock(now: float, suspended: float) -> Check:
    if now < 54 * _YEAR:
        why = "journals carry it; budgets use another clock"
        return Check("machine", "clock", "note", "the date is wrong", why, "`timedatectl set-ntp true`")
    slept = f"; suspended {suspended:.0f} s since the start" if suspended >= 1 else ""
    return Check("machine", "clock", "ok", f"a suspend of the machine would be seen{slept}")


def _gpu(nodes: list[str]) -> Check:
    if not nodes:
        return Check("machine", "gpu", "note", "no GPU: the engine and trainers run on the CPU")
    why = "whether CUDA works inside a sandbox is seen with the model environment"
    return Check("machine", "gpu", "note", f"{', '.join(nodes)} there", why, "Type: scripts/gpu_check")


def _subuids() -> Check:
    user = pwd.getpwuid(os.getuid()).pw_name if _has_name() else str(os.getuid())
    ranges = [line for line in _lines(Path("/etc/subuid")) if line.split(":")[0] in (user, str(os.getuid()))]
    if ranges:
        return Check("machine", "subuid", "ok", f"{len(ranges)} range(s) for {user}")
    return Check("machine", "subuid", "note", f"no range for {user}", "no task of this version needs one")


def _has_name() -> bool:
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _prepared() -> Iterator[Check]:
    try:
        folder = places.model_env()
    except ConfigError as error:
        yield Check(
            "prepared", "model-env", "note", error.what, "engine and trainers run in it", "Type: runner prepare"
        )
    else:
        yield Check("prepared", "model-env", "ok", str(folder))
        yield _benchmarks(folder)
    models = sorted(path.parent for path in (places.home() / "models").glob(f"**/{places.MANIFEST}"))
    names = ["tiny", *(str(path.relative_to(places.home() / "models")) for path in models)]
    yield Check("prepared", "models", "ok", ", ".join(names))
    sets = sorted(path.parent for path in places.datasets_dir().glob(f"*/*/{places.MANIFEST}"))
    shown = ["aime/mini", *(f"{path.parent.name}/{path.name}" for path in sets)]
    yield Check("prepared", "problems", "ok", ", ".join(shown))


def _benchmarks(environment: Path) -> Check:
    """Packages that carry benchmark problems have no place in an environment that agents can read."""
    sites = environment.glob("lib/python*/site-packages")
    found = sorted(name for site in sites for name in _BENCHMARKS if (site / name).is_dir())
    if found:
        why = "agents read this environment, and answers may be in it"
        do = f"`{environment}/bin/python -m pip uninstall {' '.join(found)}`"
        return Check("prepared", "benchmarks", "note", f"the model environment holds {', '.join(found)}", why, do)
    return Check("prepared", "benchmarks", "ok", "no benchmark package in the model environment")
