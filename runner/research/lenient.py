"""JSON that nobody vouches for, read without harm: what an agent prints, what an upstream replies."""

from __future__ import annotations

import json
from typing import Any


def object_of(text: str | bytes) -> dict[str, Any]:
    """The JSON object that ``text`` is, or an empty one for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
