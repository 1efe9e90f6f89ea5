"""The doctor's checks: they see the walls that stand, and each one that does not."""

from __future__ import annotations

import os

import pytest

from isolation import probe

STANDING = {
    "uid": 1000, "capabilities": ["0" * 16] * 5, "no_new_privs": "1", "seccomp": "2", "pids": 2, "interfaces": ["lo"],
    "routes": 0, "connect": "ENETUNREACH", "vsock": "EPERM", "keyctl": "EPERM", "userns": "EPERM", "environ": 0,
    "root": "EROFS", "dev": "EROFS", "sysctl": "EACCES", "tmp": 1 << 20, "shm": 1 << 20,
}  # fmt: skip
FALLEN = {
    "uid": 0, "capabilities": ["0" * 15 + "1"] * 5, "no_new_privs": "0", "seccomp": "0", "pids": 90,
    "interfaces": ["eth0", "lo"], "routes": 1, "connect": "", "vsock": "", "keyctl": "", "userns": "", "environ": 300,
    "root": "", "dev": "", "sysctl": "", "tmp": 8 << 20, "shm": 0,
}  # fmt: skip


async def test_on_this_machine_no_wall_is_missing() -> None:
    found = await probe.probe()
    names = [finding.name for finding in found]
    assert len(set(names)) == len(names)
    if os.getuid() == 0:
        assert [finding.name for finding in probe.missing(found)] == ["user"]
        return
    assert probe.missing(found) == []
    assert {finding.name for finding in probe.weak(found)} <= {"cve", "cgroup"}
    assert {"bwrap", "seccomp", "network", "userns", "environ", "readonly", "sizes"} <= set(names)


def test_standing_walls_are_ok() -> None:
    assert {finding.state for finding in probe.judge(STANDING)} == {"ok"}


@pytest.mark.parametrize("key", list(STANDING))
def test_each_fallen_wall_is_missing_and_says_why(key: str) -> None:
    for seen in ({**STANDING, key: FALLEN[key]}, {k: v for k, v in STANDING.items() if k != key}):
        gone = probe.missing(probe.judge(seen))
        assert len(gone) == 1 and gone[0].why and gone[0].do, key


def test_the_symptoms_of_ubuntu_get_its_recipe() -> None:
    for symptom in (
        "bwrap: setting up uid map: Permission denied",
        "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted",
    ):
        assert "bwrap-userns-restrict" in probe._no_namespaces(symptom).do
    nested = probe._no_namespaces("bwrap: Creating new namespace failed: … exceeded (ENOSPC)")
    assert "user.max_user_namespaces" in nested.do and "run outside of it" in nested.do
