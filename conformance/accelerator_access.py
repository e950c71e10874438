"""What checks ask of an adapter that may be of any class and may lack methods.

For: failing under the check's clause with a clear text where a method is missing, and reading devices that carry no index. Not for: the
adapters of this project, which have everything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from conformance.errors import ClauseViolation


def method(accelerator: Any, name: str) -> Callable[..., Any]:
    """The adapter's method of that name.

    Raises:
        ClauseViolation: the adapter has none.
    """
    found = getattr(accelerator, name, None)
    if not callable(found):
        raise ClauseViolation(f"{type(accelerator).__name__} has no method {name}, which this clause needs")
    return found  # type: ignore[no-any-return]


def device_type_of(accelerator: Any) -> str:
    """The type in `torch.device(type, index)`.

    Raises:
        ClauseViolation: the adapter does not say.
    """
    device_type = getattr(accelerator, "device_type", None)
    if not isinstance(device_type, str):
        raise ClauseViolation(f"{type(accelerator).__name__} has no device_type, the text in torch.device(type, index)")
    return device_type


def index_of(accelerator: Any, device: Any) -> int:
    """The local index of what the adapter's `device()` answered. A type with one device may leave the index out.

    Raises:
        ClauseViolation: not a `torch.device` of the adapter's type with an index.
    """
    if not isinstance(device, torch.device) or device.type != device_type_of(accelerator):
        raise ClauseViolation(f"device() answered {device!r}; due was a torch.device of type {device_type_of(accelerator)!r}")
    index: int | None = device.index
    if index is not None:
        return index
    if int(method(accelerator, "device_count")()) == 1:
        return 0
    raise ClauseViolation(f"device() answered {device!r}, which does not say which of several devices is meant")
