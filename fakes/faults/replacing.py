"""Replacing one function or method by a wrong one, which is what most faults do.

For: the areas of the catalogue. Not for: undoing it (`fakes.patching`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fakes.patching import Patches

Apply = Callable[[Patches], None]
"""How a fault is put in force."""


def replace(owner: Any, name: str, wrong: Callable[..., Any]) -> Apply:
    """Replace a function or method; `wrong(original, …)`, for a method `wrong(original, self, …)`, may call the original."""

    def apply(patches: Patches) -> None:
        original = getattr(owner, name)
        patches.set(owner, name, lambda *args, **kwargs: wrong(original, *args, **kwargs))

    return apply


def replace_method(owner: type, name: str, wrong: Callable[..., Any]) -> Apply:
    """Replace a method; `wrong(self, right, *arguments)` may call `right(*arguments)`."""

    def apply(patches: Patches) -> None:
        original = getattr(owner, name)
        patches.set(owner, name, lambda self, *arguments: wrong(self, lambda *given: original(self, *given), *arguments))

    return apply


def nothing(*_args: Any, **_kwargs: Any) -> None:
    """An operation without effect."""
