"""The errors of the grader's boundary: an evaluation, a gate check or a hidden test that could not be done."""

from __future__ import annotations

from isolation.problem import BenchError


class GraderError(BenchError):
    """The grader itself failed, or was asked for what it must refuse. Never a score: a wrong answer is data."""


class ProblemsError(GraderError):
    """The problem files are missing or malformed: nothing is wrong with the grader."""
