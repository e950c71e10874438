"""What the steps of a stream program mean, in three kinds of action: launches, records and waits.

For: the one place that gives steps their meaning, which the oracle (`happens_before.py`), the orders (`stream_orders.py`) and the timeline
share. Not for: judging anything.

A lane does its actions one after the other: each stream is a lane, and so is the host. An action of another lane than the host's also
comes after everything that the host did before issuing it. A freed buffer's memory is written over on a lane of its own, after what the
allocating stream and the recorded streams were given before the free (STR-12): whatever else still uses the buffer is not ordered with
that.
"""

from __future__ import annotations

from dataclasses import dataclass

from conformance.programs.stream_buffers import HOST
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
    SynchronizeDevice,
    SynchronizeEvent,
    SynchronizeStream,
    WaitEvent,
    WaitStream,
)

HOST_LANE = -1
_FREE_LANES = 1000

Token = tuple[int, int]
"""Names one record: the step, and which of the step's records it is."""


@dataclass(frozen=True)
class Launch:
    """Work on a lane: `write` becomes constant + keep * write + factor * read; undetermined where `frees`."""

    step: int
    lane: int
    write: str
    read: str | None = None
    constant: int = 0
    keep: int = 0
    factor: int = 0
    frees: bool = False

    def result(self, old: int | None, read: int | None) -> int | None:
        """The value that `write` has then; None is an undetermined one."""
        if self.frees or (self.keep and old is None) or (self.factor and read is None):
            return None
        return self.constant + self.keep * (old or 0) + self.factor * (read or 0)


@dataclass(frozen=True)
class Mark:
    """A record on a lane: reached when everything before it on the lane is done."""

    step: int
    lane: int
    token: Token


@dataclass(frozen=True)
class Wait:
    """A lane goes on when a record is reached."""

    step: int
    lane: int
    token: Token


Action = Launch | Mark | Wait


