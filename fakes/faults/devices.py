"""Faults of device identity and the current device (DEV).

For: wrong names, indices, contexts, copies and counts, in the adapter or in the simulated device. Not for: which devices are visible
(`visible_devices.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import torch

from fakes.faults.fault import Fault
from fakes.faults.replacing import Apply
from fakes.patching import Patches
from harness.accelerator.contract import Accelerator
from harness.accelerator.device_context import DeviceContext
from harness.accelerator.environment_at_first_use import EnvironmentAtFirstUse
from harness.accelerator.namespace_access import NamespaceAccess
from harness.accelerator.namespace_memory import NamespaceMemory
from harness.accelerator.visible_devices import read_visible_devices


def _device_index(wrong: Callable[[Any, Any, Callable[[], int]], int]) -> Apply:
    """Replace `device_index`; `wrong(accelerator, value, right)` may ask `right()` for the true answer."""

    def apply(patches: Patches) -> None:
        original = Accelerator.device_index

        def device_index(self: Any, index: Any = None) -> int:
            return wrong(self, index, lambda: original(self, index))

        patches.set(Accelerator, "device_index", device_index)

    return apply


def _numeric_string_reversed(accelerator: Any, value: Any, right: Callable[[], int]) -> int:
    return accelerator.device_count() - 1 - right() if isinstance(value, str) and value.isdigit() else right()


def _bare_type_is_first(accelerator: Any, value: Any, right: Callable[[], int]) -> int:
    return 0 if value in (accelerator.device_type, torch.device(accelerator.device_type)) else right()


def _wrapping(accelerator: Any, value: Any, right: Callable[[], int]) -> int:
    if isinstance(value, str) and value.startswith(f"{accelerator.device_type}:"):
        return torch.device(value).index
    return right()


def _unchecked(_accelerator: Any, value: Any, right: Callable[[], int]) -> int:
    return value if type(value) is int and value >= 0 else right()


def _from_the_end(accelerator: Any, value: Any, right: Callable[[], int]) -> int:
    return accelerator.device_count() - 1 if isinstance(value, int) and value < 0 else right()


def _any_type(accelerator: Any, value: Any, right: Callable[[], int]) -> int:
    if isinstance(value, str) and value.startswith("cpu:"):
        return int(value.partition(":")[2])
    return 0 if isinstance(value, torch.device) and value.type != accelerator.device_type else right()


def _truncating(_accelerator: Any, value: Any, right: Callable[[], int]) -> int:
    return int(value) if isinstance(value, float) else right()


def _apply_name_concatenated(patches: Patches) -> None:
    def device_name(self: Any, index: Any = None) -> str:
        return f"{self.device_type}:{self.current_device() if index is None else index}"

    patches.set(Accelerator, "device_name", device_name)


def _set_device(wrong: Callable[[Any, Any, Callable[[Any], None]], None]) -> Apply:
    """Replace `set_device`; `wrong(accelerator, value, right)` may call `right(value)`."""

    def apply(patches: Patches) -> None:
        original = NamespaceAccess.set_device

        def set_device(self: Any, index: Any) -> None:
            wrong(self, index, lambda value: original(self, value))

        patches.set(NamespaceAccess, "set_device", set_device)

    return apply


def _none_accepted(_accelerator: Any, value: Any, right: Callable[[Any], None]) -> None:
    if value is not None:
        right(value)


def _moves_before_refusing(accelerator: Any, value: Any, right: Callable[[Any], None]) -> None:
    try:
        right(value)
    except (ValueError, RuntimeError):
        right(accelerator.device_count() - 1)
        raise


def _string_ignored(accelerator: Any, value: Any, right: Callable[[Any], None]) -> None:
    # The value is checked, and then lost.
    if isinstance(value, str):
        accelerator.device_index(value)
    else:
        right(value)


def _apply_shared_by_threads(patches: Patches) -> None:
    shared = {"device": 0}
    original = NamespaceAccess.set_device

    def set_device(self: Any, index: Any) -> None:
        original(self, index)
        shared["device"] = self.accelerator_module().current_device()

    patches.set(NamespaceAccess, "set_device", set_device)
    patches.set(NamespaceAccess, "current_device", lambda _self: shared["device"])


def _context_exit(wrong: Callable[[Any, type[BaseException] | None], bool | None]) -> Apply:
    return lambda patches: patches.set(DeviceContext, "__exit__", lambda self, kind, _error, _traceback: wrong(self, kind))


def _restores_without_exception_only(context: Any, kind: type[BaseException] | None) -> None:
    if kind is None:
        context._accelerator.set_device(context._previous)


def _restores_first(context: Any, _kind: type[BaseException] | None) -> None:
    context._accelerator.set_device(0)


def _swallows(context: Any, _kind: type[BaseException] | None) -> bool:
    context._accelerator.set_device(context._previous)
    return True


def _apply_one_slot_for_all_contexts(patches: Patches) -> None:
    slot: dict[str, int] = {}

    def enter(self: Any) -> None:
        slot["previous"] = self._accelerator.current_device()
        self._accelerator.set_device(self._accelerator.device_index(self._device))

    patches.set(DeviceContext, "__enter__", enter)
    patches.set(DeviceContext, "__exit__", lambda self, *_exception: self._accelerator.set_device(slot["previous"]))


def _apply_mixture_computed(patches: Patches) -> None:
    from fakes import arguments

    patches.set(arguments, "refuse_mixture", lambda _index, _other: None)


def _live_shown(accelerator: Any) -> Any:
    return read_visible_devices(
        accelerator.visible_devices_grammar, environment=os.environ, physical_devices=accelerator.physical_devices()
    )


def _apply_count_live(patches: Patches) -> None:
    def device_count(self: Any) -> int:
        entries = _live_shown(self).entries
        return self._count_devices() if entries is None else len(entries)

    patches.set(NamespaceAccess, "device_count", device_count)


def _apply_count_is_physical(patches: Patches) -> None:
    patches.set(NamespaceAccess, "device_count", lambda self: len(self.physical_devices() or ()))


def _apply_change_half_applied(patches: Patches) -> None:
    def visible_devices(self: Any, environment: Mapping[str, str] | None = None) -> Any:
        return _live_shown(self) if environment is None else Accelerator.visible_devices(self, environment)

    patches.set(NamespaceAccess, "visible_devices", visible_devices)


def _apply_change_not_reported(patches: Patches) -> None:
    patches.set(EnvironmentAtFirstUse, "report_changes", lambda _self: None)


def _apply_properties_without_size(patches: Patches) -> None:
    patches.set(NamespaceAccess, "get_device_properties", lambda _self, _device=None: SimpleNamespace(name="", total_memory=0))


def _apply_pytorch_disagrees(patches: Patches) -> None:
    patches.set(torch.accelerator, "current_device_index", lambda: 0)


def _opening_first(owner: Any, name: str) -> Apply:
    """The method opens a context on device 0 before it does its work."""

    def apply(patches: Patches) -> None:
        original = getattr(owner, name)

        def method(self: Any, *arguments: Any) -> Any:
            self.accelerator_module().synchronize(0)
            return original(self, *arguments)

        patches.set(owner, name, method)

    return apply


FAULTS: tuple[Fault, ...] = (
    Fault(
        "dev-name-concatenated",
        ("DEV-1",),
        "A device string is put behind the type again: `musa:musa:1`.",
        "seed",
        _apply_name_concatenated,
    ),
    Fault(
        "dev-numeric-string-reversed",
        ("DEV-1",),
        "A numeric string counts from the last device.",
        "derived",
        _device_index(_numeric_string_reversed),
    ),
    Fault(
        "dev-bare-type-is-first-device",
        ("DEV-1",),
        "A bare type means device 0 instead of the current device.",
        "B37",
        _device_index(_bare_type_is_first),
    ),
    Fault(
        "dev-index-wraps",
        ("DEV-2",),
        "The index in a device string wraps modulo 256, as PyTorch reads it.",
        "seed",
        _device_index(_wrapping),
    ),
    Fault("dev-range-not-checked", ("DEV-2",), "An index past the last device is passed on.", "B29", _device_index(_unchecked)),
    Fault(
        "dev-negative-from-the-end",
        ("DEV-2",),
        "A negative index counts from the last device.",
        "derived",
        _device_index(_from_the_end),
    ),
    Fault(
        "dev-other-type-accepted",
        ("DEV-2",),
        "Only the index of a device of another type is looked at.",
        "B39",
        _device_index(_any_type),
    ),
    Fault("dev-fraction-truncated", ("DEV-2",), "A fraction is truncated to an index.", "seed", _device_index(_truncating)),
    Fault("dev-none-accepted", ("DEV-3",), "`set_device(None)` does nothing and succeeds.", "seed", _set_device(_none_accepted)),
    Fault(
        "dev-string-not-set",
        ("DEV-3",),
        "`set_device` with a string checks the string and sets nothing.",
        "derived",
        _set_device(_string_ignored),
    ),
    Fault(
        "dev-refused-set-moves",
        ("DEV-4",),
        "A refused `set_device` leaves another device current.",
        "derived",
        _set_device(_moves_before_refusing),
    ),
    Fault(
        "dev-current-shared-by-threads", ("DEV-5",), "All threads share one current device.", "derived", _apply_shared_by_threads
    ),
    Fault("dev-count-live", ("DEV-6",), "The device count follows the variable after first use.", "B10", _apply_count_live),
    Fault(
        "dev-count-is-physical",
        ("DEV-6",),
        "The device count is that of the host, whatever is visible.",
        "B30",
        _apply_count_is_physical,
    ),
    Fault(
        "dev-change-half-applied",
        ("DEV-6",),
        "After first use, ids resolve by the variable's new value.",
        "B13",
        _apply_change_half_applied,
    ),
    Fault(
        "dev-change-not-reported",
        ("DEV-6",),
        "A change of the variable after first use goes unnoticed.",
        "B42",
        _apply_change_not_reported,
    ),
    Fault(
        "dev-context-lost-on-exception",
        ("DEV-8",),
        "A device context restores nothing when its body raises.",
        "derived",
        _context_exit(_restores_without_exception_only),
    ),
    Fault(
        "dev-context-restores-first-device",
        ("DEV-8",),
        "A device context always leaves device 0 current.",
        "derived",
        _context_exit(_restores_first),
    ),
    Fault(
        "dev-context-swallows",
        ("DEV-8",),
        "A device context swallows the exception of its body.",
        "derived",
        _context_exit(_swallows),
    ),
    Fault(
        "dev-contexts-share-a-slot",
        ("DEV-8",),
        "Nested device contexts share one place for the previous device.",
        "derived",
        _apply_one_slot_for_all_contexts,
    ),
    Fault(
        "dev-mixture-computed",
        ("DEV-9",),
        "Operands on two devices are computed on the first one's.",
        "derived",
        _apply_mixture_computed,
    ),
    Fault(
        "dev-properties-without-size",
        ("DEV-10",),
        "A device's properties have no name and no memory size.",
        "derived",
        _apply_properties_without_size,
    ),
    Fault(
        "dev-pytorch-disagrees",
        ("DEV-11",),
        "`torch.accelerator` always reports device 0 as current.",
        "derived",
        _apply_pytorch_disagrees,
    ),
    Fault(
        "dev-empty-cache-opens-first-device",
        ("DEV-12",),
        "`empty_cache` opens a context on device 0.",
        "B103",
        _opening_first(NamespaceMemory, "empty_cache"),
    ),
    Fault(
        "dev-current-device-opens-first-device",
        ("DEV-12",),
        "`current_device` opens a context on device 0.",
        "B41",
        _opening_first(NamespaceAccess, "current_device"),
    ),
    Fault(
        "dev-statistics-open-first-device",
        ("DEV-12",),
        "Memory counters open a context on device 0.",
        "B101",
        _opening_first(NamespaceMemory, "memory_allocated"),
    ),
)
