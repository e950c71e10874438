"""The management library of a simulated machine: it counts devices and gives their UUIDs without initialising the runtime.

For: `import pymtml` (Moore Threads' library) in its own names and in those of NVML, which the real one offers too. Not for:
readings that no one asks a simulated device for. It sees every physical device, whatever the visible-devices variable says.
"""

from __future__ import annotations

from collections import namedtuple
from types import ModuleType
from typing import Any

from fakes.device import PhysicalCard
from fakes.machine import Machine, current_machine

MemoryInfo = namedtuple("MemoryInfo", ("total", "free", "used"))


class MTMLError(Exception):
    """An error of the management library; `value` is its code."""

    def __init__(self, value: int, text: str) -> None:
        super().__init__(text)
        self.value = value


_UNINITIALIZED = 666
_NOT_FOUND = 672


class _Library:
    """One loaded library. Handles are the physical cards."""

    def __init__(self) -> None:
        self.references = 0

    def initialize(self) -> None:
        """Load it; each call needs a `shut_down`."""
        self.references += 1

    def shut_down(self) -> None:
        """Release it."""
        self._require()
        self.references -= 1

    def count(self) -> int:
        """The number of physical devices."""
        self._require()
        return len(current_machine().cards)

    def by_index(self, index: int) -> PhysicalCard:
        """A device's handle."""
        self._require()
        cards = current_machine().cards
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(cards):
            raise MTMLError(_NOT_FOUND, "Not Found")
        return cards[index]

    def by_uuid(self, uuid: str | bytes) -> PhysicalCard:
        """A device's handle."""
        self._require()
        text = uuid.decode() if isinstance(uuid, bytes) else uuid
        for card in current_machine().cards:
            if card.uuid == text:
                return card
        raise MTMLError(_NOT_FOUND, "Not Found")

    def uuid(self, card: PhysicalCard) -> str:
        """A device's UUID."""
        self._require()
        return card.uuid

    def name(self, card: PhysicalCard) -> str:
        """A device's name."""
        self._require()
        return card.name

    def index(self, card: PhysicalCard) -> int:
        """A device's number."""
        self._require()
        return card.index

    def memory(self, card: PhysicalCard) -> Any:
        """A device's memory in bytes: total, free, used. What this process holds counts as used."""
        self._require()
        machine = current_machine()
        used = 0
        if machine.is_initialized:
            used = sum(device.allocator.reserved for device in machine.initialize() if device.card is card)
        return MemoryInfo(card.memory, card.memory - used, used)

    def driver_version(self) -> str:
        """The version of the driver."""
        self._require()
        return "simulated"

    def _require(self) -> None:
        if not self.references:
            raise MTMLError(_UNINITIALIZED, "Uninitialized")


def modules(machine: Machine) -> tuple[ModuleType, ...]:
    """The modules under which the persona's management library is imported."""
    return tuple(_module(name) for name in machine.persona.management_modules)


def _module(name: str) -> ModuleType:
    library = _Library()
    module = ModuleType(name, "The management library of the simulated machine.")
    module.__dict__.update(
        MTMLError=MTMLError,
        NVMLError=MTMLError,
        mtmlLibraryInit=library.initialize,
        mtmlLibraryShutDown=library.shut_down,
        mtmlLibraryCountDevice=library.count,
        mtmlLibraryInitDeviceByIndex=library.by_index,
        mtmlLibraryInitDeviceByUuid=library.by_uuid,
        mtmlDeviceGetUUID=library.uuid,
        mtmlDeviceGetName=library.name,
        mtmlDeviceGetIndex=library.index,
        nvmlInit=library.initialize,
        nvmlShutdown=library.shut_down,
        nvmlDeviceGetCount=library.count,
        nvmlDeviceGetHandleByIndex=library.by_index,
        nvmlDeviceGetHandleByUUID=library.by_uuid,
        nvmlDeviceGetUUID=library.uuid,
        nvmlDeviceGetName=library.name,
        nvmlDeviceGetIndex=library.index,
        nvmlDeviceGetMemoryInfo=library.memory,
        nvmlSystemGetDriverVersion=library.driver_version,
    )
    return module
