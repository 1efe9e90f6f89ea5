"""The vault behind its walls: it serves, it survives, and what it cannot survive is one error."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from grader.errors import GraderError
from grader.protocol import EngineConfig, GraderSetup
from grader.vault_client import LARGEST_ANSWER, Vault
from isolation.sandbox import use_pidfd_children
from tasks.spec import Decoding, ProblemLimits

pytestmark = pytest.mark.skipif(os.geteuid() == 0, reason="sandboxes are not started by root: use isolation.privilege")


def _setup(folder: Path, problems: str = "mini", **files: str | None) -> GraderSetup:
    return GraderSetup(
        id="1", task="aime", problems=problems, validation=files.get("validation"), hidden=files.get("hidden"),
        samples=1, seed=0, decoding=Decoding(), limits=ProblemLimits(), engine=EngineConfig(), model_env="/",
        base_dir="/", models_dir="/", runtime_dir=str(folder), log_dir=str(folder), cgroup=None,
    )  # fmt: skip


def _file(path: Path, rows: list[tuple[str, int]]) -> str:
    path.write_text(
        "".join(json.dumps({"problem_idx": i, "problem": q, "answer": a}) + "\n" for i, (q, a) in enumerate(rows))
    )
    return str(path)


@pytest.fixture(scope="module", autouse=True)
def _children() -> None:
    use_pidfd_children()


@asynccontextmanager
async def _running(setup: GraderSetup) -> AsyncIterator[Vault]:
    vault = await Vault.start(setup)
    try:
        yield vault
    finally:
        await vault.close()


def _signal(vault: Vault, number: signal.Signals) -> None:
    assert vault._box is not None
    with contextlib.suppress(ProcessLookupError):
        os.kill(vault._box.inner_pid, number)


def _stop(vault: Vault) -> None:
    """Stops the vault itself, which is the child of its namespace's init."""
    assert vault._box is not None
    inner = vault._box.inner_pid
    child = Path(f"/proc/{inner}/task/{inner}/children").read_text().split()[0]
    os.kill(int(child), signal.SIGSTOP)


async def _kill(vault: Vault) -> None:
    box = vault._box
    assert box is not None
    _signal(vault, signal.SIGKILL)
    await box.wait()


async def test_the_mini_set_with_its_own_files(tmp_path: Path) -> None:
    async with _running(_setup(tmp_path)) as vault:
        opened = await vault.open()
        assert min(opened.validation.count, opened.hidden.count) >= 100
        assert opened.validation.sha256 != opened.hidden.sha256
        assert not opened.overlap
        ids = await vault.ids("validation")
        shown = await asyncio.gather(*(vault.public("validation", name) for name in ids))
        assert [public.id for public in shown] == list(ids)
        assert all(public.instruction for public in shown)
        with pytest.raises(GraderError, match="sealed"):
            await vault.ids("hidden")
        await vault.unseal("c04")
        assert len(await vault.ids("hidden")) == opened.hidden.count
        with pytest.raises(GraderError, match="another candidate"):
            await vault.unseal("c05")


