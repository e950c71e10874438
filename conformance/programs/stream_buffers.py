"""Which buffers and events a stream program has at each step, and where they are.

For: refusing steps that no device could take, when a document is read, and choosing steps that can be taken, when a program is drawn. Not
for: order; that is `models/happens_before.py`.
"""

from __future__ import annotations

from conformance.errors import ProgramError
from conformance.programs.stream_steps import (
    Allocate,
    AllocateHost,
    Copy,
    Free,
    HostRead,
    HostWrite,
    Kernel,
    Record,
    RecordStream,
    Step,
)

HOST = -1
"""The place of host buffers, beside the devices' indices."""


class Buffers:
    """The live buffers and the events after some steps. `places` holds each buffer's device or HOST; `made_on` the stream that a device
    buffer was allocated on; `pinned` the pinned ones; `event_devices` the device of each recorded event."""

    def __init__(self, streams: tuple[int, ...]) -> None:
        self.streams = streams
        self.places: dict[str, int] = {}
        self.made_on: dict[str, int] = {}
        self.pinned: set[str] = set()
        self.event_devices: dict[str, int] = {}

    def copy(self) -> Buffers:
        """One that goes its own way from here."""
        other = Buffers(self.streams)
        other.places, other.made_on = dict(self.places), dict(self.made_on)
        other.pinned, other.event_devices = set(self.pinned), dict(self.event_devices)
        return other

    def apply(self, step: Step, where: str) -> None:  # noqa: PLR0912 - one case a kind of step
        """Take a step.

        Raises:
            ProgramError: it cannot be taken; the text begins with `where`.
        """
        for name in ("stream", "other"):
            stream = getattr(step, name, None)
            if stream is not None and stream >= len(self.streams):
                raise ProgramError(f"{where}.{name}: {stream} is not one of the program's {len(self.streams)} streams")
        match step:
            case Allocate(buffer, stream):
                self._add(buffer, self.streams[stream], where)
                self.made_on[buffer] = stream
            case AllocateHost(buffer, _, pinned):
                self._add(buffer, HOST, where)
                if pinned:
                    self.pinned.add(buffer)
            case Kernel(stream, write, _, read):
                self._require_place(write, self.streams[stream], f"{where}.write")
                if read is not None:
                    self._require_place(read, self.streams[stream], f"{where}.read")
                if read == write:
                    raise ProgramError(f"{where}.read: a kernel reads another buffer than {write!r}, which it writes")
            case Copy():
                self._check_copy(step, where)
            case Record(event, stream):
                device = self.event_devices.setdefault(event, self.streams[stream])
                if device != self.streams[stream]:
                    raise ProgramError(f"{where}.stream: event {event!r} belongs to device {device}, where it was recorded first")
            case RecordStream(buffer, stream):
                self._require_place(buffer, self.streams[stream], f"{where}.buffer")
            case Free(buffer):
                self._require(buffer, f"{where}.buffer")
                del self.places[buffer]
                self.pinned.discard(buffer)
            case HostWrite(buffer):
                self._require_place(buffer, HOST, f"{where}.buffer")
            case HostRead(buffer, read_on):
                self._require_place(buffer, HOST if read_on is None else self.streams[read_on], f"{where}.buffer")

    def _add(self, buffer: str, place: int, where: str) -> None:
        if buffer in self.places:
            raise ProgramError(f"{where}.buffer: {buffer!r} exists already; free it first or choose another name")
        self.places[buffer] = place

    def _require(self, buffer: str, where: str) -> int:
        if buffer not in self.places:
            raise ProgramError(f"{where}: no buffer {buffer!r} at this step; live are {', '.join(self.places) or 'none'}")
        return self.places[buffer]

    def _require_place(self, buffer: str, place: int, where: str) -> None:
        found = self._require(buffer, where)
        if found != place:
            raise ProgramError(f"{where}: {buffer!r} is on {_shown(found)}; due was one on {_shown(place)}")

    def _check_copy(self, step: Copy, where: str) -> None:
        source, target = self._require(step.source, f"{where}.source"), self._require(step.target, f"{where}.target")
        devices = {source, target} - {HOST}
        if not devices or step.source == step.target:
            raise ProgramError(f"{where}: a copy has two buffers, at least one of them on a device")
        if self.streams[step.stream] not in devices:
            raise ProgramError(f"{where}.stream: s{step.stream} is on device {self.streams[step.stream]}, and neither buffer is")
        rest = devices - {self.streams[step.stream]}
        if rest and (step.other is None or self.streams[step.other] not in rest):
            raise ProgramError(f"{where}.other: the copy is between two devices; name a stream of device {rest.pop()}")
        if not rest and step.other is not None:
            raise ProgramError(f"{where}.other: the copy touches one device, so no other stream takes part; leave it out")


def _shown(place: int) -> str:
    return "the host" if place == HOST else f"device {place}"
