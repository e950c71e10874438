"""A call that makes a group, remembered so that it can be made again in full.

For: PGL-2: every argument replayed, and each call given its own copies of what PyTorch changes. Not for: when to make the call
(`reloader.py`).
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.errors import ProcessGroupError

_OPTIONS = ("pg_options", "backend_options")


@dataclass(frozen=True)
class CallRecipe:
    """`create` and its arguments by name, as they were given first."""

    create: Callable[..., Any]
    arguments: Mapping[str, Any]

    @classmethod
    def of(cls, create: Callable[..., Any], arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> CallRecipe:
        """The recipe of a call that has not been made yet.

        Raises:
            TypeError: the arguments do not fit the function.
            ProcessGroupError: backend options that cannot be copied.
        """
        bound = inspect.signature(create).bind(*arguments, **keywords)
        return cls(create, _copies(bound.arguments))

    def __call__(self, **changes: Any) -> Any:
        """Make the call, with fresh copies, and with `changes` to its arguments."""
        return self.create(**{**_copies(self.arguments), **changes})

    @property
    def is_local(self) -> bool:
        """Whether only the members of the group make the call."""
        return bool(self.arguments.get("use_local_synchronization"))

    @property
    def identity(self) -> str:
        """What all ranks must agree on."""
        shown = {name: self.arguments.get(name) for name in ("ranks", "backend", "group_desc", "timeout")}
        return ", ".join(f"{name}={value}" for name, value in shown.items() if value is not None)


def _copies(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _copied(name, value) for name, value in arguments.items()}


def _copied(name: str, value: Any) -> Any:
    if name in _OPTIONS and value is not None:
        return copy_options(value)
    if name in ("ranks", "_ranks") and value is not None:
        return list(value)
    return value


def copy_options(options: Any) -> Any:
    """A copy of a backend's options that later changes to either do not touch.

    Options that are C++ objects without a copy are made anew, and their plain attributes carried over.

    Raises:
        ProcessGroupError: neither way works; the message names the class.
    """
    try:
        return copy.deepcopy(options)
    except TypeError:
        pass
    try:
        fresh = type(options)()
    except TypeError as error:
        raise ProcessGroupError(
            f"backend options of type {type(options).__name__} cannot be copied, and PyTorch changes them, so the group could not be "
            "rebuilt as it was; give the type __deepcopy__"
        ) from error
    for name in dir(options):
        value = getattr(options, name, None)
        if not name.startswith("__") and not callable(value):
            _set_if_possible(fresh, name, value)
    return fresh


def _set_if_possible(target: Any, name: str, value: Any) -> None:
    try:
        setattr(target, name, value)
    except (AttributeError, TypeError):  # a read-only property follows from the others
        return