async def test_many_calls_at_once_and_hostile_texts(tmp_path: Path) -> None:
    files = {
        "validation": _file(tmp_path / "v.jsonl", [(f"What is {n} + 1?", n + 1) for n in range(40)]),
        "hidden": _file(tmp_path / "h.jsonl", [("What is 3 * 3?", 9)]),
    }
    async with _running(_setup(tmp_path, "aime", **files)) as vault:
        await vault.open()
        ids = await vault.ids("validation")
        right = await asyncio.gather(
            *(vault.judge("validation", name, f"so \\boxed{{{n + 1}}}") for n, name in enumerate(ids))
        )
        assert [verdict.reward for verdict in right] == [1.0] * 40
        texts = ["\ud800\\boxed{1}", "\0" * LARGEST_ANSWER, "\n\\boxed{2}\n{}", '"}\n{"id": 1}', "\\boxed{9^{9^{9^9}}}"]
        hostile = await asyncio.gather(*(vault.judge("validation", ids[1], text) for text in texts))
        assert [verdict.reward for verdict in hostile] == [0.0, 0.0, 1.0, 0.0, 0.0]
        big = await vault.judge("validation", ids[0], "\ud800" * (LARGEST_ANSWER // 3) + "\\boxed{1}")
        assert (big.reward, big.reason) == (0.0, "answer_too_big")


async def test_a_killed_vault_comes_back_unsealed_as_it_was_and_answers(tmp_path: Path) -> None:
    async with _running(_setup(tmp_path)) as vault:
        opened = await vault.open()
        await vault.unseal("c04")
        asked = [asyncio.ensure_future(vault.judge("hidden", "h001", "\\boxed{-1}")) for _ in range(30)]
        await asyncio.sleep(0)
        await _kill(vault)
        verdicts = await asyncio.gather(*asked)
        assert {(verdict.reward, verdict.reason) for verdict in verdicts} == {(0.0, "mismatch")}
        assert await vault.open() == opened


async def test_a_request_on_which_it_dies_twice_is_an_error_and_others_are_served(tmp_path: Path) -> None:
    async with _running(_setup(tmp_path)) as vault:
        await vault.open()

        async def killer() -> None:
            """Kills every vault while the first request is still open."""
            while not poisoned.done():
                await _kill(vault)
                await asyncio.sleep(0)

        _stop(vault)
        poisoned = asyncio.ensure_future(vault.judge("validation", "v001", "\\boxed{1}"))
        others = [asyncio.ensure_future(vault.public("validation", "v002")) for _ in range(5)]
        await asyncio.sleep(0)
        killing = asyncio.ensure_future(killer())
        with pytest.raises(GraderError, match=r"twice|again|stay"):
            await poisoned
        await killing
        settled = await asyncio.gather(*others, return_exceptions=True)
        assert all(isinstance(one, GraderError) or getattr(one, "id", "") == "v002" for one in settled)


async def test_an_idle_vault_that_died_is_back_when_it_is_needed(tmp_path: Path) -> None:
    async with _running(_setup(tmp_path)) as vault:
        opened = await vault.open()
        await _kill(vault)
        assert len(await vault.ids("validation")) == opened.validation.count


async def test_a_missing_or_broken_file_is_named_by_its_own_path(tmp_path: Path) -> None:
    with pytest.raises(GraderError, match="no validation file"):
        await Vault.start(_setup(tmp_path, validation=str(tmp_path / "none.toml")))
    with pytest.raises(GraderError, match="unknown task"):
        await Vault.start(_setup(tmp_path).model_copy(update={"task": "aim"}))
    good = _file(tmp_path / "v.jsonl", [("What is 1 + 1?", 2)])
    bad = tmp_path / "h.jsonl"
    bad.write_text("{nonsense\n")
    async with _running(_setup(tmp_path, "aime", validation=good, hidden=str(bad))) as vault:
        with pytest.raises(GraderError) as error:
            await vault.open()
        assert str(bad) in str(error.value) and "\n" not in str(error.value)


async def test_a_hidden_file_changed_during_the_run_is_refused(tmp_path: Path) -> None:
    files = {
        "validation": _file(tmp_path / "v.jsonl", [("What is 1 + 1?", 2)]),
        "hidden": _file(tmp_path / "h.jsonl", [("What is 2 + 2?", 4)]),
    }
    async with _running(_setup(tmp_path, "aime", **files)) as vault:
        await vault.open()
        _file(tmp_path / "h.jsonl", [("What is 5 + 5?", 10)])
        with pytest.raises(GraderError, match="changed"):
            await vault.unseal("c01")
        await _kill(vault)
        with pytest.raises(GraderError, match="changed"):
            await vault.ids("validation")


async def test_after_the_end_every_call_fails(tmp_path: Path) -> None:
    async with _running(_setup(tmp_path)) as vault:
        await vault.open()
        await vault.close()
        with pytest.raises(GraderError):
            await vault.ids("validation")


async def test_the_vault_sees_its_files_and_nothing_of_the_host(tmp_path: Path) -> None:
    async with _running(_setup(tmp_path)) as vault:
        assert vault._box is not None
        spec = vault._box.spec
        assert not any(mount.writable for mount in spec.mounts)
        ours = sorted(mount.target for mount in spec.mounts if mount.target.startswith(("/opt/vault", "/vault")))
        assert ours == ["/opt/vault/grader", "/opt/vault/tasks", "/vault/hidden.toml", "/vault/validation.toml"]
