"""Reading the value of one visible-devices variable against the devices that are left to choose from (VIS-1 to VIS-5, VIS-17).

For: from text to an ordered choice of devices, with a reason for each entry that was dropped, in time linear in the text. Not
for: the text of a single entry (`visible_devices_entries.py`), which variable decides and how variables compose
(`visible_devices.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from harness.accelerator import visible_devices_entries as entries_of
from harness.accelerator.device_ids import PhysicalDevice, PhysicalDeviceId, quote
from harness.accelerator.visible_devices_grammars import VariableSyntax
from harness.errors import VisibleDevicesError

_FOREIGN = re.compile(r"[^0-9,]", re.ASCII)
_NAMED_DROPS = 64
"""Dropped entries that are kept one by one; more are only counted, so that a huge list costs no memory of its own."""


@dataclass(frozen=True)
class VisibleEntry:
    """One visible device.

    `number`: its physical number where that is known (of the whole device, for a part of one). `name`: its UUID or sub-device
    name, or the list's own text where no table is known. `is_part`: a MIG device or sub-device, whose id is `name` alone.
    `written_as_number`: how the list names it.
    """

    number: int | None
    name: str | None = None
    is_part: bool = False
    written_as_number: bool = True

    @property
    def identity(self) -> PhysicalDeviceId:
        """The id in the kind in which the list names the device."""
        if self.number is not None and not self.is_part and (self.written_as_number or self.name is None):
            return PhysicalDeviceId(self.number)
        return PhysicalDeviceId(self.name or "")

    @property
    def key(self) -> int | str | None:
        """Equal for entries that are the same device, as far as is known."""
        return self.name if self.is_part or self.number is None else self.number

    def part(self, name: str) -> VisibleEntry:
        """Its sub-device of that name."""
        return VisibleEntry(self.number, f"{self.identity}.{name}", is_part=True, written_as_number=False)


@dataclass(frozen=True)
class DroppedEntry:
    """An entry that shows no device, with the reason. `asked`: False for what is written to end a list (nothing, `-1`,
    `NoDevFiles`)."""

    text: str
    reason: str
    asked: bool = True

    def __str__(self) -> str:
        return f"{quote(self.text)} ({self.reason})"


@dataclass(frozen=True)
class Candidates:
    """The devices that a variable chooses among: by number where they are known one by one, else their `count`, or None."""

    count: int | None = None
    entries: Mapping[int, VisibleEntry] | None = None
    parts: tuple[VisibleEntry, ...] | None = None
    """The host's MIG devices, or None where they are not known."""

    @classmethod
    def of_host(cls, physical_devices: Sequence[PhysicalDevice] | None, device_count: int | None) -> Candidates:
        """Every device of the host.

        Raises:
            VisibleDevicesError: the table does not number its rows from 0 on, a negative count, or a count that differs from
            the table.
        """
        if physical_devices is None:
            if device_count is not None and device_count < 0:
                raise VisibleDevicesError(
                    f"device_count={device_count} is negative; give the number of devices of the host, or None"
                )
            return cls(count=device_count)
        if [row.index for row in physical_devices] != list(range(len(physical_devices))):
            raise VisibleDevicesError("the host's device table must number its rows 0, 1, 2, … in the driver's order")
        if device_count is not None and device_count != len(physical_devices):
            raise VisibleDevicesError(f"device_count={device_count}, but the host's device table has {len(physical_devices)} rows")
        entries = {row.index: VisibleEntry(row.index, row.uuid) for row in physical_devices}
        parts = tuple(VisibleEntry(row.index, uuid, True, False) for row in physical_devices for uuid in row.mig_uuids)
        return cls(len(entries), entries, parts or None)

    @classmethod
    def of_entries(cls, entries: Sequence[VisibleEntry]) -> Candidates:
        """What a layer leaves to the next: its devices, numbered anew."""
        parts = tuple(entry for entry in entries if entry.is_part)
        return cls(len(entries), dict(enumerate(entries)), parts or None)

    def numbered(self, number: int) -> VisibleEntry | None:
        """The candidate at an index, or None past the last."""
        if self.entries is not None:
            return self.entries.get(number)
        return VisibleEntry(number) if self.count is None or number < self.count else None

    def named(self, text: str, syntax: VariableSyntax) -> VisibleEntry | str:
        """The candidate whose UUID is or starts with `text`; a reason where none or several do. Any is taken where UUIDs are not known."""
        known = self._with_names(text)
        if known is None:
            return VisibleEntry(None, text, written_as_number=False)
        matches = [
            entry
            for entry in known
            if entries_of.starts_with(entry.name or "", text, ignores_case=syntax.ignores_case, bare_uuids=syntax.bare_uuids)
        ]
        matches = [entry for entry in matches if len(entry.name or "") == len(text)][:1] or matches
        if len(matches) == 1:
            return replace(matches[0], written_as_number=False)
        return f"ambiguous: the UUIDs of {len(matches)} devices start so" if matches else "no device has this UUID"

    def _with_names(self, text: str) -> list[VisibleEntry] | None:
        if text.startswith("MIG-"):
            return None if self.parts is None else list(self.parts)
        if self.entries is None or any(entry.name is None for entry in self.entries.values()):
            return None
        return list(self.entries.values())


