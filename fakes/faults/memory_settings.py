"""Faults in the allocator's expandable segments (MEM-9).

For: the catalogue. Not for: counters (`memory.py`).
"""

from __future__ import annotations

from typing import Any

from fakes.faults.fault import Fault
from fakes.patching import Patches
from harness.accelerator import allocator
from harness.accelerator.namespace_memory import NamespaceMemory


def _apply_any_value(patches: Patches) -> None:
    patches.set(allocator, "is_requested", lambda value: value not in (None, "", "0", "false"))


def _apply_on_by_default(patches: Patches) -> None:
    original = allocator.is_requested
    patches.set(allocator, "is_requested", lambda value: value is None or original(value))


def _apply_others_reset(patches: Patches) -> None:
    patches.set(allocator, "with_expandable_segments", lambda _settings: "expandable_segments:True")


def _apply_environment_only(patches: Patches) -> None:
    original = allocator._settings_in_force
    patches.set(allocator, "_settings_in_force", lambda device_type, _snapshot: original(device_type, {}))


def _apply_called_twice(patches: Patches) -> None:
    original = allocator._setter

    def setter(device_type: str, memory: Any) -> Any:
        function = original(device_type, memory)
        return function and (lambda settings: (function(settings), function(settings)))

    patches.set(allocator, "_setter", setter)


def _apply_not_read_back(patches: Patches) -> None:
    def set_segments(self: NamespaceMemory) -> bool:
        original(self)
        return True

    original = NamespaceMemory.set_allocator_expandable_segments
    patches.set(NamespaceMemory, "set_allocator_expandable_segments", set_segments)
    _apply_without_effect(patches)


def _apply_without_effect(patches: Patches) -> None:
    """The device takes the setting, and has no expandable segments all the same."""
    from fakes import allocator_settings, namespace_memory

    original = allocator_settings.settings_in_force
    patches.set(namespace_memory, "settings_in_force", lambda kind, text: {**original(kind, text), "expandable_segments": False})


FAULTS: tuple[Fault, ...] = (
    Fault("mem-segments-any-value", ("MEM-9",), "Every value but `0` turns expandable segments on.", "derived", _apply_any_value),
    Fault(
        "mem-segments-on-by-default", ("MEM-9",), "Expandable segments are on where nothing asks.", "derived", _apply_on_by_default
    ),
    Fault(
        "mem-segments-reset-others", ("MEM-9",), "The setter is called without the settings in force.", "B113", _apply_others_reset
    ),
    Fault(
        "mem-segments-forget-run-time",
        ("MEM-9",),
        "Settings that were made at run time are taken from the environment instead.",
        "B113",
        _apply_environment_only,
    ),
    Fault("mem-segments-set-twice", ("MEM-9",), "The allocator's setter is called twice.", "derived", _apply_called_twice),
    Fault(
        "mem-segments-not-read-back",
        ("MEM-9",),
        "The answer is true although the device ignores the setting.",
        "B110",
        _apply_not_read_back,
    ),
)
