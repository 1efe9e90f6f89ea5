"""The style sheet, read once: Textual reads it a second time at every start, for the theme it was just read with."""

from __future__ import annotations

from textual.css.stylesheet import Stylesheet


class Sheet(Stylesheet):
    """Read again only where a variable (a colour of the theme) is another."""

    _read_with: dict[str, str] | None = None

    def set_variables(self, variables: dict[str, str]) -> None:
        if variables != self._variables:  # else what was parsed is kept
            super().set_variables(variables)

    def parse(self) -> None:
        super().parse()
        self._read_with = dict(self._variables)

    def reparse(self) -> None:
        if self._read_with is not None and self._variables != self._read_with:
            super().reparse()
            self._read_with = dict(self._variables)
        elif self._require_parse:  # a widget of a new kind: the rest is known
            self.parse()
