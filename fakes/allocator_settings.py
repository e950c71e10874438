"""Settings of a simulated device's allocator, as PyTorch writes them.

For: a setting that reads back after it was made (MEM-9). Not for: obeying them: the allocator does so for `expandable_segments`, and for
no other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

DEFAULTS: dict[str, Any] = {
    "backend": "native",
    "expandable_segments": False,
    "garbage_collection_threshold": 0.0,
    "max_split_size": -1,
    "pinned_use_background_threads": False,
    "release_lock_on_cudamalloc": False,
}
"""Every setting under the name that a snapshot gives it, and its default."""
_ALIASES = {"max_split_size_mb": "max_split_size"}
_BOOLEANS = {"True": True, "False": False}


def settings_at_start(device_type: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """The settings that a process starts with: those of `PYTORCH_<TYPE>_ALLOC_CONF`, the defaults without it.

    Raises:
        ValueError: as `parse_allocator_settings`.
    """
    return settings_in_force(device_type, environment.get(_variable(device_type), ""))


def settings_in_force(device_type: str, text: str) -> dict[str, Any]:
    """As `parse_allocator_settings`, and the text itself under the variable's name, as PyTorch's snapshots have it."""
    return {**parse_allocator_settings(text), _variable(device_type): text}


def _variable(device_type: str) -> str:
    return f"PYTORCH_{device_type.upper()}_ALLOC_CONF"


def parse_allocator_settings(text: str) -> dict[str, Any]:
    """All settings, those named in `text` with the values that it gives.

    Raises:
        ValueError: an unknown name, or a value that the setting cannot have; the message quotes it.
    """
    settings = dict(DEFAULTS)
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, value = (piece.strip() for piece in part.partition(":"))
        known = _ALIASES.get(name, name)
        if not colon or known not in DEFAULTS:
            raise ValueError(
                f"Unrecognized allocator setting {part!r}; known settings: {', '.join(sorted((*DEFAULTS, *_ALIASES)))}"
            )
        settings[known] = _value(known, value, part)
    return settings


def _value(name: str, value: str, part: str) -> Any:
    default = DEFAULTS[name]
    if isinstance(default, bool):
        if value in _BOOLEANS:
            return _BOOLEANS[value]
    elif isinstance(default, int):
        if re.fullmatch(r"[0-9]+", value):
            return int(value) << 20
    elif isinstance(default, float):
        if re.fullmatch(r"0?\.[0-9]+", value):
            return float(value)
    elif value == default:
        return value
    raise ValueError(f"allocator setting {part!r} has a value that {name} cannot have")
