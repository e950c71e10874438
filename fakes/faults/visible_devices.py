"""Faults in reading visible-devices variables and resolving ids.

For: the area VIS of the catalogue. Each patches functions or data of the reference (one of them the simulated driver), where an adapter
of another make would have its own mistake. Not for: faults in the devices themselves.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from fakes import machine
from fakes.faults.fault import Fault
from fakes.patching import Patches
from harness.accelerator import contract, device_ids, visible_devices, visible_devices_entries, visible_devices_lists
from harness.accelerator.device_ids import LocalDeviceId, PhysicalDeviceId
from harness.accelerator.visible_devices import VisibleDevices
from harness.accelerator.visible_devices_grammars import VariableSyntax
from harness.errors import VisibleDevicesError

Resolve = Callable[[VisibleDevices, Any], Any]


def _read_as(patches: Patches, change: Callable[[VariableSyntax], VariableSyntax]) -> None:
    """Read every list by a changed syntax."""
    read_list = visible_devices_lists.read_list
    patches.set(visible_devices_lists, "read_list", lambda syntax, text, candidates: read_list(change(syntax), text, candidates))


def _resolve_as(patches: Patches, change: Callable[[Resolve, VisibleDevices, Any], Any]) -> None:
    """Resolve through `change(the right resolve, visible devices, id)`."""
    resolve = VisibleDevices.resolve
    patches.set(VisibleDevices, "resolve", lambda self, device_id: change(resolve, self, device_id))


def _normalize_as(patches: Patches, change: Callable[[Any], Any]) -> None:
    """Hand `change(id)` to the normalisation of ids."""
    normalize = device_ids.normalize_device_id
    patches.set(device_ids, "normalize_device_id", lambda value: normalize(change(value)))


# Lists ----------------------------------------------------------------------------------------------------------------------------


def _empty_read_as_unset(patches: Patches) -> None:
    deciding = visible_devices._deciding

    def without_empty(alternatives: Any, environment: Mapping[str, str]) -> VariableSyntax | None:
        return deciding(alternatives, {name: value for name, value in environment.items() if value})

    patches.set(visible_devices, "_deciding", without_empty)


def _order_lost(patches: Patches) -> None:
    arrange = visible_devices_lists._arrange

    def sorted_first(syntax: VariableSyntax, reading: visible_devices_lists.ListReading) -> None:
        if reading.entries is not None:
            reading.entries.sort(key=lambda entry: (entry.number is None, entry.number or 0, entry.name or ""))
        arrange(syntax, reading)

    patches.set(visible_devices_lists, "_arrange", sorted_first)


def _duplicates_shown_once(patches: Patches) -> None:
    _read_as(patches, lambda syntax: replace(syntax, duplicates="ignored"))


def _read_past_an_invalid_entry(patches: Patches) -> None:
    _read_as(patches, lambda syntax: replace(syntax, invalid="skipped"))


def _only_whole_numbers(patches: Patches) -> None:
    _read_as(patches, lambda syntax: replace(syntax, numbers="digits"))


def _unsorted_npu_list_accepted(patches: Patches) -> None:
    _read_as(patches, lambda syntax: replace(syntax, order="list") if syntax.order == "ascending" else syntax)


def _level_zero_keeps_order(patches: Patches) -> None:
    _read_as(patches, lambda syntax: replace(syntax, order="list") if syntax.order == "driver" else syntax)


def _every_entry_through_int(patches: Patches) -> None:
    read_list = visible_devices_lists.read_list

    def read_numbers(syntax: VariableSyntax, text: str, candidates: Any) -> Any:
        if text.startswith("GPU-"):
            int(text.partition(",")[0])
        return read_list(syntax, text, candidates)

    patches.set(visible_devices_lists, "read_list", read_numbers)


def _layers_not_composed(patches: Patches) -> None:
    patches.set(visible_devices_lists.Candidates, "of_entries", classmethod(lambda cls, _entries: cls()))


def _one_variable_diagnosed(patches: Patches) -> None:
    diagnose = visible_devices._diagnosis

    def first_only(visible: VisibleDevices) -> str:
        return diagnose(visible).replace(visible.deciding[-1].variable, "the variable") if visible.deciding else diagnose(visible)

    patches.set(visible_devices, "_diagnosis", first_only)


def _foreign_variable_read(patches: Patches) -> None:
    read = visible_devices.read_visible_devices

    def with_cuda(grammar: Any, environment: Mapping[str, str] | None = None, **host: Any) -> VisibleDevices:
        variables = dict(os.environ if environment is None else environment)
        if "CUDA_VISIBLE_DEVICES" in variables and grammar.primary_variable:
            variables.setdefault(grammar.primary_variable, variables["CUDA_VISIBLE_DEVICES"])
        return read(grammar, environment=variables, **host)

    patches.set(contract, "read_visible_devices", with_cuda)


# Ids ------------------------------------------------------------------------------------------------------------------------------


def _fraction_truncated(patches: Patches) -> None:
    def through_float(value: Any) -> Any:
        try:
            return int(float(value)) if isinstance(value, (float, str)) else value
        except ValueError:  # a UUID; infinity raises OverflowError, as it did
            return value

    _normalize_as(patches, through_float)


def _bool_accepted(patches: Patches) -> None:
    patches.set(device_ids, "_is_bool", lambda _value: False)


def _negative_wraps(patches: Patches) -> None:
    def wrapped(resolve: Resolve, visible: VisibleDevices, device_id: Any) -> Any:
        if isinstance(device_id, int) and device_id < 0 and visible.count:
            return LocalDeviceId(device_id % visible.count)
        return resolve(visible, device_id)

    _resolve_as(patches, wrapped)


def _local_mapped_twice(patches: Patches) -> None:
    def mapped(resolve: Resolve, visible: VisibleDevices, device_id: Any) -> Any:
        return resolve(visible, int(device_id) if isinstance(device_id, LocalDeviceId) else device_id)

    _resolve_as(patches, mapped)


def _local_wins_over_physical(patches: Patches) -> None:
    def local_first(resolve: Resolve, visible: VisibleDevices, device_id: Any) -> Any:
        if type(device_id) is int and visible.count and 0 <= device_id < visible.count:
            return LocalDeviceId(device_id)
        return resolve(visible, device_id)

    _resolve_as(patches, local_first)


def _sparse_list_refused(patches: Patches) -> None:
    def dense_only(resolve: Resolve, visible: VisibleDevices, device_id: Any) -> Any:
        if isinstance(device_id, int) and visible.chosen and device_id >= len(visible.chosen):
            raise VisibleDevicesError(f"invalid device id {device_id}; {visible.diagnosis}")
        return resolve(visible, device_id)

    _resolve_as(patches, dense_only)


def _physical_id_returned(patches: Patches) -> None:
    def unmapped(resolve: Resolve, visible: VisibleDevices, device_id: Any) -> Any:
        local = resolve(visible, device_id)
        entry = None if visible.chosen is None else visible.chosen[local]
        return local if entry is None or entry.number is None else LocalDeviceId(entry.number)

    _resolve_as(patches, unmapped)


def _hidden_device_resolves(patches: Patches) -> None:
    def anyway(resolve: Resolve, visible: VisibleDevices, device_id: Any) -> Any:
        return LocalDeviceId(device_id) if type(device_id) is int and visible.count == 0 else resolve(visible, device_id)

    _resolve_as(patches, anyway)


def _count_unchecked_when_unset(patches: Patches) -> None:
    def unchecked(resolve: Resolve, visible: VisibleDevices, device_id: Any) -> Any:
        return resolve(replace(visible, host_count=None) if visible.chosen is None else visible, device_id)

    _resolve_as(patches, unchecked)


def _short_uuid_unknown(patches: Patches) -> None:
    def whole(name: str, text: str, **_options: Any) -> bool:
        return name == text

    patches.set(visible_devices_entries, "starts_with", whole)


def _ambiguous_uuid_takes_the_first(patches: Patches) -> None:
    def first(visible: VisibleDevices, text: str, _device_id: object) -> int | None:
        fitting = (local for local, name in visible._names if visible._fits(name, text) or visible._fits(text, name))
        return next(fitting, None)

    patches.set(VisibleDevices, "_by_name", first)


# Texts and counts -----------------------------------------------------------------------------------------------------------------


def _error_without_the_variable(patches: Patches) -> None:
    patches.set(visible_devices, "_diagnosis", lambda _visible: "The device is not visible.")


def _list_with_brackets(patches: Patches) -> None:
    def as_python(_grammar: Any, ids: Iterable[Any], variable: str | None = None) -> str:  # noqa: ARG001 - the right signature
        return str([one.value if isinstance(one, PhysicalDeviceId) else one for one in ids])

    patches.set(visible_devices, "format_visible_devices", as_python)


def _dropped_entries_unnamed(patches: Patches) -> None:
    patches.set(VisibleDevices, "check_device_count", lambda _self, _actual: None)


def _driver_sorts(patches: Patches) -> None:
    read = machine.Machine._read_visible_cards
    patches.set(machine.Machine, "_read_visible_cards", lambda self: tuple(sorted(read(self), key=lambda card: card.index)))


FAULTS: tuple[Fault, ...] = (
    Fault(
        "vis-empty-read-as-unset",
        ("VIS-1", "VIS-8"),
        "A variable that is set but empty shows every device instead of none.",
        "seed",
        _empty_read_as_unset,
    ),
    Fault("vis-order-lost", ("VIS-4", "VIS-2"), "The list's order is lost, as in a set or a sorted list.", "B05", _order_lost),
    Fault(
        "vis-duplicate-shown-once",
        ("VIS-3",),
        "A repeated device is dropped instead of voiding the list.",
        "B34",
        _duplicates_shown_once,
    ),
    Fault(
        "vis-read-past-an-invalid-entry",
        ("VIS-2",),
        "Entries after the first invalid one stay visible.",
        "derived",
        _read_past_an_invalid_entry,
    ),
    Fault("vis-only-whole-numbers", ("VIS-11", "VIS-17"), "1gpu2 and +3 are not read as numbers.", "B09", _only_whole_numbers),
    Fault(
        "vis-npu-unsorted-list-accepted",
        ("VIS-17",),
        "An NPU list that does not ascend shows devices.",
        "derived",
        _unsorted_npu_list_accepted,
    ),
    Fault(
        "vis-level-zero-keeps-order", ("VIS-17",), "Level Zero's mask is read as a sequence.", "derived", _level_zero_keeps_order
    ),
    Fault(
        "vis-every-entry-through-int", ("VIS-5", "VIS-2"), "UUID entries are passed through int().", "B07", _every_entry_through_int
    ),
    Fault(
        "vis-layers-not-composed",
        ("VIS-13",),
        "The upper variable's numbers are taken as physical ids.",
        "B17",
        _layers_not_composed,
    ),
    Fault(
        "vis-one-variable-diagnosed",
        ("VIS-13",),
        "Two variables hide everything, and one of them is named.",
        "B18",
        _one_variable_diagnosed,
    ),
    Fault(
        "vis-foreign-variable-read",
        ("VIS-10",),
        "CUDA_VISIBLE_DEVICES is read on a device of another vendor.",
        "B31",
        _foreign_variable_read,
    ),
    Fault(
        "vis-fraction-truncated",
        ("VIS-6",),
        "Ids pass through int(float(value)): 1.5 is 1, infinity overflows.",
        "seed",
        _fraction_truncated,
    ),
    Fault("vis-bool-accepted", ("VIS-6",), "True is device 1.", "derived", _bool_accepted),
    Fault("vis-negative-wraps", ("VIS-6",), "A negative id counts from the end of the list.", "derived", _negative_wraps),
    Fault("vis-local-id-mapped-twice", ("VIS-14",), "A local id is looked up as a physical one again.", "B15", _local_mapped_twice),
    Fault(
        "vis-local-id-wins",
        ("VIS-4",),
        "A number in range is a local id even if the list names it.",
        "B14",
        _local_wins_over_physical,
    ),
    Fault("vis-sparse-list-refused", ("VIS-4",), "Physical ids past the list's length are refused.", "B26", _sparse_list_refused),
    Fault(
        "vis-physical-id-returned",
        ("VIS-9", "VIS-4"),
        "The physical id itself is handed out as the local one.",
        "B29",
        _physical_id_returned,
    ),
    Fault(
        "vis-hidden-device-resolves",
        ("VIS-8",),
        "With nothing visible a number is returned as it is.",
        "B11",
        _hidden_device_resolves,
    ),
    Fault(
        "vis-count-unchecked-when-unset",
        ("VIS-7",),
        "Without a variable a number past the last device resolves.",
        "derived",
        _count_unchecked_when_unset,
    ),
    Fault("vis-short-uuid-unknown", ("VIS-5",), "UUIDs match in full only.", "B02", _short_uuid_unknown),
    Fault(
        "vis-ambiguous-uuid-takes-the-first",
        ("VIS-5",),
        "An ambiguous prefix resolves to the first device.",
        "B03",
        _ambiguous_uuid_takes_the_first,
    ),
    Fault(
        "vis-error-without-the-variable",
        ("VIS-7", "VIS-8"),
        "Refusals do not name the variable.",
        "seed",
        _error_without_the_variable,
    ),
    Fault("vis-list-with-brackets", ("VIS-15",), "A list is written as Python prints it.", "B23", _list_with_brackets),
    Fault(
        "vis-dropped-entries-unnamed",
        ("VIS-16",),
        "The driver shows fewer devices, and nobody says so.",
        "B25",
        _dropped_entries_unnamed,
    ),
    Fault(
        "vis-driver-sorts-the-list",
        ("VIS-12",),
        "The driver numbers devices in its own order, not the list's.",
        "derived",
        _driver_sorts,
    ),
)
