"""The steps of a stream program: what a host can ask of streams, events, buffers and devices.

For: one value a step, as it stands in the JSON document and as a person reads it. Not for: what a step means
(`models/stream_actions.py`), or running it (`stream_executor.py`).

Streams are named by their position in the program, `s0`, `s1`, …; buffers and events by any name. Every buffer holds equal elements; an
element is a whole number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar


@dataclass(frozen=True)
class Allocate:
    """A new buffer on the device of `stream`, filled with `value` by that stream."""

    do: ClassVar[str] = "allocate"
    buffer: str
    stream: int
    value: int

    def __str__(self) -> str:
        return f"s{self.stream}: {self.buffer} = full({self.value})"


@dataclass(frozen=True)
class AllocateHost:
    """A new buffer of the host, filled with `value` by the host; in pinned memory or not."""

    do: ClassVar[str] = "allocate_host"
    buffer: str
    value: int
    pinned: bool = False

    def __str__(self) -> str:
        return f"host: {self.buffer} = full({self.value}{', pin_memory=True' if self.pinned else ''})"


@dataclass(frozen=True)
class Kernel:
    """Arithmetic on buffers of one device, issued on a stream: `write` becomes `value - write` or, with `read`, `read - write`; where
    `keep` is false its old contents do not count: it becomes `value`, or `value - read`. `slow`: preceded by lengthy work."""

    do: ClassVar[str] = "kernel"
    stream: int
    write: str
    value: int
    read: str | None = None
    keep: bool = False
    slow: bool = False

    def __str__(self) -> str:
        if self.read is None:
            result = f"{self.value} - {self.write}" if self.keep else f"{self.value}"
        else:
            result = f"{self.read} - {self.write}" if self.keep else f"{self.value} - {self.read}"
        return f"s{self.stream}: {self.write} = {result}{'  (slow)' if self.slow else ''}"


@dataclass(frozen=True)
class Copy:
    """`target.copy_(source)` on a stream: within a device, between host and device, or between two devices, where `other` is the stream
    that is current on the device that `stream` is not of. `slow`: preceded by lengthy work on `stream`."""

    do: ClassVar[str] = "copy"
    stream: int
    source: str
    target: str
    blocking: bool = False
    other: int | None = None
    slow: bool = False

    def __str__(self) -> str:
        beside = "" if self.other is None else f" (s{self.other} current on its device)"
        mode = "" if self.blocking else ", non_blocking=True"
        return f"s{self.stream}{beside}: {self.target}.copy_({self.source}{mode}){'  (slow)' if self.slow else ''}"


@dataclass(frozen=True)
class Record:
    """`event.record(stream)`; the event is made where the name is new."""

    do: ClassVar[str] = "record"
    event: str
    stream: int

    def __str__(self) -> str:
        return f"{self.event}.record(s{self.stream})"


@dataclass(frozen=True)
class WaitEvent:
    """`stream.wait_event(event)`; nothing where the event was never recorded."""

    do: ClassVar[str] = "wait_event"
    stream: int
    event: str

    def __str__(self) -> str:
        return f"s{self.stream}.wait_event({self.event})"


@dataclass(frozen=True)
class WaitStream:
    """`stream.wait_stream(other)`."""

    do: ClassVar[str] = "wait_stream"
    stream: int
    other: int

    def __str__(self) -> str:
        return f"s{self.stream}.wait_stream(s{self.other})"


@dataclass(frozen=True)
class SynchronizeEvent:
    """The host waits for an event: by `synchronize()`, or by asking `query()` until it is true."""

    do: ClassVar[str] = "synchronize_event"
    event: str
    poll: bool = False

    def __str__(self) -> str:
        return f"until {self.event}.query()" if self.poll else f"{self.event}.synchronize()"


@dataclass(frozen=True)
class SynchronizeStream:
    """The host waits for a stream: by `synchronize()`, or by asking `query()` until it is true."""

    do: ClassVar[str] = "synchronize_stream"
    stream: int
    poll: bool = False

    def __str__(self) -> str:
        return f"until s{self.stream}.query()" if self.poll else f"s{self.stream}.synchronize()"


@dataclass(frozen=True)
class SynchronizeDevice:
    """The host waits for every stream of a device."""

    do: ClassVar[str] = "synchronize_device"
    device: int

    def __str__(self) -> str:
        return f"synchronize({self.device})"


@dataclass(frozen=True)
class SetDevice:
    """Make a device current; no other step depends on which one is."""

    do: ClassVar[str] = "set_device"
    device: int

    def __str__(self) -> str:
        return f"set_device({self.device})"


@dataclass(frozen=True)
class RecordStream:
    """`buffer.record_stream(stream)`: freed, its memory waits for what was issued on that stream before the free."""

    do: ClassVar[str] = "record_stream"
    buffer: str
    stream: int

    def __str__(self) -> str:
        return f"{self.buffer}.record_stream(s{self.stream})"


@dataclass(frozen=True)
class Free:
    """The end of a buffer: its last tensor goes, and its memory may be used again."""

    do: ClassVar[str] = "free"
    buffer: str

    def __str__(self) -> str:
        return f"del {self.buffer}"


@dataclass(frozen=True)
class HostWrite:
    """The host overwrites a host buffer."""

    do: ClassVar[str] = "host_write"
    buffer: str
    value: int

    def __str__(self) -> str:
        return f"host: {self.buffer} = {self.value}"


@dataclass(frozen=True)
class HostRead:
    """The host looks at a buffer: at its own memory directly (`stream` is None), at a device's by a copy on a stream that it waits for."""

    do: ClassVar[str] = "host_read"
    buffer: str
    stream: int | None = None

    def __str__(self) -> str:
        return f"host: read {self.buffer}" if self.stream is None else f"s{self.stream}: read {self.buffer}.cpu()"


Step = (
    Allocate
    | AllocateHost
    | Kernel
    | Copy
    | Record
    | WaitEvent
    | WaitStream
    | SynchronizeEvent
    | SynchronizeStream
    | SynchronizeDevice
    | SetDevice
    | RecordStream
    | Free
    | HostWrite
    | HostRead
)

KINDS: Mapping[str, Any] = MappingProxyType(
    {
        kind.do: kind
        for kind in (
            Allocate,
            AllocateHost,
            Kernel,
            Copy,
            Record,
            WaitEvent,
            WaitStream,
            SynchronizeEvent,
            SynchronizeStream,
            SynchronizeDevice,
            SetDevice,
            RecordStream,
            Free,
            HostWrite,
            HostRead,
        )
    }
)
"""Every kind of step by its name in the JSON document."""
