"""The agent's workspace: folders, the brief, snapshots of it (through intake), and the watch over its size."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from string import Template

from isolation import intake
from isolation.files import fsync_dir, fsync_tree, write_atomic
from isolation.intake import Manifest
from isolation.problem import BenchError
from runner.config import RunConfig
from runner.record.events import Integrity, Warned
from runner.research.lab import Lab
from runner.research.sandbox import capture, meter_spec, sweeper_spec
from tasks.spec import COMPONENTS, LETTERS, Component

_MEASURE_S = 10.0
_FREE_S = 0.5
_MIN_INODES = 4096
_SAME = "the same validation problems with draws of its own"


class WorkspaceError(BenchError):
    """The workspace cannot be laid out, or its folders cannot be used."""


def prepare(lab: Lab, lay_out: Callable[[Path, Path], None]) -> None:
    """Make the run's folders and let the task write D0, T0 and H0 into an empty workspace, and the sources beside it:
    ``lay_out(workspace, sources)`` fills two empty folders. Not on a resume, which finds them whole or not at all.

    What a killed runner was copying into the store, or out of it, goes: nothing else would ever remove it.
    """
    workspace = lab.rundir.workspace
    for left in (*lab.rundir.store.glob("staging-*"), *lab.rundir.snapshots.glob(".*")):
        shutil.rmtree(left, ignore_errors=True)
    (lab.rundir.model("m00") / "weights").mkdir(parents=True, exist_ok=True)
    lab.scratch.mkdir(exist_ok=True)
    lab.runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not any(workspace.iterdir()):
        building = workspace.with_name(".layout")
        shutil.rmtree(building, ignore_errors=True)
        made, sources = building / workspace.name, building / lab.rundir.sources.name
        for folder in (made, sources):
            folder.mkdir(parents=True)
        lay_out(made, sources)
        fsync_tree(building)
        shutil.rmtree(lab.rundir.sources, ignore_errors=True)
        sources.rename(lab.rundir.sources)
        made.replace(workspace)  # last: a workspace that is not empty has its sources
        fsync_dir(workspace.parent)
        building.rmdir()
    for name in (*COMPONENTS, "notes", "home"):
        (workspace / name).mkdir(mode=0o755, exist_ok=True)


async def snapshot(lab: Lab, component: Component) -> Manifest:
    """The component as it is now, as a snapshot. One out of scope is P0's, whatever lies in the workspace.

    Raises IntakeError when it holds what a snapshot may not hold.
    """
    if component not in lab.config.editable and component in lab.initial:
        return intake.load_manifest(lab.rundir.store, lab.initial[component])
    sizes = lab.config.intake
    limit = {"data": sizes.data, "trainer": sizes.trainer, "harness": sizes.harness}[component]
    source = lab.rundir.workspace / component
    return await intake.snapshot(source, lab.rundir.store, max_bytes=limit, max_files=sizes.files)


async def snapshot_initial(lab: Lab) -> None:
    """Snapshot P0's components, before any agent has run, into ``lab.initial``."""
    for component in COMPONENTS:
        lab.initial[component] = (await snapshot(lab, component)).id


async def materialised(lab: Lab, snapshot_id: str) -> Path:
    """The tree of a snapshot, laid out once under snapshots/, for mounting read-only.

    One from before this process is compared with its manifest first, and made anew where it differs: a machine that
    lost its power leaves names without their contents, and the hidden test must not grade those.
    """
    folder, store = lab.rundir.snapshot(snapshot_id), lab.rundir.store
    if snapshot_id not in lab.laid_out:
        if folder.is_dir() and not await asyncio.to_thread(intake.holds, store, snapshot_id, folder):
            lab.journal.append(Warned(what="a snapshot's tree was damaged and is made anew", where=snapshot_id))
            await asyncio.to_thread(shutil.rmtree, folder)
        if not folder.is_dir():
            await asyncio.to_thread(intake.materialise, store, snapshot_id, folder)
        lab.laid_out.add(snapshot_id)
    return folder


async def sweep(folder: Path) -> None:
    """Remove a folder that untrusted code wrote. What cannot be removed stays in the run folder."""
    await capture(sweeper_spec(folder), b"", limit=1 << 20, timeout_s=300)
    with contextlib.suppress(OSError):
        os.rmdir(folder)  # noqa: PTH106  one call of ours on an empty folder


