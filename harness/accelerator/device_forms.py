"""Every form in which a caller may name a device, turned into a local index.

For: DEV-1 and DEV-2, checked before PyTorch sees the value, since `torch.device("cuda:200")` wraps silently and an int means another
vendor's device. Not for: physical ids and UUIDs (`visible_devices.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import SupportsIndex, TypeAlias

import torch

from harness.errors import DeviceError

DeviceLike: TypeAlias = "SupportsIndex | str | torch.device | None"
"""None and a bare type mean the current device."""

_TYPE_AND_INDEX = re.compile(r"(?P<type>[a-z_][a-z0-9_]*)(?::(?P<index>[0-9]+))?", re.ASCII)
_NUMBER = re.compile(r"[0-9]+", re.ASCII)


def device_index(value: DeviceLike, *, device_type: str, current: Callable[[], int], count: Callable[[], int]) -> int:
    """The local index that `value` names on the backend `device_type`.

    `current` and `count` are called only when they are needed: naming the current device needs no count.

    Raises:
        DeviceError: another type, malformed, negative, or not in `range(count())`.
    """
    index = _named_index(value, device_type)
    if index is None:
        return current()
    available = count()
    if not 0 <= index < available:
        legal = f"0 to {available - 1}" if available else "none, since no device is visible"
        raise DeviceError(f"{value!r} names {device_type} device {index}, which is out of range; legal indices: {legal}")
    return index


def _named_index(value: DeviceLike, device_type: str) -> int | None:
    """The index in `value`, or None where it means the current device."""
    if value is None:
        return None
    if isinstance(value, torch.device):
        _require_type(value, value.type, device_type)
        return value.index
    if isinstance(value, str):
        return _index_of_string(value, device_type)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise DeviceError(f"{value!r} ({type(value).__name__}) is not a device; {_legal_forms(device_type)}")
    return value.__index__()


def _index_of_string(value: str, device_type: str) -> int | None:
    text = value.strip()
    if _NUMBER.fullmatch(text):
        return int(text)
    match = _TYPE_AND_INDEX.fullmatch(text)
    if match is None:
        raise DeviceError(f"{value!r} is not a device; {_legal_forms(device_type)}")
    _require_type(value, match["type"], device_type)
    return None if match["index"] is None else int(match["index"])


def _require_type(value: object, actual: str, expected: str) -> None:
    if actual != expected:
        raise DeviceError(f"{value!r} is a {actual} device, but this backend drives {expected}; {_legal_forms(expected)}")


def _legal_forms(device_type: str) -> str:
    return f"use None, an index, {device_type!r}, '{device_type}:0' or torch.device('{device_type}', 0)"
