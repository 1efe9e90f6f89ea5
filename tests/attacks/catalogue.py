"""Every attack of the list, what stands against it, the tests that try it, and what remains."""

from __future__ import annotations

TESTS: frozenset[str] = frozenset()
