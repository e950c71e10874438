"""The statements of memory programs.

For: one value a statement, as a person reads it. Not for: running them (`memory_program.py`) or drawing them (`memory_drafts.py`).
Devices count modulo the number of devices, live tensors modulo how many there are. Sizes are in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Allocate:
    """`size` bytes on a device while another one may be current. `way`: the call that allocates. `stream`: which of a few streams of
    the device is current there, 0 for the one that is so anyway."""

    size: int
    device: int
    current: int
    way: str
    stream: int = 0

    def __str__(self) -> str:
        where = f" on stream {self.stream}" if self.stream else ""
        return f"t = {self.way} of {self.size} bytes on device {self.device}{where}  # while {self.current} is current"


@dataclass(frozen=True)
class View:
    """One more tensor that shares the memory of a live one. `kind`: the call that makes it."""

    which: int
    kind: str = "view"

    def __str__(self) -> str:
        return f"t = a {self.kind} of live[{self.which}]"


@dataclass(frozen=True)
class WriteInPlace:
    """An operator that writes a live tensor in place, and needs no memory."""

    which: int

    def __str__(self) -> str:
        return f"live[{self.which}].fill_(the byte it has)"


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
