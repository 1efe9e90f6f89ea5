"""The error of the record, apart from the events, so that a viewer can look for a run before it has read of them."""

from __future__ import annotations

from isolation.problem import BenchError


class JournalError(BenchError):
    """The journal, the run folder or its lock cannot be used: broken chain, newer schema, full disk, held lock."""
