"""On which devices this process has a context open.

For: DEV-12, where a driver or a simulated machine can tell without opening one. Not for: other processes.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from conformance.simulated import machine_here


def open_contexts(device_type: str, count: int) -> set[int] | None:
    """The local indices of the devices with a context; None where nothing here can tell."""
    machine = machine_here()
    if machine is not None and machine.persona.device_type == device_type:
        return set(machine.open_contexts)
    has_context = _driver_question(device_type)
    if has_context is None:
        return None
    return {index for index in range(count) if _answers_true(has_context, index)}


def runtime_is_initialized(device_type: str) -> bool | None:
    """Whether the device's runtime is initialised; None where its namespace does not say."""
    check = getattr(getattr(torch, device_type, None), "is_initialized", None)
    # PyTorch's CPU namespace answers true at all times.
    return None if check is None or device_type == "cpu" else bool(check())


def _answers_true(question: Any, index: int) -> bool:
    try:
        return bool(question(index))
    except RuntimeError:  # the driver is not initialised, so nothing has a context
        return False


def _driver_question(device_type: str) -> Any | None:
    """The function that asks the driver for a primary context, under the name that PyTorch and its forks give it."""
    owners = [torch._C, sys.modules.get(f"torch_{device_type}._C"), sys.modules.get(f"torch_{device_type}._{device_type.upper()}C")]
    for owner in owners:
        found = getattr(owner, f"_{device_type}_hasPrimaryContext", None)
        if found is not None:
            return found
    return None
