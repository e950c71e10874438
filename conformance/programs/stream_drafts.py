"""Drawing stream programs: race-free ones in which every wait is needed, and racy ones.

For: Hypothesis strategies, and turning what they draw into a program for as many devices as there are. Not for: what a program means
(`models/happens_before.py`).

What is drawn is a draft: small numbers, each of which asks for one thing ("a kernel on that stream, on that buffer"). The program is made
from it step by step: buffers are allocated when they are first used, and where a step would race with an earlier one, a wait of a drawn
kind is put before it. So whatever Hypothesis removes from a draft, the rest is a race-free program, and each wait carries weight: a device
that ignores it races.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

from hypothesis import strategies as st

from conformance.errors import ProgramError
from conformance.models.happens_before import HappensBefore, Race
from conformance.models.stream_actions import HOST_LANE
from conformance.programs.printing import PrintsAsCode
from conformance.programs.stream_buffers import Buffers
from conformance.programs.stream_program import MAX_STEPS, StreamProgram
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
    SetDevice,
    Step,
    SynchronizeDevice,
    SynchronizeEvent,
    SynchronizeStream,
    WaitEvent,
    WaitStream,
)

Wish = tuple[str, int, int, int, int]
"""One thing that a draft asks for: its kind, and four numbers that choose among what there is."""

MAX_WISHES = 24
_BUFFERS = ("a", "b", "c")
_HOST_BUFFERS = ("p", "q", "h")  # the last one is never pinned

HOST_WAITS = ("synchronize event", "synchronize stream", "synchronize device", "poll event", "poll stream")
STREAM_WAITS = ("wait_event", "wait_stream")
EVERY_KIND = (
    *("kernel",) * 5,
    *("copy",) * 4,
    *("host_read",) * 2,
    *("record",) * 2,
    "host_write",
    "wait_event",
    "wait_stream",
    "synchronize",
    "free",
    "record_stream",
    "set_device",
)


@dataclass(frozen=True)
class Focus:
    """What programs may be made of: kinds of wishes (by weight), kinds of waits, and at most how many streams and devices. `racy`: some
    waits are left out."""

    kinds: tuple[str, ...] = EVERY_KIND
    waits: tuple[str, ...] = STREAM_WAITS + HOST_WAITS
    streams: int = 4
    devices: int = 2
    racy: bool = False
    both_devices: bool = False
    """Whether the streams are always spread over the devices."""


@dataclass(frozen=True, repr=False)
class StreamDraft(PrintsAsCode):
    """What Hypothesis draws."""

    focus: Focus
    streams: int
    spread: bool
    default: bool
    wishes: tuple[Wish, ...]

    def __repr__(self) -> str:
        return "(what the program above was made from)"

    def program(self, devices: int, *, pinned: bool) -> StreamProgram:
        """The program for a backend with this many devices, with pinned host memory or without."""
        count = min(devices, self.focus.devices, self.streams) if self.spread or self.focus.both_devices else 1
        places = tuple(stream % count for stream in range(self.streams))
        maker = _Maker(self.focus, places, pinned)
        for wish in self.wishes:
            maker.grant(wish)
        return StreamProgram(places, tuple(maker.steps), (0,) if self.default else ())


def stream_drafts(focus: Focus = Focus()) -> st.SearchStrategy[StreamDraft]:
    """Drafts of race-free programs, or of racy ones where the focus says so."""
    # "nothing" comes first: what is not needed for a failure shrinks to it.
    kinds = st.sampled_from(("nothing", *focus.kinds))
    wish = st.tuples(kinds, *[st.integers(0, limit) for limit in (7, 7, 7, 15)])
    return st.builds(
        StreamDraft,
        focus=st.just(focus),
        streams=st.integers(2 if focus.both_devices else 1, focus.streams),
        spread=st.booleans(),
        default=st.booleans(),
        wishes=st.integers(1, MAX_WISHES).flatmap(lambda count: st.tuples(*[wish] * count)),
    )


class _Maker:
    """Makes a program step by step."""

    def __init__(self, focus: Focus, places: tuple[int, ...], pinned: bool) -> None:
        self.focus, self.places, self.pinned = focus, places, pinned
        self.steps: list[Step] = []
        self.order = HappensBefore(places)
        self.buffers = Buffers(places)

    def grant(self, wish: Wish) -> None:
        """Do what a wish asks for, with the waits that it needs; nothing where it cannot be done or the program is full."""
        kind, *numbers = wish
        if kind == "nothing":
            return
        makers: dict[str, Callable[..., Iterator[Step]]] = {
            "kernel": self._kernel,
            "copy": self._copy,
            "record": self._record,
            "wait_event": self._wait_event,
            "wait_stream": self._wait_stream,
            "synchronize": self._synchronize,
            "free": self._free,
            "record_stream": self._record_stream,
            "set_device": self._set_device,
            "host_write": self._host_write,
            "host_read": self._host_read,
        }
        before = len(self.steps), self.order, self.buffers
        self.order = self.order.copy()
        self.buffers = self.buffers.copy()
        try:
            for step in makers[kind](*numbers):
                self._take_in_order(step, numbers[3])
        except ProgramError:
            del self.steps[before[0] :]
            self.order, self.buffers = before[1:]

    # Wishes -------------------------------------------------------------------------------------------------------------------

    def _kernel(self, which: int, stream: int, other: int, how: int) -> Iterator[Step]:
        on = stream % len(self.places)
        write = yield from self._buffer(which, self.places[on], other)
        keep, reads = (True, False) if how % 4 == 0 else (how % 4 == 2, how % 4 != 3)
        read = (yield from self._buffer(which + 1 + other % 2, self.places[on], how)) if reads else None
        yield Kernel(on, write, self._value(), read, keep, slow=how >= 8)

    def _copy(self, which: int, stream: int, where: int, how: int) -> Iterator[Step]:
        on = stream % len(self.places)
        here = self.places[on]
        other = next((at for at in range(len(self.places)) if self.places[at] != here and where % 2), None)
        near = yield from self._buffer(which, here, how)
        if where < 4:
            far = yield from self._host_buffer(which + where)
            other = None
        elif other is None:
            far = yield from self._buffer(which + 1, here, how)
        else:
            far = yield from self._buffer(which, self.places[other], how)
        source, target = (near, far) if how % 2 else (far, near)
        yield Copy(on, source, target, blocking=how % 8 >= 4, other=other, slow=how >= 8)

    def _record(self, which: int, stream: int, _other: int, _how: int) -> Iterator[Step]:
        on = stream % len(self.places)
        yield Record(self._event(on, which), on)

    def _wait_event(self, which: int, stream: int, other: int, _how: int) -> Iterator[Step]:
        yield WaitEvent(stream % len(self.places), self._event(other % len(self.places), which))

    def _wait_stream(self, which: int, stream: int, _other: int, _how: int) -> Iterator[Step]:
        yield WaitStream(stream % len(self.places), which % len(self.places))

    def _synchronize(self, which: int, stream: int, other: int, _how: int) -> Iterator[Step]:
        on = stream % len(self.places)
        poll = which % 2 == 1
        if other % 3 == 0:
            yield SynchronizeEvent(self._event(on, which), poll)
        elif other % 3 == 1:
            yield SynchronizeStream(on, poll)
        else:
            yield SynchronizeDevice(self.places[on])

    def _free(self, which: int, _stream: int, _other: int, _how: int) -> Iterator[Step]:
        live = sorted(self.buffers.places)
        if live:
            yield Free(live[which % len(live)])

    def _record_stream(self, which: int, stream: int, _other: int, _how: int) -> Iterator[Step]:
        on = stream % len(self.places)
        live = sorted(name for name, place in self.buffers.places.items() if place == self.places[on])
        if live:
            yield RecordStream(live[which % len(live)], on)

    def _set_device(self, which: int, _stream: int, _other: int, _how: int) -> Iterator[Step]:
        yield SetDevice(which % (1 + max(self.places)))

    def _host_write(self, which: int, _stream: int, _other: int, _how: int) -> Iterator[Step]:
        buffer = yield from self._host_buffer(which)
        yield HostWrite(buffer, self._value())

    def _host_read(self, which: int, stream: int, other: int, _how: int) -> Iterator[Step]:
        on = stream % len(self.places)
        if other % 2:
            buffer = yield from self._host_buffer(which)
            yield HostRead(buffer)
        else:
            buffer = yield from self._buffer(which, self.places[on], other)
            yield HostRead(buffer, on)

    # What wishes choose among ---------------------------------------------------------------------------------------------------

    def _buffer(self, which: int, device: int, stream: int) -> Generator[Step, None, str]:
        name = f"{_BUFFERS[which % len(_BUFFERS)]}{device or ''}"
        if name not in self.buffers.places:
            here = [at for at, place in enumerate(self.places) if place == device]
            yield Allocate(name, here[stream % len(here)], self._value())
        return name

    def _host_buffer(self, which: int) -> Generator[Step, None, str]:
        name = _HOST_BUFFERS[which % len(_HOST_BUFFERS)]
        if name not in self.buffers.places:
            yield AllocateHost(name, self._value(), self.pinned and name != _HOST_BUFFERS[-1])
        return name

    def _event(self, stream: int, which: int) -> str:
        """One of two events of the stream's device."""
        return f"e{2 * self.places[stream] + which % 2}"

    def _value(self) -> int:
        """A number of its own for each step."""
        return len(self.steps) + 1

    # Order ----------------------------------------------------------------------------------------------------------------------

    def _take_in_order(self, step: Step, how: int) -> None:
        """Take a step, after the waits without which it would race."""
        for _ in range(2 * len(self.places)):
            races = self.order.copy().apply(step)
            if not races or (self.focus.racy and how % 3 == 0 and not isinstance(step, Free)):
                break
            for wait in self._waits_against(races[0], step, how):
                self._take(wait)
        else:
            raise ProgramError("the step cannot be ordered")
        self._take(step)

    def _take(self, step: Step) -> None:
        if len(self.steps) >= MAX_STEPS:
            raise ProgramError("the program is full")
        self.buffers.apply(step, "")
        self.order.apply(step)
        self.steps.append(step)

    def _waits_against(self, race: Race, step: Step, how: int) -> list[Step]:
        """Steps that order the first access of a race before the step that would be the second."""
        first = race.first.lane
        second = race.second.lane
        if isinstance(step, Free) and second != HOST_LANE:
            if "record_stream" in self.focus.kinds and how % 2 == 0:
                return [RecordStream(step.buffer, first)]
            second = self.buffers.made_on[step.buffer]
        known = HOST_WAITS if second == HOST_LANE else STREAM_WAITS + HOST_WAITS
        legal = [kind for kind in self.focus.waits if kind in known] or [kind for kind in HOST_WAITS if kind in known]
        kind = legal[how % len(legal)]
        event = self._event(first, how // 2)
        # An event that was recorded before may do, and is worth more: other steps lie between its record and the wait.
        older = next((name for name in sorted(self.buffers.event_devices) if self.order.event_covers(name, race.first)), None)
        record: list[Step] = [Record(event, first)]
        if older is not None:
            event, record = older, []
        steps: dict[str, list[Step]] = {
            "wait_event": [*record, WaitEvent(second, event)],
            "wait_stream": [WaitStream(second, first)],
            "synchronize event": [*record, SynchronizeEvent(event)],
            "poll event": [*record, SynchronizeEvent(event, poll=True)],
            "synchronize stream": [SynchronizeStream(first)],
            "poll stream": [SynchronizeStream(first, poll=True)],
            "synchronize device": [SynchronizeDevice(self.places[first])],
        }
        return steps[kind]
