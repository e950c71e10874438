"""Faults in loading (SER).

For: the catalogue. Not for: saving.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fakes.faults.fault import Fault
from fakes.patching import Patches

_loading: Any = torch.serialization


def _apply_first_device(patches: Patches) -> None:
    from fakes import serialization, storage

    original = storage.on_device
    patches.set(serialization, "on_device", lambda host, _index: original(host, 0))


def _apply_current_device(patches: Patches) -> None:
    from fakes import serialization, storage
    from fakes.machine import current_machine

    original = storage.on_device
    patches.set(serialization, "on_device", lambda host, _index: original(host, current_machine().current_device()))


def _apply_absent_is_last(patches: Patches) -> None:
    original = _loading._validate_device

    def validate(location: Any, backend_name: str) -> Any:
        device = torch.device(str(location))
        count = getattr(torch, device.type).device_count() if hasattr(torch, device.type) else 0
        if device.index is not None and count and device.index >= count:
            location = f"{device.type}:{count - 1}"
        return original(location, backend_name)

    patches.set(_loading, "_validate_device", validate)


def _forms_ignored(is_ignored: Callable[[Any], bool]) -> Callable[[Patches], None]:
    def apply(patches: Patches) -> None:
        original = _loading._get_restore_location
        patches.set(_loading, "_get_restore_location", lambda form: original(None if is_ignored(form) else form))

    return apply


FAULTS: tuple[Fault, ...] = (
    Fault("ser-always-first-device", ("SER-1",), "Loading ignores the index of a device.", "derived", _apply_first_device),
    Fault("ser-always-current-device", ("SER-1",), "Loading goes to the current device.", "derived", _apply_current_device),
    Fault("ser-absent-device-clamped", ("SER-1",), "An absent device is taken for the last one.", "derived", _apply_absent_is_last),
    Fault(
        "ser-dict-ignored",
        ("SER-1",),
        "A dict as `map_location` is ignored.",
        "derived",
        _forms_ignored(lambda form: isinstance(form, dict)),
    ),
    Fault("ser-callable-ignored", ("SER-1",), "A callable as `map_location` is ignored.", "derived", _forms_ignored(callable)),
)
