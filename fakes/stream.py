"""Streams of a simulated device.

For: the class that users hold, a real `torch.Stream`. Not for: when work
runs; that is the scheduler's (`launch.py`).
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, ClassVar

import torch

from fakes.machine import Machine, _current, current_machine
from fakes.stream_state import StreamState

PRIVATE_USE_1 = torch._C._autograd.DeviceType.PrivateUse1
_TorchStream: Any = torch.Stream


class Stream(_TorchStream):  # type: ignore[misc]
    """A stream of a simulated device, as `torch.<type>.Stream`. Entering it as a context makes it and its device current.

    `device` may be an index, a string, a `torch.device` or None for the current device; `priority` is kept. Equal streams are the
    same queue. `stream_id` names an existing stream.
    """

    state: StreamState
    _previous: ClassVar[Any]

    def __new__(
        cls,
        device: Any = None,
        priority: int = 0,
        *,
        stream_id: int | None = None,
        device_index: int | None = None,
        device_type: int | None = None,  # noqa: ARG004 - PyTorch passes it when it wraps a raw stream
        **kwargs: Any,
    ) -> Stream:
        if kwargs:
            raise TypeError(f"Stream() got unexpected keyword arguments {sorted(kwargs)}")
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise TypeError(f"priority={priority!r} is not an int")
        machine = current_machine()
        index = device_index if device_index is not None else machine.device_index(device)
        opened = machine.open(index)
        state = opened.new_stream(priority) if stream_id is None else opened.stream_by_id(stream_id)
        return wrap(state, machine, cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002 - those of __new__
        self._entered: list[tuple[int, StreamState]] = []

    @property
    def priority(self) -> int:
        """The priority that it was made with."""
        return self.state.priority

    def query(self) -> bool:
        """Whether all work on the stream is complete."""
        return current_machine().scheduler.query_stream(self.state)

    def synchronize(self) -> None:
        """Return when all work on the stream is complete."""
        current_machine().scheduler.synchronize_stream(self.state)

    def record_event(self, event: Any = None) -> Any:
        """Record an event (a new one where None) and return it."""
        if event is None:
            from fakes.event import Event

            event = Event()
        event.record(self)
        return event

    def wait_event(self, event: Any) -> None:
        """Hold later work on this stream until the event's last record."""
        event.wait(self)

    def wait_stream(self, stream: Any) -> None:
        """Hold later work on this stream until all work issued on `stream` is complete."""
        self.wait_event(stream.record_event())

    def __enter__(self) -> Stream:
        machine = current_machine()
        index = self.state.device_index
        self._entered.append((machine.current_device(), machine.current_stream(index)))
        machine.set_device(index)
        machine.set_stream(self.state)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        previous_device, previous_stream = self._entered.pop()
        machine = _current.machine
        if machine is None:
            return
        machine.set_stream(previous_stream)
        machine.set_device(previous_device)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.state is other.state

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.state.device_index, self.state.id))

    def __repr__(self) -> str:
        persona = current_machine().persona
        return f"<torch.{persona.device_type}.Stream device={persona.device_type}:{self.state.device_index} id={self.state.id}>"


def wrap(state: StreamState, machine: Machine, cls: type[Stream] = Stream) -> Stream:
    """The user's object for a stream."""
    del machine
    stream: Stream = _TorchStream.__new__(
        cls, stream_id=state.id, device_index=state.device_index, device_type=int(PRIVATE_USE_1.value)
    )
    stream.state = state
    stream._entered = []
    return stream
