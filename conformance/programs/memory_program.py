"""Programs that allocate, free, view, empty the cache, run out of memory and reset peaks, with a model of what is live.

For: MEM-1 to MEM-4 and MEM-6 as one language; a program is told which of these clauses to judge. Sizes are in bytes. Right for
caching allocators: what an allocation takes may be more than was asked, but a free gives back exactly what its allocation took.
Not for: more memory than a few MiB at a time, except in one request that no device can serve."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import strategies as st

from conformance.accelerator_access import method
from conformance.checking import expect_refusal, require
from conformance.programs.printing import PrintsAsCode


@dataclass(frozen=True)
class Allocate:
    """`size` bytes on a device while another one may be current. `way`: the call that allocates."""

    size: int
    device: int
    current: int
    way: str

    def __str__(self) -> str:
        return f"t = {self.way} of {self.size} bytes on device {self.device}  # while {self.current} is current"


@dataclass(frozen=True)
class View:
    """One more tensor that shares the memory of a live one."""

    which: int

    def __str__(self) -> str:
        return f"t = a view of live[{self.which}]"


@dataclass(frozen=True)
class Free:
    """The end of a live tensor."""

    which: int

    def __str__(self) -> str:
        return f"del live[{self.which}]"


@dataclass(frozen=True)
class EmptyCache:
    """`empty_cache()`."""

    def __str__(self) -> str:
        return "empty_cache()"


@dataclass(frozen=True)
class AskTooMuch:
    """A request for the device's memory times `times`, plus `extra` bytes."""

    device: int
    times: int
    extra: int
    way: str

    def __str__(self) -> str:
        return f"{self.way} of {self.times} * total + {self.extra} bytes on device {self.device}  # refused"


@dataclass(frozen=True)
class ResetPeaks:
    """`reset_peak_memory_stats(device)`."""

    device: int

    def __str__(self) -> str:
        return f"reset_peak_memory_stats({self.device})"


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
    """What one allocation took from its device. `byte` fills it; `users` is the number of live tensors on it."""

    device: int
    taken: int
    byte: int
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
        self.devices = range(min(self.count, _DEVICES))
        self.used: set[int] = set()
        self.live: list[_Live] = []
        self.serial = 0
        self.peaks: Counters = []

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
        tensor = _WAYS[statement.way](statement.size, byte, method(self.accelerator, "device")(device))
        self.used.add(device)
        after = self.counters()
        memory = _Memory(device, after[device][0] - before[device][0], byte)
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
            self.live.append(_Live(base.tensor.view(-1), base.memory))
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
            fitting, byte = freed.tensor.numel(), freed.memory.byte
            del freed
        else:
            fitting, byte = 4096, 7
        again = torch.full((fitting,), byte, dtype=torch.uint8, device=device)
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
        for position, one in enumerate(self.live):
            wrong = (one.tensor.cpu() != one.memory.byte).nonzero()
            require(
                not wrong.numel(),
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


_DEVICES = 4  # a context on each of many devices costs too much


def _empty(size: int, byte: int, device: torch.device) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device).fill_(byte)


def _moved(size: int, byte: int, device: torch.device) -> torch.Tensor:
    return torch.full((size,), byte, dtype=torch.uint8).to(device)


def _full(size: int, byte: int, device: torch.device) -> torch.Tensor:
    return torch.full((size,), byte, dtype=torch.uint8, device=device)


def _strided(size: int, byte: int, device: torch.device) -> torch.Tensor:
    return torch.empty_strided((size,), (1,), dtype=torch.uint8, device=device).fill_(byte)


_WAYS = {"empty": _empty, "full": _full, "empty_strided": _strided, "to(device)": _moved}
_TOO_MUCH: dict[str, Callable[[int, torch.Tensor], torch.Tensor]] = {
    "empty": lambda size, element: torch.empty(size, dtype=torch.uint8, device=element.device),
    "zeros": lambda size, element: torch.zeros(size, dtype=torch.uint8, device=element.device),
    "a copy of an expanded element": lambda size, element: element.expand(size).clone(),
}
_SIZES = (1, 513, 0, 512, 511, 4096, 65537, (2 << 20) + 8)

# Sampled from lists, which is much cheaper to draw than building each from parts; the simplest come first.
_NUMBERS = range(_DEVICES)
_allocate = st.sampled_from(
    [
        Allocate(size, device, current, way)
        for size in _SIZES
        for way in sorted(_WAYS)
        for current in _NUMBERS
        for device in _NUMBERS
    ]
)
_free, _view = st.sampled_from([Free(which) for which in range(5)]), st.sampled_from([View(which) for which in range(5)])
_empty_cache = st.just(EmptyCache())
_too_much = st.sampled_from(
    [
        AskTooMuch(device, times, extra, way)
        for times in (1, 2, 8)
        for extra in (1, 4096, 1 << 30)
        for device in _NUMBERS
        for way in sorted(_TOO_MUCH)
    ]
)
_reset = st.sampled_from([ResetPeaks(device) for device in _NUMBERS])


def programs(*, out_of_memory: bool = False, peaks: bool = False) -> st.SearchStrategy[MemoryProgram]:
    """Programs that allocate, view, free and empty the cache, and that run out of memory or reset peaks where asked."""
    choices: list[st.SearchStrategy[Any]] = [_allocate, _allocate, _allocate, _free, _free, _view, _empty_cache]
    choices.extend([_too_much] * 3 * out_of_memory)
    choices.extend([_reset] * 3 * peaks)
    return st.lists(st.one_of(*choices), min_size=2, max_size=8).map(lambda statements: MemoryProgram(tuple(statements)))
