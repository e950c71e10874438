"""Which devices a process sees, and the local id of a device under that view (VIS-1 to VIS-16).

For: reading a vendor's visible-devices variables as its driver does, without touching the driver; resolving physical ids and
UUIDs; writing a list in the vendor's notation. Not for: the vendors' rules themselves (`visible_devices_grammars.py`), reading
one value (`visible_devices_lists.py`), or asking the runtime how many devices there are.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from harness.accelerator import device_ids, visible_devices_entries, visible_devices_lists
from harness.accelerator.device_ids import LARGEST_NUMBER, LocalDeviceId, PhysicalDevice, PhysicalDeviceId, quote
from harness.accelerator.visible_devices_grammars import GRAMMARS, NO_VARIABLE, VariableSyntax, VisibleDevicesGrammar
from harness.accelerator.visible_devices_lists import Candidates, DroppedEntry, ListReading, VisibleEntry
from harness.errors import VisibleDevicesError

__all__ = [
    "GRAMMARS",
    "NO_VARIABLE",
    "LayerReading",
    "LocalDeviceId",
    "PhysicalDevice",
    "PhysicalDeviceId",
    "VisibleDevices",
    "VisibleDevicesGrammar",
    "format_visible_devices",
    "read_visible_devices",
]


@dataclass(frozen=True)
class LayerReading:
    """One variable that was looked at.

    `value`: its text, None where unset. `decided`: whether it chose devices. `shown`: how many it left visible; None where
    every device, or where it did not decide. `asked`: how many it asks for. `dropped`: the first entries that show no device.
    `voided`: why it shows nothing at all, else "".
    """

    variable: str
    value: str | None
    decided: bool
    shown: int | None = None
    asked: int = 0
    dropped: tuple[DroppedEntry, ...] = ()
    voided: str = ""

    def __str__(self) -> str:
        return f"{self.variable} is not set" if self.value is None else f"{self.variable}={quote(self.value)}"


@dataclass(frozen=True)
class VisibleDevices:
    """What the driver makes of the variables.

    `layers`: every variable that was looked at, in the driver's order. `host_count`: the number of devices of the host, None
    where unknown. `chosen`: the visible devices where a list is in force, else None.
    """

    grammar: VisibleDevicesGrammar
    layers: tuple[LayerReading, ...]
    host_count: int | None = None
    chosen: tuple[VisibleEntry, ...] | None = None
    physical_devices: tuple[PhysicalDevice, ...] | None = None
    container_variables_set: tuple[str, ...] = ()

    @property
    def count(self) -> int | None:
        """The number of visible devices; None where every device is and their number is not known."""
        return self.host_count if self.chosen is None else len(self.chosen)

    @cached_property
    def entries(self) -> tuple[PhysicalDeviceId, ...] | None:
        """The visible devices in the driver's order, each as the list names it; None where no list is in force."""
        return None if self.chosen is None else tuple(entry.identity for entry in self.chosen)

    @property
    def deciding(self) -> tuple[LayerReading, ...]:
        """The variables that chose devices."""
        return tuple(layer for layer in self.layers if layer.decided)

    @property
    def diagnosis(self) -> str:
        """One paragraph: which variables decide, what they show, and each dropped entry with its reason."""
        return _diagnosis(self)

    def resolve(self, device_id: object) -> LocalDeviceId:
        """The local id of a device.

        A number is taken as a physical id if the list names it, else as a local id if it is in range (VIS-4, VIS-7). Text is a
        UUID, in full or shortened (VIS-5), or the driver's own name of a part of a device. A `LocalDeviceId` is checked for
        range and returned (VIS-14); a `PhysicalDeviceId` is never taken as a local id.

        Raises:
            VisibleDevicesError: no such visible device, or an ambiguous UUID; the message names the variable, its value and
            what would be
                accepted.
            DeviceIdTypeError: an id of a type that no driver uses (VIS-6).
        """
        if isinstance(device_id, LocalDeviceId):
            return self._local(int(device_id), device_id, "a local id")
        wanted = device_ids.normalize_device_id(device_id)
        if self.count == 0:
            raise VisibleDevicesError(
                f"device id {quote(device_id)} cannot be resolved, since no device is visible: {self.diagnosis}"
            )
        local = self._by_number(wanted) if isinstance(wanted, int) else self._by_name(wanted, device_id)
        if local is not None:
            return LocalDeviceId(local)
        if isinstance(wanted, int) and (self.chosen is None or not isinstance(device_id, PhysicalDeviceId)):
            return self._local(wanted, device_id, "a physical id in the list or a local id")
        raise self._refusal(device_id, "no visible device has this id")

    def check_device_count(self, actual: int) -> None:
        """Compare what the driver shows with what the variables ask for (VIS-16).

        `actual` is the runtime's device count.

        Raises:
            VisibleDevicesError: the driver shows fewer devices than the variables ask for; the message names the dropped entries.
        """
        listing = [layer for layer in self.deciding if layer.shown is not None]
        asked = listing[-1].asked if listing else self.host_count
        if asked is None or actual >= asked:
            return
        dropped = [str(entry) for layer in listing for entry in layer.dropped if entry.asked]
        expected: Sequence[object] = range(asked) if self.entries is None else self.entries
        silently = [f"{quote(str(one))} (not shown by the driver)" for one in expected[max(actual, 0) :][:64]]
        subject = " with ".join(map(str, listing)) or "no variable hides a device, which"
        raise VisibleDevicesError(
            f"{subject} asks for {_devices(asked)}, but the driver shows {actual}. Dropped: {_listing(dropped + silently, most=64)}. List "
            "only devices that the driver has, each once and in its notation, and set the variable before the driver is first used"
        )

    def _by_number(self, number: int) -> int | None:
        return self._positions.get(number)

    @cached_property
    def _positions(self) -> dict[int, int]:
        """Physical number to local id, parts of devices left out."""
        chosen = self.chosen or ()
        return {entry.number: local for local, entry in enumerate(chosen) if entry.number is not None and not entry.is_part}

    def _by_name(self, text: str, device_id: object) -> int | None:
        names = self._names
        fitting = [local for local, name in names if name == text]
        if not fitting and not visible_devices_entries.is_sub_device(text):
            fitting = [local for local, name in names if self._fits(name, text) or self._fits(text, name)]
        if len(fitting) > 1:
            raise self._refusal(device_id, f"it is ambiguous: {len(fitting)} visible devices fit (local ids {_listing(fitting)})")
        return fitting[0] if fitting else None

    def _fits(self, longer: str, shorter: str) -> bool:
        ignores_case = any(syntax.ignores_case for layer in self.grammar.layers for syntax in layer)
        return visible_devices_entries.starts_with(longer, shorter, ignores_case=ignores_case, bare_uuids=True)

    @cached_property
    def _names(self) -> list[tuple[int, str]]:
        """(local id, UUID or name of a part) of each visible device that has one."""
        if self.chosen is not None:
            return [(local, entry.name) for local, entry in enumerate(self.chosen) if entry.name]
        return [(row.index, row.uuid) for row in self.physical_devices or () if row.uuid]

    def _local(self, number: int, device_id: object, kind: str) -> LocalDeviceId:
        if self.count == 0:
            raise VisibleDevicesError(
                f"device id {quote(device_id)} cannot be resolved, since no device is visible: {self.diagnosis}"
            )
        if not 0 <= number < (LARGEST_NUMBER + 1 if self.count is None else self.count):
            raise self._refusal(device_id, f"it is not {kind}")
        return LocalDeviceId(number)

    def _refusal(self, device_id: object, reason: str) -> VisibleDevicesError:
        return VisibleDevicesError(f"device id {quote(device_id)} cannot be resolved: {reason}. {self.diagnosis} {_accepted(self)}")


