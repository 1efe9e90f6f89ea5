"""Each wall taken away from a plan: the probe sees it missing, and what it kept out gets in. So the tests can fail."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from isolation import bwrap, probe, sandbox, seccomp
from isolation.problem import SandboxError
from isolation.spec import Mount, SandboxSpec

pytestmark = pytest.mark.skipif(os.getuid() == 0, reason="sandboxes are never started by root")
Change = Callable[[list[str]], list[str]]


def without(*groups: Sequence[str]) -> Change:
    """A plan without these runs of words."""

    def change(words: list[str]) -> list[str]:
        out = list(words)
        for group in groups:
            for at in reversed(range(len(out))):
                if out[at : at + len(group)] == list(group):
                    del out[at : at + len(group)]
        return out

    return change


def sized(words: list[str]) -> list[str]:
    """Every tmpfs may be as large as a GiB."""
    return [str(1 << 30) if before == "--size" else word for before, word in zip(["", *words], words, strict=False)]


def as_root(words: list[str]) -> list[str]:
    return ["0" if before in ("--uid", "--gid") else word for before, word in zip(["", *words], words, strict=False)]


REMOVED: dict[str, tuple[Change, set[str]]] = {
    "network namespace": (without(["--unshare-net"]), {"network"}),
    "process namespace": (without(["--unshare-pid"]), {"namespaces"}),
    "ordinary user": (as_root, {"uid"}),
    "read-only root": (without(["--remount-ro", "/"], ["--remount-ro", "/dev"]), {"readonly"}),
    "sizes": (sized, {"sizes"}),
}


@pytest.mark.parametrize("wall", list(REMOVED))
async def test_the_probe_sees_a_wall_that_the_plan_lacks(wall: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change, expected = REMOVED[wall]
    whole = bwrap.arguments
    monkeypatch.setattr(bwrap, "arguments", lambda *args: change(whole(*args)))
    assert expected <= {finding.name for finding in probe.missing(await probe.probe())}


async def test_without_the_filter_keyrings_and_odd_sockets_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    allow_all = bytes.fromhex("0600000000 00ff7f".replace(" ", ""))
    monkeypatch.setattr(seccomp, "program", lambda **_: allow_all)
    gone = {finding.name for finding in probe.missing(await probe.probe())}
    assert "seccomp" in gone


async def test_without_an_empty_environment_our_keys_are_inside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VTB_CANARY_KEY", "sk-canary")
    plain = sandbox.asyncio.create_subprocess_exec

    async def leaky(*argv: Any, **more: Any) -> Any:
        return await plain(*argv, **{**more, "env": dict(os.environ)})

    monkeypatch.setattr(sandbox.asyncio, "create_subprocess_exec", leaky)
    gone = {finding.name for finding in probe.missing(await probe.probe())}
    assert "environ" in gone


async def test_without_either_wall_namespaces_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bwrap.arguments
    monkeypatch.setattr(bwrap, "arguments", lambda *args: without(["--disable-userns"])(whole(*args)))
    assert "userns" not in {finding.name for finding in probe.missing(await probe.probe())}, "the filter still stands"
    monkeypatch.setattr(seccomp, "program", lambda **_: bytes.fromhex("060000000000ff7f"))
    assert "userns" in {finding.name for finding in probe.missing(await probe.probe())}


async def test_without_the_rule_of_leaves_a_planted_link_reaches_the_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if bwrap.version(bwrap.find_bwrap()) >= bwrap.FIXED:
        pytest.skip("this bubblewrap does not follow the link")
    host = Path(tempfile.mkdtemp(prefix="vtb-canary-"))
    out, other = tmp_path / "out", tmp_path / "other"
    for folder in (out, other):
        folder.mkdir()
    (out / "x").symlink_to(f"/oldroot{host}")
    mounts = (Mount(out, "/out", writable=True), Mount(other, "/out/x/made", writable=True))
    spec = SandboxSpec("harness", ("/bin/true",), mounts=mounts)
    try:
        with pytest.raises(SandboxError, match="below the writable"):
            await sandbox.start(spec)
        assert not list(host.iterdir())
        monkeypatch.setattr(bwrap, "_check_targets", lambda *_: None)
        with contextlib.suppress(SandboxError):
            await (await sandbox.start(spec)).kill()
        assert [path.name for path in host.iterdir()] == ["made"], "bubblewrap made a folder on the host"
    finally:
        shutil.rmtree(host)


async def test_without_an_allow_list_the_host_can_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("canary")
    python = bwrap.base_python()
    code = f"import os; print(os.path.exists({str(secret)!r}))"
    spec = SandboxSpec("harness", (str(python), "-I", "-S", "-c", code), mounts=bwrap.python_mounts(python))

    async def said() -> bytes:
        box = await sandbox.start(spec, stdout=sandbox.asyncio.subprocess.PIPE)
        assert box.stdout is not None
        out = await box.stdout.read()
        await box.kill()
        return out

    assert await said() == b"False\n"
    whole = bwrap.arguments
    # Before the root is sealed, where every bind stands.
    monkeypatch.setattr(
        bwrap, "arguments", lambda *args: _before_seal(whole(*args), ["--ro-bind", str(tmp_path), str(tmp_path)])
    )
    assert await said() == b"True\n"


def _before_seal(words: list[str], more: list[str]) -> list[str]:
    at = words.index("--remount-ro")
    return [*words[:at], *more, *words[at:]]
