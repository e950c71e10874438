"""Faults that only whole programs show: copies, waits of several kinds, several devices (STR-9, STR-10, STR-11).

For: work that runs too early or is not waited for. Not for: single events and streams (`events.py`, `streams.py`), nor threads
(`threads.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fakes import backward, copies, special_operators
from fakes.faults.fault import Fault
from fakes.faults.replacing import Apply, nothing, replace
from fakes.machine import Machine, current_machine
from fakes.patching import Patches
from fakes.pinned_memory import is_pinned
from fakes.scheduling.host_mode import HostMode
from fakes.scheduling.scheduler import DeferringScheduler
from fakes.stream import Stream
from fakes.stream_state import EventState, StreamState
from fakes.tensor import DeviceTensor

# Copies --------------------------------------------------------------------------------------------------------------------------


def _between(destination: Any, source: Any) -> tuple[bool, bool, Any]:
    """Whether a copy is to the device, whether it is with the host at all, and the host tensor."""
    to_device, from_device = isinstance(destination, DeviceTensor), isinstance(source, DeviceTensor)
    return to_device, to_device != from_device, source if to_device else destination


def _runs_at_once(original: Any, plan: Any, destination: Any, source: Any, non_blocking: bool, machine: Machine) -> None:
    """A non-blocking copy does not wait for the earlier work of its stream."""
    to_device, with_host, host = _between(destination, source)
    if with_host and non_blocking and is_pinned(host):
        data = destination._data if to_device else destination
        with HostMode():
            plan.kernel(data, source if to_device else source._data)
        return
    original(plan, destination, source, non_blocking, machine)


def _never_waits(which: Callable[[bool, Any], bool]) -> Callable[..., None]:
    """Some blocking copies return at once; `which(to_device, host)` says which."""

    def wrong(original: Any, plan: Any, destination: Any, source: Any, non_blocking: bool, machine: Machine) -> None:
        to_device, with_host, host = _between(destination, source)
        if not (with_host and not non_blocking and which(to_device, host)):
            original(plan, destination, source, non_blocking, machine)
            return
        scheduler = machine.scheduler
        waiting = type(scheduler).synchronize_stream
        type(scheduler).synchronize_stream = nothing  # type: ignore[method-assign]
        try:
            original(plan, destination, source, non_blocking, machine)
        finally:
            type(scheduler).synchronize_stream = waiting  # type: ignore[method-assign]

    return wrong


def _on_default_stream(original: Any, plan: Any, destination: Any, source: Any, non_blocking: bool, machine: Machine) -> None:
    """Non-blocking copies with the host go to the default stream, whatever is current."""
    _, with_host, _ = _between(destination, source)
    if not (with_host and non_blocking):
        original(plan, destination, source, non_blocking, machine)
        return
    index = (destination if isinstance(destination, DeviceTensor) else source)._index
    current = machine.current_stream(index)
    machine.set_stream(machine.device(index).default_stream)
    try:
        original(plan, destination, source, non_blocking, machine)
    finally:
        machine.set_stream(current)


def _copy_engine_apart(original: Any, plan: Any, destination: Any, source: Any, non_blocking: bool, machine: Machine) -> None:
    """Copies with the host run on an engine that waits for their stream, and that their stream does not wait for."""
    _, with_host, _ = _between(destination, source)
    if not (with_host and non_blocking):
        original(plan, destination, source, non_blocking, machine)
        return
    index = (destination if isinstance(destination, DeviceTensor) else source)._index
    current = machine.current_stream(index)
    engine = _engine(machine, index)
    backward.follow(machine.scheduler, engine, current)
    machine.set_stream(engine)
    try:
        original(plan, destination, source, non_blocking, machine)
    finally:
        machine.set_stream(current)


def _engine(machine: Machine, index: int) -> StreamState:
    engines = machine.__dict__.setdefault("_copy_engines", {})
    key = (machine._generation, index)
    if key not in engines:
        engines[key] = StreamState(index, 20_000)
    found: StreamState = engines[key]
    return found


def _apply_snapshot_of_pinned(patches: Patches) -> None:
    """A non-blocking copy to the host is made on the host's side: from what the device holds when it is issued."""
    original = copies.copy

    def copy(plan: Any, destination: Any, source: Any, non_blocking: bool, machine: Machine) -> None:
        if isinstance(source, DeviceTensor) and not isinstance(destination, DeviceTensor) and non_blocking:
            with HostMode():
                plan.kernel(destination, source._data)
            return
        original(plan, destination, source, non_blocking, machine)

    patches.set(special_operators, "copy", copy)


