"""Faults of events (STR-2 to STR-4, STR-8, STR-10).

For: records, waits, queries and times that mean something else than they say, in the simulated device. Not for: streams and their contexts
(`streams.py`), copies and the host's waits (`ordering.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fakes.event import Event
from fakes.faults.fault import Fault
from fakes.faults.replacing import Apply, nothing, replace
from fakes.machine import current_machine
from fakes.patching import Patches
from fakes.scheduling.launches import Launch
from fakes.scheduling.scheduler import DeferringScheduler
from fakes.stream import Stream, wrap


def _current_stream(of: Any = None) -> Any:
    """The current stream of the current device, or of a stream's device."""
    machine = current_machine()
    index = machine.current_device() if of is None else of.state.device_index
    return wrap(machine.current_stream(index), machine)


def _default_stream(of: Any) -> Any:
    machine = current_machine()
    return wrap(machine.device(of.state.device_index).default_stream, machine)


# Waits ---------------------------------------------------------------------------------------------------------------------------


def _apply_wait_event_ignored(patches: Patches) -> None:
    patches.set(Stream, "wait_event", nothing)
    patches.set(Stream, "wait_stream", lambda self, stream: stream.record_event().wait(self))


def _wait_on_current(_original: Any, self: Any, event: Any) -> None:
    event.wait(_current_stream(self))


def _wait_on_default(_original: Any, self: Any, event: Any) -> None:
    event.wait(_default_stream(self))


def _wait_stream_reversed(_original: Any, self: Any, stream: Any) -> None:
    stream.wait_event(self.record_event())


def _wait_stream_for_current(_original: Any, self: Any, stream: Any) -> None:
    self.wait_event(_current_stream(stream).record_event())


def _wait_if_recorded_on_same_device(original: Any, self: Any, event: Any) -> None:
    if event.device is None or event.device == self.device:
        original(self, event)


def _apply_binds_to_latest(patches: Patches) -> None:
    """A wait that still holds its stream moves on to a later record of its event."""
    waits: list[tuple[Any, Launch]] = []
    record, wait = DeferringScheduler.record, DeferringScheduler.wait

    def waiting(self: Any, event: Any, stream: Any) -> None:
        wait(self, event, stream)
        queue = self._queue(stream)
        if queue.pending:
            waits.append((event, queue.pending[-1]))

    def recording(self: Any, event: Any, stream: Any) -> None:
        record(self, event, stream)
        for bound, launch in waits:
            if bound is event and not launch.is_done:
                launch.after = [event.ticket]
        waits[:] = [(bound, launch) for bound, launch in waits if not launch.is_done]

    patches.set(DeferringScheduler, "wait", waiting)
    patches.set(DeferringScheduler, "record", recording)


def _first_record_only(original: Any, self: Any, event: Any, stream: Any) -> None:
    """A second record moves nothing but the time."""
    ticket, on = event.ticket, event.recorded_on
    original(self, event, stream)
    if ticket is not None:
        event.ticket, event.recorded_on = ticket, on


def _apply_second_wait_replaces_first(patches: Patches) -> None:
    """A stream holds one wait: a further one takes the place of one that is still pending."""
    wait = DeferringScheduler.wait

    def waiting(self: Any, event: Any, stream: Any) -> None:
        for launch in self._queue(stream).pending:
            if launch.name == "wait":
                launch.after = []
        wait(self, event, stream)

    patches.set(DeferringScheduler, "wait", waiting)


# Records -------------------------------------------------------------------------------------------------------------------------


def _record_on_current(original: Any, self: Any, stream: Any = None) -> None:
    original(self, None if stream is None else _current_stream(stream))


def _record_too_early(original: Any, self: Any, event: Any, stream: Any) -> None:
    """The record is complete when the launch before the last one is."""
    original(self, event, stream)
    pending = self._queue(stream).pending
    if len(pending) > 1:
        event.ticket = pending[-3] if len(pending) > 2 else _done(event.ticket)


def _done(ticket: Launch) -> Launch:
    launch = Launch("record", None, ticket.queue)
    launch.is_done = True
    launch.end = ticket.end
    launch.clock = ticket.clock
    return launch


def _record_complete_at_once(original: Any, self: Any, event: Any, stream: Any) -> None:
    original(self, event, stream)
    event.ticket = _done(event.ticket)


def _refuses_generic(original: Any, self: Any, stream: Any = None) -> None:
    if stream is not None and stream == _current_stream(stream):
        raise RuntimeError("invalid device ordinal")
    original(self, stream)


