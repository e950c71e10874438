"""Events of a simulated device.

For: the class that users hold, a real `torch.Event`. Not for: when an event
happens; that is the scheduler's (`launch.py`).
"""

from __future__ import annotations

from typing import Any

import torch

from fakes.machine import current_machine
from fakes.stream import PRIVATE_USE_1, Stream
from fakes.stream_state import EventState, StreamState

_TorchEvent: Any = torch.Event


class Event(_TorchEvent):  # type: ignore[misc]
    """An event of a simulated device, as `torch.<type>.Event`. It belongs to the device of its first record.

    `enable_timing` lets `elapsed_time` be asked for. `blocking` and `interprocess` are accepted; a simulated event cannot be
    shared with another process, so `interprocess=True` is refused.
    """

    state: EventState

    def __new__(
        cls, device: Any = None, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **kwargs: Any
    ) -> Event:
        del blocking
        if isinstance(device, bool):
            # `torch.cuda.Event(True)` takes enable_timing first, `torch.Event(device)` the device.
            device, enable_timing = None, device
        if kwargs:
            raise TypeError(f"Event() got unexpected keyword arguments {sorted(kwargs)}")
        machine = current_machine()
        if interprocess:
            raise RuntimeError(
                f"{machine.persona.display_name} error: events of a simulated device cannot be shared between processes"
            )
        if device is not None:
            machine.device_index(device)
        event: Event = _TorchEvent.__new__(cls, torch.device("cpu"))
        event.state = EventState()
        event._timed = bool(enable_timing)
        return event

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002 - those of __new__
        self._timed: bool

    @property
    def device(self) -> torch.device | None:
        """The device of its records; None before any."""
        stream = self.state.recorded_on
        return None if stream is None else torch.device(current_machine().persona.device_type, stream.device_index)

    @property
    def event_id(self) -> int:
        """A number that no other live event has; 0 before any record."""
        return 0 if self.state.recorded_on is None else id(self.state)

    def record(self, stream: Any = None) -> None:
        """Happen on a stream (the current one where None) when all earlier work there is complete.

        Raises:
            RuntimeError: the event belongs to another device (STR-10).
        """
        machine = current_machine()
        state = _state_of(stream)
        if state is None:
            state = machine.current_stream(machine.current_device())
        before = self.state.recorded_on
        if before is not None and before.device_index != state.device_index:
            kind = machine.persona.device_type
            raise RuntimeError(
                f"Event device {kind}:{before.device_index} does not match recording stream's device {kind}:{state.device_index}."
            )
        machine.scheduler.record(self.state, state)

    def wait(self, stream: Any = None) -> None:
        """Hold later work on a stream (the current one where None) until the last record; nothing where there is none."""
        machine = current_machine()
        state = _state_of(stream)
        if state is None:
            state = machine.current_stream(machine.current_device())
        if self.state.recorded_on is not None:
            machine.scheduler.wait(self.state, state)

    def query(self) -> bool:
        """Whether the work before the last record is complete; true before any record."""
        return current_machine().scheduler.query_event(self.state)

    def synchronize(self) -> None:
        """Return when the work before the last record is complete."""
        current_machine().scheduler.synchronize_event(self.state)

    def elapsed_time(self, other: Any) -> float:
        """Milliseconds of device time from this event to `other`.

        Raises:
            ValueError: an event is not timed, was never recorded, or is not complete yet.
            RuntimeError: the events belong to two devices.
        """
        if not isinstance(other, Event):
            raise TypeError(f"elapsed_time() needs an event of this device, not {type(other).__name__}")
        if not (self._timed and other._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        start, end = self.state.recorded_on, other.state.recorded_on
        if start is None or end is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if start.device_index != end.device_index:
            raise RuntimeError(
                f"the events belong to devices {start.device_index} and {end.device_index}; time is measured on one device"
            )
        if not (self.query() and other.query()):
            raise ValueError("Both events must be completed before calculating elapsed time.")
        return (other.state.nanoseconds - self.state.nanoseconds) / 1e6

    def __repr__(self) -> str:
        kind = current_machine().persona.device_type
        return f"<torch.{kind}.Event {'unrecorded' if self.state.recorded_on is None else self.state.recorded_on}>"


def _state_of(stream: Any) -> StreamState | None:
    """The state behind any form of a stream.

    Raises:
        TypeError: not a stream of this device.
    """
    if stream is None:
        return None
    if isinstance(stream, Stream):
        return stream.state
    if isinstance(stream, _TorchStream_base) and stream.device_type == int(PRIVATE_USE_1.value):
        return current_machine().device(stream.device_index).stream_by_id(stream.stream_id)
    raise TypeError(f"{stream!r} is not a stream of this device")


_TorchStream_base: Any = torch.Stream
