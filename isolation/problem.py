"""The base of every error a person may see: what is wrong, where, and what to do about it."""

from __future__ import annotations


class BenchError(Exception):
    """One line for a person: ``what`` is wrong, ``where``, and what to ``do``.

    Each boundary has one flat subclass; ``runner.errors`` alone maps those to exit codes.
    """

    def __init__(self, what: str, *, where: str = "", do: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.do = do

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        advice = f". {self.do}" if self.do else ""
        return f"{place}{self.what}{advice}"


class SandboxError(BenchError):
    """A wall is missing, a sandbox plan is unsafe, or a sandbox could not be started."""


class IntakeError(BenchError):
    """Files that an agent, a trainer or a checkpoint wrote were refused. ``where`` is a cleaned path."""