def _accepts_other_device(original: Any, self: Any, stream: Any = None) -> None:
    self.state.recorded_on = None
    original(self, stream)


def _drops_other_device(original: Any, self: Any, stream: Any = None) -> None:
    if self.device is None or stream is None or stream.device == self.device:
        original(self, stream)


# Queries -------------------------------------------------------------------------------------------------------------------------


def _true_once_begun(original: Any, self: Any, event: Any) -> bool:
    """True as soon as one launch at most is still before the record."""
    answer = original(self, event)
    ticket = event.ticket
    if answer or ticket is None:
        return bool(answer)
    return (
        sum(
            1
            for launch in ticket.queue.pending
            if launch.sequence < ticket.sequence and launch.kernel is not None and not launch.is_free
        )
        <= 1
    )


def _remembers_true(original: Any, self: Any) -> bool:
    """Once true, always true, also after a later record."""
    if not getattr(self, "_was_true", False):
        self._was_true = original(self)
    return bool(self._was_true)


def _raises_unrecorded(original: Any, self: Any) -> bool:
    if self.device is None:
        raise RuntimeError("Event must be recorded before it is queried")
    return bool(original(self))


def _one_launch(_original: Any, self: Any, event: Any) -> None:
    if event.ticket is not None and not event.ticket.is_done:
        self.query_event(event)


# Time ----------------------------------------------------------------------------------------------------------------------------


def _zero_for(states: Callable[[Any], bool]) -> Callable[..., float]:
    def wrong(original: Any, self: Any, other: Any) -> float:
        return 0.0 if states(self) or states(other) else float(original(self, other))

    return wrong


def _backward(original: Any, self: Any, other: Any) -> float:
    return -float(original(self, other))


def _consumed(original: Any, self: Any, other: Any) -> float:
    """The first answer empties the events."""
    if getattr(other, "_consumed", False) and getattr(self, "_consumed", False):
        raise RuntimeError("device not ready")
    self._consumed = other._consumed = True
    return float(original(self, other))


def _one_message(original: Any, self: Any, other: Any) -> float:
    try:
        return float(original(self, other))
    except ValueError:
        raise ValueError("invalid resource handle") from None


def _stale(_original: Any, self: Any, other: Any) -> float:
    """Answers before the events are complete."""
    return float(other.state.nanoseconds - self.state.nanoseconds) / 1e6


def _apply_frozen_clock(patches: Patches) -> None:
    record = DeferringScheduler.record

    def recording(self: Any, event: Any, stream: Any) -> None:
        record(self, event, stream)
        event.nanoseconds = 1000

    patches.set(DeferringScheduler, "record", recording)


def _apply_launches_counted(patches: Patches) -> None:
    """Time is that of the host's launches, whatever the device does meanwhile."""
    record = DeferringScheduler.record

    def recording(self: Any, event: Any, stream: Any) -> None:
        record(self, event, stream)
        event.nanoseconds = self._issued * (-1 if self._issued % 3 == 0 else 1)

    patches.set(DeferringScheduler, "record", recording)


def _fault(fault_id: str, clause_id: str, summary: str, apply: Apply, seen_in: str = "derived") -> Fault:
    return Fault(f"str-{fault_id}", (clause_id,), summary, seen_in, apply)