def _apply_device_copies_unordered(patches: Patches) -> None:
    """A copy between devices waits for neither side's other stream."""
    patches.set(copies, "follow", nothing)


def _apply_destination_does_not_wait(patches: Patches) -> None:
    """After a copy between devices, the destination's stream does not wait for it."""
    original = backward.follow

    def follow(scheduler: Any, later: StreamState, earlier: StreamState) -> None:
        turn["second"] = not turn["second"]
        if turn["second"]:
            original(scheduler, later, earlier)

    turn = {"second": False}
    patches.set(copies, "follow", follow)


# Whole programs ------------------------------------------------------------------------------------------------------------------


def _apply_wait_holds_one_launch(patches: Patches) -> None:
    """A wait holds the next launch of its stream, and not those after it: they go to a queue of their own."""
    wait, issue = DeferringScheduler.wait, DeferringScheduler.issue
    held: dict[StreamState, list[Any]] = {}

    def waiting(self: Any, event: Any, stream: StreamState) -> None:
        if event.ticket is not None and not event.ticket.is_done:
            held.setdefault(stream, []).append(event)
        else:
            wait(self, event, stream)

    def issuing(self: Any, kernel: Any, reads: Any, writes: Any, stream: StreamState, *, waits: Any = (), **keywords: Any) -> Any:
        events = held.pop(stream, [])
        if not events:
            return issue(self, kernel, reads, writes, stream, waits=waits, **keywords)
        side = StreamState(stream.device_index, 30_000 + self._issued)
        before = EventState()
        self.record(before, stream)
        wait(self, before, side)
        for event in events:
            wait(self, event, side)
        return issue(self, kernel, reads, writes, side, waits=waits, **keywords)

    patches.set(DeferringScheduler, "wait", waiting)
    patches.set(DeferringScheduler, "issue", issuing)


def _apply_busy_queue_drops_waits(patches: Patches) -> None:
    """A stream with more than two launches pending drops further waits."""
    wait = DeferringScheduler.wait

    def waiting(self: Any, event: Any, stream: StreamState) -> None:
        if len(self._queue(stream).pending) <= 2:
            wait(self, event, stream)

    patches.set(DeferringScheduler, "wait", waiting)


def _apply_recycled_event(patches: Patches) -> None:
    """A wait for an event that was recorded before holds nothing: the runtime takes its first completion for all."""
    wait, record = DeferringScheduler.wait, DeferringScheduler.record
    recorded: dict[int, int] = {}

    def recording(self: Any, event: Any, stream: StreamState) -> None:
        recorded[id(event)] = recorded.get(id(event), 0) + 1 if event.ticket is not None else 1
        record(self, event, stream)

    def waiting(self: Any, event: Any, stream: StreamState) -> None:
        if recorded.get(id(event), 1) < 2:
            wait(self, event, stream)

    patches.set(DeferringScheduler, "record", recording)
    patches.set(DeferringScheduler, "wait", waiting)


def _apply_third_stream_shares_events(patches: Patches) -> None:
    """`wait_stream` gives each device one event for all its streams, which later calls record anew before it was waited for."""
    wait_stream = Stream.wait_stream
    shared: dict[Any, Any] = {}

    def waiting(self: Any, stream: Any) -> None:
        key = (current_machine()._generation, stream.state.device_index)
        event = shared.get(key)
        if event is None:
            shared.clear()
            shared[key] = stream.record_event()
            wait_stream(self, stream)
        else:
            self.wait_event(event)
            event.record(stream)

    patches.set(Stream, "wait_stream", waiting)


def _apply_default_stream_waits_for_nothing(patches: Patches) -> None:
    """Waits of a default stream are dropped: it is thought to wait for all others anyway."""
    wait = DeferringScheduler.wait

    def waiting(self: Any, event: Any, stream: StreamState) -> None:
        if stream.id != 0:
            wait(self, event, stream)

    patches.set(DeferringScheduler, "wait", waiting)