def write_brief(lab: Lab, task_brief: str, *, seconds_per_validation: float | None) -> str:
    """Write /lab/README.md and return it: the common rules around the task's part, with this run's scope and budget."""
    config = lab.config
    text = _template().substitute(
        task=task_brief.strip(),
        scope=" + ".join(config.scope),
        budget=duration(lab.budget.left()),
        deadline=time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(lab.budget.deadline)),
        policy=_policy(config),
        protocol=protocol_note(lab),
        teacher=_teacher_line(config),
        counted=_SAME if lab.official_is_selection else "hidden problems",
        seconds_note=f"One validation took {duration(seconds_per_validation)} here." if seconds_per_validation else "",
        **{part: "edit" if part in config.scope else "read" for part in COMPONENTS} | _recipe_cell(config),
    )
    folder = lab.runtime / "brief"
    folder.mkdir(mode=0o755, exist_ok=True)
    write_atomic(folder / "README.md", text.encode())
    return text


def _template() -> Template:
    return Template((Path(__file__).parent / "brief.md").read_text())


def _recipe_cell(config: RunConfig) -> dict[str, str]:
    fixed = "trainer" not in config.scope and bool(config.recipe_fields)
    return {"trainer": "read; of `recipe.toml` set the fields below"} if fixed else {}


def _teacher_line(config: RunConfig) -> str:
    if config.teacher_model is None:
        return ""
    return "\n    vibe sample --teacher prompts.jsonl             let the teacher model answer them: it costs money"


def protocol_note(lab: Lab) -> str:
    """What the run's protocol permits, for the brief; empty under the default one."""
    config = lab.config
    if config.protocol != "rsibench-data":
        return ""
    money = f" and {config.budget.money:g} of money" if config.budget.money is not None else ""
    same = " Here the official problems are the selection problems themselves." if lab.official_is_selection else ""
    return _note().substitute(
        fields=", ".join(f"`{name}`" for name in config.recipe_fields) or "none",
        money=money,
        same=same,
        teacher=f"There is a teacher: `{config.teacher_model}`." if config.teacher_model else "There is no teacher.",
    )


def _note() -> Template:
    return Template((Path(__file__).parent / "rsibench.md").read_text())


def _policy(config: RunConfig) -> str:
    if config.selection_policy == "none":
        return "Without a selection there is no score."
    return "Without a selection the best validated candidate is taken."


def duration(seconds: float) -> str:
    """``1 h 05 min``, ``12 min``, ``90 s``: how the agent is told a time."""
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min" if whole >= 120 else f"{whole} s"


def letters(components: tuple[Component, ...]) -> str:
    """``D+H`` for the components of a design."""
    return "+".join(LETTERS[component] for component in components)


class DiskWatch:
    """Ends a writer before it fills the disk: free space of the run's filesystem twice a second, its folders by ``du``
    in a sandbox every ten seconds."""

    def __init__(self, lab: Lab, folders: Mapping[str, Path], cap: int) -> None:
        self._lab = lab
        self._folders = folders
        self._cap = cap

    async def trouble(self) -> str:
        """Wait until something is wrong, journal it as an integrity event and return it as one line."""
        loop = asyncio.get_running_loop()
        next_measure = loop.time() + _MEASURE_S
        while True:
            what = self.short_of_space()
            if not what and loop.time() >= next_measure:
                what = await self.too_large()
                next_measure = loop.time() + _MEASURE_S
            if what:
                names = ", ".join(self._folders)
                self._lab.journal.append(Integrity(what="disk filled", where=names, detail=what))
                return what
            await asyncio.sleep(_FREE_S)

    def short_of_space(self) -> str:
        """One line when the filesystem has less free than the run's reserve, else nothing."""
        free = os.statvfs(self._lab.rundir.path)
        available = free.f_bavail * free.f_frsize
        if available < self._lab.config.disk_reserve:
            return f"{available >> 20} MiB free, less than the reserve of {self._lab.config.disk_reserve >> 20} MiB"
        if free.f_files and free.f_favail < _MIN_INODES:
            return f"{free.f_favail} files can still be made, fewer than {_MIN_INODES}"
        return ""

    async def too_large(self) -> str:
        """One line when the folders hold more than the cap, or so many files that they cannot be measured."""
        code, output = await capture(meter_spec(self._folders), b"", limit=1 << 20, timeout_s=120)
        last = output.splitlines()[-1:] or [b""]
        count = last[0].split(b"\t")[0]
        if not count.isdigit():
            return f"the folders could not be measured (exit {code})"
        size = int(count)
        return f"{size >> 20} MiB, more than {self._cap >> 20} MiB" if size > self._cap else ""