FAULTS: tuple[Fault, ...] = (
    _fault("wait-event-ignored", "STR-2", "`wait_event` does nothing.", _apply_wait_event_ignored),
    _fault(
        "wait-event-on-current",
        "STR-2",
        "`wait_event` holds the current stream instead of the given one.",
        replace(Stream, "wait_event", _wait_on_current),
    ),
    _fault(
        "wait-event-on-default",
        "STR-2",
        "`wait_event` holds the default stream instead of the given one.",
        replace(Stream, "wait_event", _wait_on_default),
    ),
    _fault("wait-stream-ignored", "STR-2", "`wait_stream` does nothing.", replace(Stream, "wait_stream", nothing)),
    _fault(
        "wait-stream-reversed",
        "STR-2",
        "`wait_stream` makes the other stream wait.",
        replace(Stream, "wait_stream", _wait_stream_reversed),
    ),
    _fault(
        "wait-stream-for-current",
        "STR-2",
        "`wait_stream` waits for the current stream instead of the given one.",
        replace(Stream, "wait_stream", _wait_stream_for_current),
    ),
    _fault(
        "second-wait-replaces-first",
        "STR-2",
        "A stream that waits for a second event forgets the first.",
        _apply_second_wait_replaces_first,
    ),
    _fault(
        "record-on-current",
        "STR-2",
        "`event.record(stream)` records on the current stream.",
        replace(Event, "record", _record_on_current),
    ),
    _fault(
        "record-too-early",
        "STR-2",
        "An event is complete before the last work that it was recorded after.",
        replace(DeferringScheduler, "record", _record_too_early),
    ),
    _fault(
        "record-refuses-current-stream",
        "STR-2",
        "An event refuses the stream that `current_stream` gives.",
        replace(Event, "record", _refuses_generic),
        "B87",
    ),
    _fault("wait-binds-to-latest", "STR-3", "A wait moves on to a later record of its event.", _apply_binds_to_latest),
    _fault(
        "wait-binds-to-first",
        "STR-3",
        "A second record of an event changes nothing.",
        replace(DeferringScheduler, "record", _first_record_only),
    ),
    _fault("query-always-true", "STR-4", "`event.query()` is always true.", replace(Event, "query", lambda *_: True)),
    _fault("query-always-false", "STR-4", "`event.query()` is never true.", replace(Event, "query", lambda *_: False)),
    _fault(
        "query-true-too-early",
        "STR-4",
        "`event.query()` is true while the last kernel before it runs.",
        replace(DeferringScheduler, "query_event", _true_once_begun),
    ),
    _fault(
        "query-remembers-true",
        "STR-4",
        "`event.query()` stays true after a later record.",
        replace(Event, "query", _remembers_true),
    ),
    _fault(
        "record-complete-at-once",
        "STR-4",
        "A recorded event is complete at once.",
        replace(DeferringScheduler, "record", _record_complete_at_once),
    ),
    _fault(
        "unrecorded-query-raises",
        "STR-4",
        "`query()` of an event that was never recorded raises.",
        replace(Event, "query", _raises_unrecorded),
        "B93",
    ),
    _fault(
        "unrecorded-query-false",
        "STR-4",
        "`query()` of an event that was never recorded is false.",
        replace(Event, "query", lambda original, self: self.device is not None and original(self)),
    ),
    _fault("event-synchronize-returns", "STR-4", "`event.synchronize()` returns at once.", replace(Event, "synchronize", nothing)),
    _fault(
        "event-synchronize-one-launch",
        "STR-4",
        "`event.synchronize()` returns after the next launch.",
        replace(DeferringScheduler, "synchronize_event", _one_launch),
    ),
    _fault("elapsed-frozen", "STR-8", "The clock of events stands still.", _apply_frozen_clock, "B94"),
    _fault("elapsed-backward", "STR-8", "The clock of events runs backward.", replace(Event, "elapsed_time", _backward), "B95"),
    _fault("elapsed-of-launches", "STR-8", "Events measure launches, not time, and jump back.", _apply_launches_counted, "B94"),
    _fault(
        "elapsed-consumed",
        "STR-8",
        "A second `elapsed_time` of the same events raises.",
        replace(Event, "elapsed_time", _consumed),
        "B95",
    ),
    _fault(
        "elapsed-untimed-zero",
        "STR-8",
        "`elapsed_time` of events without timing is 0.",
        replace(Event, "elapsed_time", _zero_for(lambda event: not event._timed)),
        "B93",
    ),
    _fault(
        "elapsed-unrecorded-zero",
        "STR-8",
        "`elapsed_time` of an event that was never recorded is 0.",
        replace(Event, "elapsed_time", _zero_for(lambda event: event.device is None)),
        "B93",
    ),
    _fault(
        "elapsed-one-message",
        "STR-8",
        "Untimed and unrecorded events are refused with one message.",
        replace(Event, "elapsed_time", _one_message),
        "B93",
    ),
    _fault(
        "elapsed-before-completion",
        "STR-8",
        "`elapsed_time` of unfinished events is 0.",
        replace(Event, "elapsed_time", _zero_for(lambda event: event.device is not None and not event.query())),
    ),
    _fault(
        "other-device-wait-ignored",
        "STR-10",
        "Waiting for an event of another device does nothing.",
        replace(Stream, "wait_event", _wait_if_recorded_on_same_device),
    ),
    _fault(
        "other-device-record-accepted",
        "STR-10",
        "An event is recorded on a stream of another device.",
        replace(Event, "record", _accepts_other_device),
    ),
    _fault(
        "other-device-record-dropped",
        "STR-10",
        "Recording an event on a stream of another device does nothing, silently.",
        replace(Event, "record", _drops_other_device),
    ),
)
