"""The lease is fair and journaled; the machine lock holds between processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from runner.record.events import LeaseChanged, Payload
from runner.research.lease import Holder, Lease, LeaseError, machine_lock


class Kept:
    def __init__(self) -> None:
        self.events: list[LeaseChanged] = []

    def append(self, payload: Payload, *, sync: bool = False) -> None:
        assert isinstance(payload, LeaseChanged)
        self.events.append(payload)


async def test_holders_come_in_order_and_every_change_is_journaled() -> None:
    journal, held = Kept(), []
    lease = Lease(journal, held.append)
    order: list[str] = []

    async def use(holder: Holder, job: str) -> None:
        async with lease.hold(holder, job):
            assert lease.holder == holder
            order.append(job)
            await asyncio.sleep(0)

    await asyncio.gather(use("training", "j1"), use("grading", "j2"), use("sampling", "j3"))
    assert order == ["j1", "j2", "j3"] and len(held) == 3
    assert [(event.holder, event.job) for event in journal.events] == [
        ("training", "j1"), (None, None), ("grading", "j2"), (None, None), ("sampling", "j3"), (None, None),
    ]  # fmt: skip


async def test_a_holder_that_fails_gives_the_lease_back() -> None:
    lease = Lease(Kept())
    with pytest.raises(RuntimeError):
        async with lease.hold("training"):
            raise RuntimeError
    async with lease.hold("grading"):
        assert lease.holder == "grading"


OTHER = """
import asyncio, sys
from pathlib import Path
from runner.research.lease import machine_lock
async def main():
    await machine_lock("cpu", wait=False, on_wait=print, owner="run \\x1b[31mother", folder=Path(sys.argv[1]))
    print("held", flush=True)
    sys.stdin.read()
asyncio.run(main())
"""


async def test_a_second_run_waits_for_the_machine_or_fails_with_one_line(tmp_path: Path) -> None:
    other = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", OTHER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdin is not None and other.stdout is not None
    assert other.stdout.readline() == "held\n"
    with pytest.raises(LeaseError, match="cpu is in use by run other"):
        await machine_lock("cpu", wait=False, on_wait=print, owner="me", folder=tmp_path)
    told: list[str] = []
    asked = asyncio.Event()

    def tell(who: str) -> None:
        told.append(who)
        asked.set()

    waiting = asyncio.create_task(machine_lock("cpu", wait=True, on_wait=tell, owner="me", folder=tmp_path))
    await asyncio.wait_for(asked.wait(), 10)
    assert told == ["run other"] and not waiting.done()
    free = await machine_lock("gpu0", wait=False, on_wait=print, owner="me", folder=tmp_path)
    other.stdin.close()
    other.wait()
    lock = await asyncio.wait_for(waiting, 10)
    assert lock.path.read_text() == "me" and told == ["run other"]
    assert lock.path.stat().st_mode & 0o666 == 0o666
    lock.release()
    free.release()


async def test_a_planted_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / "vibetraining-bench-cpu.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LeaseError, match="machine lock"):
        await machine_lock("cpu", wait=False, on_wait=print, owner="me", folder=tmp_path)
    with pytest.raises(LeaseError, match="not a device"):
        await machine_lock("../x", wait=False, on_wait=print, owner="me", folder=tmp_path)
    assert not (tmp_path / "elsewhere").exists()