def read_visible_devices(
    grammar: VisibleDevicesGrammar,
    environment: Mapping[str, str] | None = None,
    physical_devices: Sequence[PhysicalDevice] | None = None,
    device_count: int | None = None,
) -> VisibleDevices:
    """What a vendor's driver makes of its variables in `environment` (`os.environ` where None). Initialises nothing.

    `physical_devices` is the host's device table and `device_count` the number of its devices, where they are known without
    initialising; with them, entries past the last device and unknown UUIDs are told apart.

    Raises:
        VisibleDevicesError: the table does not number its rows from 0 on, or the count contradicts it.
    """
    environment = os.environ if environment is None else environment
    candidates = Candidates.of_host(physical_devices, device_count)
    host_count, chosen, layers = candidates.count, None, []
    for alternatives in grammar.layers:
        syntax = _deciding(alternatives, environment)
        reading = None if syntax is None else visible_devices_lists.read_list(syntax, environment[syntax.name], candidates)
        if reading is not None and reading.entries is not None:
            chosen = tuple(reading.entries)
            candidates = Candidates.of_entries(chosen)
        layers += [_layer(one, environment, reading if one is syntax else None) for one in alternatives]
    return VisibleDevices(
        grammar,
        tuple(layers),
        host_count,
        chosen,
        None if physical_devices is None else tuple(physical_devices),
        tuple(name for name in grammar.container_variables if name in environment),
    )