class Lowering:
    """Turns steps into actions, one after the other. Buffers are named apart where a program uses a name again."""

    def __init__(self, streams: tuple[int, ...]) -> None:
        self._streams = streams
        self._events: dict[str, Token] = {}
        self.buffers: dict[str, str] = {}
        """The live buffers: the name in the program, and the name in actions."""
        self.places: dict[str, int] = {}
        """The device of each live buffer, or HOST."""
        self._made_on: dict[str, int] = {}
        self._used_on: dict[str, list[int]] = {}
        self._pinned: set[str] = set()
        self._actions: list[Action] = []
        self._step = 0

    def copy(self) -> Lowering:
        """One that goes its own way from here."""
        other = Lowering(self._streams)
        other._events = dict(self._events)
        other.buffers = dict(self.buffers)
        other.places = dict(self.places)
        other._made_on = dict(self._made_on)
        other._used_on = {buffer: list(streams) for buffer, streams in self._used_on.items()}
        other._pinned = set(self._pinned)
        return other

    def actions(self, number: int, step: Step) -> list[Action]:  # noqa: PLR0912 - one case a kind of step
        """The actions of a step, in the order of issue."""
        self._step, self._actions = number, []
        match step:
            case Allocate(buffer, stream, value):
                self._made_on[buffer] = stream
                self._launch(stream, self._new(buffer, self._streams[stream]), constant=value)
            case AllocateHost(buffer, value, pinned):
                (self._pinned.add if pinned else self._pinned.discard)(buffer)
                self._launch(HOST_LANE, self._new(buffer, HOST), constant=value)
            case Kernel():
                self._kernel(step)
            case Copy():
                self._copy(step)
            case Record(event, stream):
                self._events[event] = self._mark(stream)
            case WaitEvent(stream, event):
                self._wait_for_event(stream, event)
            case WaitStream(stream, other):
                self._wait(stream, self._mark(other))
            case SynchronizeEvent(event):
                self._wait_for_event(HOST_LANE, event)
            case SynchronizeStream(stream):
                self._wait(HOST_LANE, self._mark(stream))
            case SynchronizeDevice(device):
                self._synchronize(device)
            case RecordStream(buffer, stream):
                self._used_on.setdefault(buffer, []).append(stream)
            case Free(buffer):
                self._free(buffer)
            case HostWrite(buffer, value):
                self._launch(HOST_LANE, self.buffers[buffer], constant=value)
            case HostRead(buffer, None):
                self._launch(HOST_LANE, reading(number), self.buffers[buffer], factor=1)
            case HostRead(buffer, int(stream)):
                self._launch(stream, reading(number), self.buffers[buffer], factor=1)
                self._wait(HOST_LANE, self._mark(stream))
        return self._actions

    def event_token(self, event: str) -> Token | None:
        """The last record of an event; None where there was none."""
        return self._events.get(event)

    def final_actions(self, number: int) -> list[Action]:
        """What every run ends with: the host waits for all devices and reads every live buffer; `number` is that of no step."""
        self._step, self._actions = number, []
        for device in sorted(set(self._streams)):
            self._synchronize(device)
        for buffer in self.buffers:
            self._launch(HOST_LANE, final(buffer), self.buffers[buffer], factor=1)
        return self._actions

    # Parts of steps -----------------------------------------------------------------------------------------------------------

    def _new(self, buffer: str, place: int) -> str:
        self.buffers[buffer] = f"{buffer}#{self._step}"
        self.places[buffer] = place
        self._used_on.pop(buffer, None)
        return self.buffers[buffer]

    def _kernel(self, step: Kernel) -> None:
        write = self.buffers[step.write]
        if step.read is None and not step.keep:
            self._launch(step.stream, write, constant=step.value)
        elif step.read is None:
            self._launch(step.stream, write, keep=-1)
            self._launch(step.stream, write, constant=step.value, keep=1)
        elif step.keep:
            self._launch(step.stream, write, self.buffers[step.read], keep=1, factor=-1)
            self._launch(step.stream, write, keep=-1)
        else:
            self._launch(step.stream, write, constant=step.value)
            self._launch(step.stream, write, self.buffers[step.read], keep=1, factor=-1)

    def _copy(self, step: Copy) -> None:
        if step.other is not None:
            self._wait(step.stream, self._mark(step.other))
        self._launch(step.stream, self.buffers[step.target], self.buffers[step.source], factor=1)
        if step.other is not None:
            self._wait(step.other, self._mark(step.stream))
        if step.blocking and HOST in (self.places[step.source], self.places[step.target]):
            self._wait(HOST_LANE, self._mark(step.stream))

    def _synchronize(self, device: int) -> None:
        for stream, place in enumerate(self._streams):
            if place == device:
                self._wait(HOST_LANE, self._mark(stream))

    def _wait_for_event(self, lane: int, event: str) -> None:
        if event in self._events:
            self._wait(lane, self._events[event])

    def _free(self, buffer: str) -> None:
        name, place = self.buffers.pop(buffer), self.places.pop(buffer)
        lane = HOST_LANE
        if place != HOST:
            lane = _FREE_LANES + self._step
            for stream in (self._made_on[buffer], *self._used_on.get(buffer, ())):
                self._wait(lane, self._mark(stream))
        elif buffer in self._pinned:
            return  # its memory is not used again before the copies that were issued are done (STR-9)
        self._actions.append(Launch(self._step, lane, name, frees=True))

    def _launch(self, lane: int, write: str, read: str | None = None, constant: int = 0, keep: int = 0, factor: int = 0) -> None:
        self._actions.append(Launch(self._step, lane, write, read, constant, keep, factor))

    def _mark(self, lane: int) -> Token:
        token = (self._step, len(self._actions))
        self._actions.append(Mark(self._step, lane, token))
        return token

    def _wait(self, lane: int, token: Token) -> None:
        self._actions.append(Wait(self._step, lane, token))


def reading(step: int) -> str:
    """The name of what the host reads in a step."""
    return f"read in step {step}"


def final(buffer: str) -> str:
    """The name of what the host reads of a buffer at the end."""
    return f"{buffer} at the end"


def is_reading(name: str) -> bool:
    """Whether a launch writes what the host reads, and no buffer."""
    return "#" not in name
