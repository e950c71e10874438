"""How drawn values print in a failing example.

For: values whose `repr` is code that a reader understands, where Hypothesis would list their fields. Not for: values sent
elsewhere."""

from __future__ import annotations

from typing import Any


class PrintsAsCode:
    """A base for dataclasses (with `repr=False`) that define `__repr__` themselves."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Asked by Hypothesis, whose printer passes over `__repr__` of dataclasses."""
        del cycle
        printer.text(repr(self))
