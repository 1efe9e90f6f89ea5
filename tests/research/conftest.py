"""The fixtures of a research phase in small; what they are made of is in phase_kit."""

from phase_kit import _children, phases, short

__all__ = ["_children", "phases", "short"]