def _apply_stream_synchronize_returns(patches: Patches) -> None:
    patches.set(Stream, "synchronize", nothing)


def _apply_in_place_kernels_first(patches: Patches) -> None:
    """Additions in place overtake one earlier launch of their stream."""
    issue = DeferringScheduler.issue

    def issuing(
        self: Any, kernel: Any, reads: Any, writes: Any, stream: StreamState, *, name: str = "kernel", **keywords: Any
    ) -> Any:
        launch = issue(self, kernel, reads, writes, stream, name=name, **keywords)
        earlier = [one for one in self._queue(stream).pending if one.kernel is not None and not one.is_free and one is not launch]
        if name == "aten::add_" and earlier and not launch.is_done:
            launch.kernel, earlier[-1].kernel = earlier[-1].kernel, launch.kernel
        return launch

    patches.set(DeferringScheduler, "issue", issuing)


def _fault(fault_id: str, clause_id: str, summary: str, apply: Apply, seen_in: str = "derived") -> Fault:
    return Fault(fault_id, (clause_id,), summary, seen_in, apply)


def _copy(wrong: Callable[..., Any]) -> Apply:
    return replace(special_operators, "copy", wrong)


FAULTS: tuple[Fault, ...] = (
    _fault(
        "str-copy-runs-at-once", "STR-9", "A non-blocking copy runs before the earlier work of its stream.", _copy(_runs_at_once)
    ),
    _fault(
        "str-copy-to-host-at-once",
        "STR-9",
        "A non-blocking copy to the host takes what the device holds at the call.",
        _apply_snapshot_of_pinned,
    ),
    _fault(
        "str-copy-on-default-stream",
        "STR-9",
        "Non-blocking copies run on the default stream, whatever is current.",
        _copy(_on_default_stream),
    ),
    _fault(
        "str-copy-engine-apart",
        "STR-9",
        "Later work of its stream does not wait for a non-blocking copy.",
        _copy(_copy_engine_apart),
    ),
    _fault(
        "str-blocking-copy-to-host-returns",
        "STR-9",
        "A blocking copy to the host returns before it is done.",
        _copy(_never_waits(lambda to_device, _host: not to_device)),
    ),
    _fault(
        "str-blocking-copy-to-device-returns",
        "STR-9",
        "A blocking copy to the device returns while it still reads its source.",
        _copy(_never_waits(lambda to_device, _host: to_device)),
    ),
    _fault(
        "str-pageable-copy-returns",
        "STR-9",
        "A blocking copy from or to pageable memory returns before it is done.",
        _copy(_never_waits(lambda _to_device, host: not is_pinned(host))),
    ),
    _fault("str-stream-synchronize-returns", "STR-9", "`stream.synchronize()` returns at once.", _apply_stream_synchronize_returns),
    _fault(
        "str-device-copies-unordered",
        "STR-10",
        "A copy between devices is ordered with neither device's current stream but its own.",
        _apply_device_copies_unordered,
    ),
    _fault(
        "str-device-copy-not-waited-for",
        "STR-10",
        "After a copy between devices, one side's current stream does not wait for it.",
        _apply_destination_does_not_wait,
    ),
    _fault("str-wait-holds-one-launch", "STR-11", "A wait holds the next launch of its stream only.", _apply_wait_holds_one_launch),
    _fault(
        "str-busy-stream-drops-waits",
        "STR-11",
        "A stream with more than two launches pending drops further waits.",
        _apply_busy_queue_drops_waits,
    ),
    _fault(
        "str-recycled-event-not-waited-for", "STR-3", "Nothing waits for an event that was recorded twice.", _apply_recycled_event
    ),
    _fault(
        "str-wait-stream-shares-an-event",
        "STR-11",
        "`wait_stream` waits for an event of an earlier call.",
        _apply_third_stream_shares_events,
    ),
    _fault(
        "str-default-stream-drops-waits", "STR-2", "The default stream drops its waits.", _apply_default_stream_waits_for_nothing
    ),
    _fault("str-additions-overtake", "STR-1", "Additions overtake the launch before them.", _apply_in_place_kernels_first),
)