def format_visible_devices(
    grammar: VisibleDevicesGrammar, ids: Iterable[int | str | PhysicalDeviceId], variable: str | None = None
) -> str:
    """The value that makes exactly these devices visible, in this order, in the vendor's notation (VIS-15).

    `variable` is the one to write for (`grammar.primary_variable` where None). No id at all gives the value that hides every
    device.

    Raises:
        VisibleDevicesError: the driver would not read the value back as these ids (a duplicate, mixed kinds, an order that it
        does not
            keep, a UUID where it knows none); the message says which.
        ValueError: a device without a variable, or a variable that the driver does not read.
    """
    name = grammar.primary_variable if variable is None else variable
    if name not in grammar.variables:
        known = f"it reads {', '.join(grammar.variables)}" if grammar.variables else "it reads none"
        raise ValueError(f"the {grammar.vendor} driver has no variable {name!r} to write a list for; {known}")
    syntax = grammar.syntax(name)
    wanted = tuple(PhysicalDeviceId(one.value if isinstance(one, PhysicalDeviceId) else one) for one in ids)
    if not wanted:
        if syntax.hide_all is None:
            raise VisibleDevicesError(
                f"no value of {name} hides every device reliably; leave the devices out of the caller's own list instead"
            )
        return syntax.hide_all
    text = ",".join(map(str, wanted))
    text = f"{syntax.selector}:{text}" if syntax.selector else text
    back = read_visible_devices(grammar, {name: text})
    if back.entries != wanted:
        raise VisibleDevicesError(
            f"{name} cannot show {_listing(wanted)} in this order: the driver would read {quote(text)} as "
            f"{_listing(back.entries or ()) or 'no device'}. {back.diagnosis}"
        )
    return text


def _deciding(alternatives: Sequence[VariableSyntax], environment: Mapping[str, str]) -> VariableSyntax | None:
    """The variable of a layer that chooses devices, by precedence; None where none does."""
    for syntax in alternatives:
        value = environment.get(syntax.name)
        if value is None or (value == "" and syntax.empty == "next"):
            continue
        return None if value == "" and syntax.empty == "every" else syntax
    return None


def _layer(syntax: VariableSyntax, environment: Mapping[str, str], reading: ListReading | None) -> LayerReading:
    value = environment.get(syntax.name)
    if reading is None:
        return LayerReading(syntax.name, value, decided=False)
    shown = None if reading.entries is None else len(reading.entries)
    return LayerReading(syntax.name, value, True, shown, reading.asked, tuple(reading.dropped), reading.voided)


# Text --------------------------------------------------------------------------------------------------------------------------


def _diagnosis(visible: VisibleDevices) -> str:
    grammar = visible.grammar
    if not grammar.layers:
        return "This device type has no visible-devices variable, so every device is visible."
    ignored = "".join(f" {name} is set too, but only container runtimes read it." for name in visible.container_variables_set)
    hidden = f" The host has {_devices(visible.host_count)}." if visible.host_count is not None else ""
    if not visible.deciding:
        idle = "; ".join(map(str, visible.layers))
        return f"No variable hides a device ({idle}), so every device is visible.{hidden}{ignored}"
    subject = " with ".join(map(str, visible.deciding))
    if visible.chosen is None:
        shows = "every device"
    elif visible.chosen:
        shows = f"{_devices(len(visible.chosen))}: {_listing(visible.entries or ())}"
    else:
        shows = "no device; " + _blame(visible.deciding)
    details = "".join(f" {layer.variable}: {layer.voided}." for layer in visible.deciding if layer.voided)
    dropped = [f"{layer.variable}: {entry}" for layer in visible.deciding if not layer.voided for entry in layer.dropped]
    lost = f" Dropped: {_listing(dropped)}." if dropped else ""
    return f"{subject} shows {shows}.{details}{lost}{hidden}{ignored}"


def _devices(number: int) -> str:
    return f"{number} device" if number == 1 else f"{number} devices"


def _blame(deciding: Sequence[LayerReading]) -> str:
    if len(deciding) > 1 and deciding[0].shown:
        return f"{deciding[1].variable} counts among the {deciding[0].shown} that {deciding[0].variable} left, from 0"
    return f"{next(layer.variable for layer in deciding if layer.shown == 0)} hides every device"


def _accepted(visible: VisibleDevices) -> str:
    if visible.chosen is not None:
        ids = _listing(visible.entries or ())
        return f"Accepted: the physical ids {ids}, and local ids from 0 to {len(visible.chosen) - 1} that are not among them."
    named = ", and UUIDs of the host's devices" if visible.physical_devices else ""
    if visible.host_count is None:
        return f"Accepted: device numbers from 0 on{named}."
    return f"Accepted: device numbers from 0 to {visible.host_count - 1}{named}."


def _listing(items: Sequence[object], most: int = 8) -> str:
    texts = [str(item) for item in items[:most]]
    shown = ", ".join(text if len(text) <= 300 else quote(text) for text in texts)
    return shown if len(items) <= most else f"{shown}, … ({len(items)} in all)"
