"""Figures that others published: from one data file, each with its source, always marked as not run here."""

from __future__ import annotations

from importlib import resources

import tomli

from tasks.spec import Frozen


class Published(Frozen):
    """One figure. ``key`` names the row it stands beside, empty for none; ``where`` is the place in the source."""

    key: str
    title: str
    value: str
    source: str
    where: str


def published() -> list[Published]:
    """All of them, in the order of the file."""
    text = resources.files("runner.report").joinpath("published.toml").read_text(encoding="utf-8")
    return [Published.model_validate(item) for item in tomli.loads(text)["figure"]]