@dataclass
class ListReading:
    """What one value says.

    `entries`: the chosen devices in the driver's order, or None for every candidate. `dropped`: the first entries that show
    none, each with its reason. `asked`: how many devices the value asks for, dropped ones included. `voided`: why the whole
    value shows nothing.
    """

    entries: list[VisibleEntry] | None = field(default_factory=list)
    dropped: list[DroppedEntry] = field(default_factory=list)
    asked: int = 0
    voided: str = ""

    def choose(self, entry: VisibleEntry) -> None:
        """Count and keep a device."""
        self.asked += 1
        if self.entries is not None:
            self.entries.append(entry)

    def drop(self, text: str, reason: str) -> None:
        """Count an entry that shows no device."""
        asked = not entries_of.is_terminator(text)
        self.asked += asked
        if len(self.dropped) < _NAMED_DROPS:
            self.dropped.append(DroppedEntry(text, reason, asked))

    def void(self, reason: str, text: str = "") -> None:
        """Hide every device that the value names."""
        if text:
            self.asked += 1
        named = [str(entry.identity) for entry in (self.entries or [])[:_NAMED_DROPS]] + ([text] if text else [])
        self.dropped = [DroppedEntry(name, "the whole list is void") for name in named] + self.dropped
        self.entries, self.voided = [], reason


def read_list(syntax: VariableSyntax, text: str, candidates: Candidates) -> ListReading:
    """Which candidates the variable's value chooses, in the order in which the driver shows them."""
    reading = ListReading()
    if text in syntax.sentinels:
        reading.dropped.append(DroppedEntry(text, "what batch systems write for no device", asked=False))
        return reading
    foreign = _FOREIGN.search(text) if syntax.stops_at == "foreign" else None
    listed = text[: foreign.start()] if foreign else text
    tokens = _selector_tokens(syntax, listed, reading) if syntax.selector else listed.split(",")
    if reading.voided or reading.entries is None:
        return reading
    _choose(syntax, tokens, entries_of.entry_parser(syntax, listed), candidates, reading)
    if foreign and not reading.voided:
        reading.drop(text[foreign.start() :], "reading stops at the first character that is neither a digit nor a comma")
    _arrange(syntax, reading)
    return reading


def _choose(
    syntax: VariableSyntax, tokens: list[str], parse: entries_of.EntryParser, candidates: Candidates, reading: ListReading
) -> None:
    seen: set[int | str | None] = set()
    remaining = iter(tokens)
    for token in remaining:
        found = _candidate(syntax, parse(token), candidates)
        if isinstance(found, str):
            reading.drop(token, found)
            if syntax.invalid == "ends":
                _drop_rest(remaining, token, reading)
        elif found.key not in seen:
            seen.add(found.key)
            reading.choose(found)
        elif syntax.duplicates == "voids":
            reading.void(f"{quote(token)} is a duplicate, and a duplicate voids the list", token)
            return
        else:
            reading.drop(token, "a duplicate")
            if syntax.duplicates == "ends":
                _drop_rest(remaining, token, reading)


def _candidate(syntax: VariableSyntax, parsed: entries_of.ParsedEntry, candidates: Candidates) -> VisibleEntry | str:
    """The device that an entry names, or the reason why it names none."""
    if isinstance(parsed, entries_of.InvalidEntry):
        return parsed.reason
    if isinstance(parsed, str):
        return candidates.named(parsed, syntax)
    number, part = (parsed.device, parsed.part) if isinstance(parsed, entries_of.SubDevice) else (parsed, "")
    found = candidates.numbered(number)
    if found is None:
        count = candidates.count
        return f"past the last of the {count} devices to choose from" if count else "there is no device to choose from"
    return found.part(part) if part else found


def _drop_rest(remaining: Iterator[str], ended_by: str, reading: ListReading) -> None:
    reason = f"comes after {quote(ended_by)}, which ends the list"
    for token in remaining:
        reading.drop(token, reason)


def _arrange(syntax: VariableSyntax, reading: ListReading) -> None:
    chosen = reading.entries or []
    numbers = [entry.number or 0 for entry in chosen]
    if syntax.order == "ascending" and numbers != sorted(set(numbers)):
        reading.void("the list does not ascend, and the driver then shows no device")
    elif syntax.order == "driver":
        chosen.sort(key=_driver_order)
        if not syntax.selector:
            chosen[:] = _joined_parts(chosen)
    elif syntax.mig_limit and chosen and (chosen[0].name or "").startswith("MIG-"):
        for extra in chosen[syntax.mig_limit :]:
            reading.asked -= 1
            reading.drop(str(extra.identity), "a process sees one MIG device, the first")
        del chosen[syntax.mig_limit :]


def _driver_order(entry: VisibleEntry) -> tuple[int, ...]:
    return tuple(int(number) for number in str(entry.identity).split("."))


def _joined_parts(chosen: list[VisibleEntry]) -> list[VisibleEntry]:
    """Several parts of one device, or a device and parts of it, show as that one device."""
    groups: dict[int | None, list[VisibleEntry]] = {}
    for entry in chosen:
        groups.setdefault(entry.number, []).append(entry)
    return [group[0] if len(group) == 1 else VisibleEntry(number) for number, group in groups.items()]


def _selector_tokens(syntax: VariableSyntax, text: str, reading: ListReading) -> list[str]:
    """The device entries of every term `backend:devices` for the syntax's backend; sets `reading` where there is no list to
    read."""
    tokens: list[str] = []
    for term in text.lower().split(";"):
        backend, colon, devices = term.strip().partition(":")
        if not colon or not devices or ":" in devices:
            reading.void(
                f"{quote(term)} is not backend:devices, and the runtime refuses it; write for example {syntax.selector}:0,1", term
            )
            return []
        if backend.startswith("!") or "*" in devices.strip("*"):
            reading.void(
                f"negated terms and sub-device wildcards ({quote(term)}) are not read here; list the devices instead", term
            )
            return []
        if backend in (syntax.selector, "*"):
            tokens += [token for token in devices.split(",") if token not in {"cpu", "fpga"}]
    if "*" in tokens or "gpu" in tokens:
        reading.entries = None
    return tokens
