"""Programs that allocate, free, view, empty the cache, run out of memory and reset peaks, with a model of what is live.

For: MEM-1 to MEM-4, MEM-6 and MEM-10 as one language; a program is told which of these clauses to judge. Sizes are in bytes. Right for
caching allocators: what an allocation takes may be more than was asked, but a free gives back exactly what its allocation took.
Not for: more memory than some MiB at a time, except in one request that no device can serve; nor for order between streams: the device is
waited for before contents are read.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from conformance.accelerator_access import method
from conformance.checking import expect_refusal, require
from conformance.programs.memory_statements import Allocate, AskTooMuch, EmptyCache, Free, ResetPeaks, View, WriteInPlace
from conformance.programs.printing import PrintsAsCode


@dataclass(frozen=True, repr=False)
class MemoryProgram(PrintsAsCode):
    """Statements in order. Devices count modulo the number of devices, live tensors modulo how many there are."""

    statements: tuple[Any, ...]

    def __repr__(self) -> str:
        return "\n" + "\n".join(map(str, self.statements))

    def run(self, accelerator: Any, *clauses: str) -> None:
        """Execute on a backend and judge the given clauses, then free everything.

        Raises:
            ClauseViolation: the first difference, with the statement.
        """
        method(accelerator, "set_device")(0)
        with no_collection():
            _Runner(accelerator, frozenset(clauses)).run(self.statements)
        method(accelerator, "set_device")(0)


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Python's cyclic collector frees nothing inside: tensors left by others keep their memory, so that counters stand still."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass
class _Memory:
    """What one allocation took from its device. `byte` fills it; `users` is the number of live tensors on it; `stream` is a number."""

    device: int
    taken: int
    byte: int
    stream: int = 0
    users: int = 1


@dataclass
class _Live:
    tensor: torch.Tensor
    memory: _Memory = field(repr=False)


Counters = list[tuple[int, int]]
"""(allocated, reserved) of each device that the program may use."""


class _Runner:
    def __init__(self, accelerator: Any, judged: frozenset[str]) -> None:
        self.accelerator = accelerator
        self.judged = judged
        self.count = int(method(accelerator, "device_count")())
        self.devices = range(min(self.count, MAX_DEVICES))
        self.used: set[int] = set()
        self.live: list[_Live] = []
        self.serial = 0
        self.peaks: Counters = []
        self.streams: dict[tuple[int, int], Any] = {}

    def run(self, statements: Sequence[Any]) -> None:
        before = self.counters()
        if "MEM-6" in self.judged:
            self.peaks = self.read_peaks()
        for statement in statements:
            getattr(self, f"_{type(statement).__name__}")(statement)
            self.judge_bounds(statement)
            self.judge_peaks(statement)
        self.require_contents("the program")
        while self.live:
            self._Free(Free(0))
        if "MEM-2" in self.judged:
            now = self.counters()
            for device in self.devices:
                require(
                    now[device][0] == before[device][0],
                    f"after all was freed, memory_allocated({device}) is {now[device][0]}; due was {before[device][0]}, as at first",
                )

    # Statements -------------------------------------------------------------------------------------------------------------

    def _Allocate(self, statement: Allocate) -> None:  # noqa: N802 - named after the statement
        device = statement.device % len(self.devices)
        method(self.accelerator, "set_device")(statement.current % len(self.devices))
        before = self.counters()
        self.serial += 1
        byte = self.serial * 37 % 251
        with self.on_stream(device, statement.stream):
            tensor = _WAYS[statement.way](statement.size, byte, method(self.accelerator, "device")(device))
        self.used.add(device)
        after = self.counters()
        memory = _Memory(device, after[device][0] - before[device][0], byte, statement.stream)
        self.live.append(_Live(tensor, memory))
        if "MEM-2" in self.judged:
            require(
                memory.taken >= statement.size,
                f"`{statement}` raised memory_allocated({device}) by {memory.taken}; due were at least {statement.size}",
            )
            self.require_others(before, after, device, statement)

    def _View(self, statement: View) -> None:  # noqa: N802
        if self.live:
            base = self.live[statement.which % len(self.live)]
            before = self.counters()
            base.memory.users += 1
            self.live.append(_Live(_VIEWS[statement.kind](base.tensor), base.memory))
            self.require_others(before, self.counters(), None, statement)

    def _WriteInPlace(self, statement: WriteInPlace) -> None:  # noqa: N802
        if self.live:
            one = self.live[statement.which % len(self.live)]
            before = self.counters()
            with self.on_stream(one.memory.device, one.memory.stream):
                one.tensor.fill_(one.memory.byte)
            self.require_others(before, self.counters(), None, statement)

    def _Free(self, statement: Free) -> None:  # noqa: N802
        if not self.live:
            return
        before = self.counters()
        memory = self.live.pop(statement.which % len(self.live)).memory
        memory.users -= 1
        after = self.counters()
        if "MEM-2" not in self.judged:
            return
        due = 0 if memory.users else memory.taken
        given = before[memory.device][0] - after[memory.device][0]
        still = ", which another tensor still uses," if memory.users else ""
        require(
            given == due,
            f"`{statement}`: the memory{still} took {memory.taken} bytes on device {memory.device}, and freeing lowered "
            f"memory_allocated by {given}; due was {due}",
        )
        self.require_others(before, after, memory.device, statement)

    def _EmptyCache(self, statement: EmptyCache) -> None:  # noqa: N802
        before = self.counters()
        method(self.accelerator, "empty_cache")()
        if "MEM-3" not in self.judged:
            return
        for device, (old, new) in enumerate(zip(before, self.counters(), strict=True)):
            require(new[0] == old[0], f"`{statement}` changed memory_allocated({device}) from {old[0]} to {new[0]}")
            require(new[1] <= old[1], f"`{statement}` raised memory_reserved({device}) from {old[1]} to {new[1]}")
        self.require_contents(statement)

    def _AskTooMuch(self, statement: AskTooMuch) -> None:  # noqa: N802
        index = statement.device % len(self.devices)
        device = method(self.accelerator, "device")(index)
        total = method(self.accelerator, "mem_get_info")(index)[1]
        size = statement.times * total + statement.extra
        element = torch.ones(1, dtype=torch.uint8, device=device)
        before = self.counters()

        def ask() -> str:
            return f"{_TOO_MUCH[statement.way](size, element).nbytes} bytes"

        ask.__qualname__ = str(statement)
        expect_refusal(ask, errors=(torch.OutOfMemoryError,))
        for number, (old, new) in enumerate(zip(before, self.counters(), strict=True)):
            require(new[0] == old[0], f"`{statement}` changed memory_allocated({number}) from {old[0]} to {new[0]}")
            require(new[1] <= old[1], f"`{statement}` raised memory_reserved({number}) from {old[1]} to {new[1]}")
        self.require_contents(statement)
        # As much as a live tensor had surely fits once that is gone, also on a device that others have filled.
        on_device = [position for position, one in enumerate(self.live) if one.memory.device == index and one.memory.users == 1]
        if on_device:
            freed = self.live.pop(on_device[0])
            fitting, byte, stream = freed.tensor.numel(), freed.memory.byte, freed.memory.stream
            del freed
        else:
            fitting, byte, stream = 4096, 7, 0
        with self.on_stream(index, stream):
            again = torch.full((fitting,), byte, dtype=torch.uint8, device=device)
        method(self.accelerator, "synchronize")(index)
        require(bool((again.cpu() == byte).all()), f"after `{statement}`, {fitting} bytes of {byte} on {device} hold other values")

    def _ResetPeaks(self, statement: ResetPeaks) -> None:  # noqa: N802
        device = statement.device % len(self.devices)
        method(self.accelerator, "reset_peak_memory_stats")(device)
        now, peaks = self.counters()[device], self.read_peaks()[device]
        require(
            peaks == now,
            f"after `{statement}`, the peaks of (allocated, reserved) on device {device} are {peaks}; due were the current {now}",
        )
        self.peaks[device] = now

    def on_stream(self, device: int, stream: int) -> Any:
        """A context in which a stream of a device is current there; stream 0 is the one that is so anyway."""
        if not stream or not method(self.accelerator, "supports")("streams"):
            return contextlib.nullcontext()
        if (device, stream) not in self.streams:
            self.streams[device, stream] = method(self.accelerator, "new_stream")(device)
        return method(self.accelerator, "stream")(self.streams[device, stream])

    # Judging ----------------------------------------------------------------------------------------------------------------

    def counters(self) -> Counters:
        allocated, reserved = method(self.accelerator, "memory_allocated"), method(self.accelerator, "memory_reserved")
        return [(allocated(device), reserved(device)) for device in self.devices]

    def read_peaks(self) -> Counters:
        allocated = method(self.accelerator, "max_memory_allocated")
        reserved = method(self.accelerator, "max_memory_reserved")
        return [(allocated(device), reserved(device)) for device in self.devices]

    def require_others(self, before: Counters, after: Counters, device: int | None, statement: Any) -> None:
        if "MEM-2" not in self.judged:
            return
        for other in self.devices:
            if other != device:
                require(
                    after[other][0] == before[other][0],
                    f"`{statement}` changed memory_allocated({other}) from {before[other][0]} to {after[other][0]}",
                )

    def require_contents(self, after: Any) -> None:
        if not self.judged & {"MEM-3", "MEM-4"}:
            return
        for device in self.used:
            method(self.accelerator, "synchronize")(device)
        for position, one in enumerate(self.live):
            require(
                bool((one.tensor.cpu() == one.memory.byte).all()),
                f"after `{after}`, live[{position}] of {one.tensor.numel()} bytes on device {one.memory.device} holds other values "
                f"than the {one.memory.byte} it was filled with",
            )

    def judge_bounds(self, after: Any) -> None:
        if "MEM-1" not in self.judged:
            return
        for device, (allocated, reserved) in enumerate(self.counters()):
            require(
                0 <= allocated <= reserved,
                f"after `{after}`, device {device} has allocated {allocated}, reserved {reserved}; due was 0 <= allocated <= reserved",
            )
            # Asking opens a context, so only where there is one.
            if device in self.used:
                free, total = method(self.accelerator, "mem_get_info")(device)
                require(reserved <= total, f"after `{after}`, device {device} has reserved {reserved} of {total} bytes")
                require(0 <= free <= total and total > 0, f"after `{after}`, mem_get_info({device}) is {(free, total)}")

    def judge_peaks(self, after: Any) -> None:
        if "MEM-6" not in self.judged:
            return
        for device, (now, peaks) in enumerate(zip(self.counters(), self.read_peaks(), strict=True)):
            for name, current, peak, earlier in zip(("allocated", "reserved"), now, peaks, self.peaks[device], strict=True):
                due = max(current, earlier)
                require(
                    peak >= due,
                    f"after `{after}`, max_memory_{name}({device}) is {peak}; due were at least {due} (now {current}, peak before "
                    f"{earlier})",
                )
            self.peaks[device] = peaks


MAX_DEVICES = 4
"""A context on each of many devices costs too much."""


def _empty(size: int, byte: int, device: torch.device) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device).fill_(byte)


def _moved(size: int, byte: int, device: torch.device) -> torch.Tensor:
    return torch.full((size,), byte, dtype=torch.uint8).to(device)


def _full(size: int, byte: int, device: torch.device) -> torch.Tensor:
    return torch.full((size,), byte, dtype=torch.uint8, device=device)


def _strided(size: int, byte: int, device: torch.device) -> torch.Tensor:
    return torch.empty_strided((size,), (1,), dtype=torch.uint8, device=device).fill_(byte)


_WAYS = {"empty": _empty, "full": _full, "empty_strided": _strided, "to(device)": _moved}
WAYS = tuple(sorted(_WAYS))
"""The calls that allocate, by name."""
_VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "view": lambda tensor: tensor.view(tensor.shape),
    "slice": lambda tensor: tensor[tensor.numel() // 2 :],
    "stepped slice": lambda tensor: tensor[::2],
    "row": lambda tensor: tensor[None][0],
    "detached alias": lambda tensor: tensor.detach(),
}
VIEWS = tuple(_VIEWS)
"""The calls that make one more tensor on the same memory, by name."""
_TOO_MUCH: dict[str, Callable[[int, torch.Tensor], torch.Tensor]] = {
    "empty": lambda size, element: torch.empty(size, dtype=torch.uint8, device=element.device),
    "zeros": lambda size, element: torch.zeros(size, dtype=torch.uint8, device=element.device),
    "a copy of an expanded element": lambda size, element: element.expand(size).clone(),
}
WAYS_TO_ASK_TOO_MUCH = tuple(sorted(_TOO_MUCH))
"""The calls that ask for too much, by name."""
