"""Turning the caching allocator's expandable segments on (MEM-9).

For: adding one setting to those in force, since the allocator's setter resets what it is not told, and reading back whether it took
effect. Not for: settings made before the process starts; those are `PYTORCH_ALLOC_CONF`'s.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from typing import Any

import torch

EXPANDABLE_SEGMENTS_VARIABLE = "SLIME_ENABLE_EXPANDABLE_SEGMENTS"

_SETTING = "expandable_segments"
# A comma inside brackets separates the parts of one value: roundup_power2_divisions:[256:1,512:2].
_SETTING_BOUNDARY = re.compile(r",(?![^\[]*\])")


def is_requested(value: str | None) -> bool:
    """What the variable asks for; unset is off.

    Raises:
        ValueError: neither `0` nor `1`.
    """
    if value is None or value == "0":
        return False
    if value == "1":
        return True
    raise ValueError(
        f"{EXPANDABLE_SEGMENTS_VARIABLE}={value!r} is neither 0 (leave the allocator as it is) nor 1 (expandable segments)"
    )


def with_expandable_segments(settings: str) -> str:
    """The allocator settings with expandable segments on, every other one kept in its order."""
    kept = [part.strip() for part in _SETTING_BOUNDARY.split(settings) if part.strip()]
    return ",".join([*(part for part in kept if part.partition(":")[0].strip() != _SETTING), f"{_SETTING}:True"])


def set_expandable_segments(device_type: str, find_memory_module: Callable[[], Any]) -> bool:
    """Do what `SLIME_ENABLE_EXPANDABLE_SEGMENTS` asks; whether expandable segments are known to be in force by it.

    `find_memory_module` gives the namespace's memory module or None; it is called only where the variable asks for something.

    Warns:
        RuntimeWarning: there is no setter, or the setting could not be read back ("unverified"); False is returned then too.

    Raises:
        ValueError: the variable has a value other than `0` and `1`.
    """
    if not is_requested(os.environ.get(EXPANDABLE_SEGMENTS_VARIABLE)):
        return False
    memory = find_memory_module()
    setter = _setter(device_type, memory)
    if setter is None:
        _warn(f"{device_type} has no function that changes the allocator's settings; {_SETTING} stays as it is")
        return False
    before = _snapshot_settings(memory)
    setter(with_expandable_segments(_settings_in_force(device_type, before)))
    after = _snapshot_settings(memory)
    if _SETTING not in after:
        _warn(
            f"{_SETTING}:True was handed to the {device_type} allocator, but is unverified: no snapshot says whether it took effect"
        )
        return False
    return bool(after[_SETTING])


def _setter(device_type: str, memory: Any) -> Callable[[str], Any] | None:
    # PyTorch's own devices: the namespace's setter is deprecated where the common one exists.
    if device_type in ("cuda", "xpu"):
        common: Callable[[str], Any] | None = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
        if common is not None:
            return common
    own: Callable[[str], Any] | None = getattr(memory, "_set_allocator_settings", None)
    return own


def _snapshot_settings(memory: Any) -> dict[str, Any]:
    """The snapshot's table of settings; empty where there is no snapshot or it says nothing of settings."""
    take = getattr(memory, "_snapshot", None)
    if take is None:
        return {}
    try:
        settings = take().get("allocator_settings", {})
    except (RuntimeError, AttributeError, TypeError):  # a device that is not there, or a snapshot of another shape
        return {}
    return dict(settings)


def _settings_in_force(device_type: str, snapshot: dict[str, Any]) -> str:
    """The last settings string that the allocator was given, by whoever tells: the snapshot, PyTorch, the environment."""
    own_variable = f"PYTORCH_{device_type.upper()}_ALLOC_CONF"
    for variable in (own_variable, "PYTORCH_ALLOC_CONF"):
        if snapshot.get(variable):
            return str(snapshot[variable])
    if device_type in ("cuda", "xpu"):
        told = getattr(torch._C, "_accelerator_getAllocatorSettings", None)
        if told is not None and told():
            return str(told())
    return os.environ.get(own_variable) or os.environ.get("PYTORCH_ALLOC_CONF", "")


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=4)
