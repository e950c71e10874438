"""Reversible changes to attributes and mappings.

For: everything that this package changes in PyTorch while a machine is installed, and every fault, so that one call undoes them
all. Not for: choosing what to change (`torch_patches.py`, `faults/`).
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from types import TracebackType
from typing import Any

_ABSENT: Any = object()


class Patches:
    """A stack of changes; `undo()` (or leaving the `with` block) restores the very same objects, last change first.

    Attributes that an owner inherits are deleted again instead of being copied down to it. Not safe to share between threads.
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def set(self, owner: Any, attribute: str, value: Any) -> None:
        """Set `owner.attribute` to `value` for now; the attribute may be new.

        Raises:
            AttributeError, TypeError: the owner does not let its attributes be set; nothing is then recorded.
        """
        namespace = getattr(owner, "__dict__", {})
        previous = namespace.get(attribute, _ABSENT)
        setattr(owner, attribute, value)

        def undo() -> None:
            if previous is not _ABSENT:
                setattr(owner, attribute, previous)
            elif attribute in getattr(owner, "__dict__", {}):
                delattr(owner, attribute)

        self._undo.append(undo)

    def set_item(self, mapping: MutableMapping[Any, Any], key: Any, value: Any) -> None:
        """Set `mapping[key]` to `value` for now; the key may be new."""
        previous = mapping.get(key, _ABSENT)
        mapping[key] = value

        def undo() -> None:
            if previous is not _ABSENT:
                mapping[key] = previous
            else:
                mapping.pop(key, None)

        self._undo.append(undo)

    def on_undo(self, callback: Callable[[], None]) -> None:
        """Have `callback` called at its turn when the changes are undone."""
        self._undo.append(callback)

    def undo(self) -> None:
        """Undo every change, last first. Further calls do nothing."""
        while self._undo:
            self._undo.pop()()

    def __enter__(self) -> Patches:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.undo()
