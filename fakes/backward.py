"""Backward on the forward's device and stream (THR-1).

For: what the autograd engine does about streams. Not for: running it in the caller's thread (`torch_patches.py`).

PyTorch numbers the nodes of a thread's graph as they are made. Each change of a thread's current stream is noted with the next number, so
that in backward a node's number tells the stream that was current at its forward. As PyTorch's engine does, a node's stream waits for
the work before it, and the caller's stream for the last one when backward ends. The engine orders along the graph; this orders all nodes
of one backward, one after the other. Gradients are accumulated on the stream of the node before. In a thread that made no forward of
its own (backward is called elsewhere), the current stream stays.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import torch

from fakes.stream_state import EventState, StreamState

if TYPE_CHECKING:
    from fakes.launch import Scheduler
    from fakes.machine import Machine

_MOST_CHANGES = 1 << 16
_UNNUMBERED = 1 << 63
"""PyTorch gives nodes that accumulate gradients a number beyond this, so that they run first."""
_next_number: Any = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]
_current_node: Any = torch._C._current_autograd_node


class ForwardStreams:
    """When one thread changed the current stream of which device."""

    def __init__(self) -> None:
        self._changes: dict[int, tuple[list[int], list[StreamState]]] = {}

    def changed(self, stream: StreamState) -> None:
        """A stream became current."""
        numbers, streams = self._changes.setdefault(stream.device_index, ([], []))
        number = _next_number()
        if numbers and numbers[-1] == number:
            streams[-1] = stream
            return
        numbers.append(number)
        streams.append(stream)
        if len(numbers) > _MOST_CHANGES:
            del numbers[: _MOST_CHANGES // 2], streams[: _MOST_CHANGES // 2]

    def at(self, index: int, number: int) -> StreamState | None:
        """The stream of a device that was current when a node was made; None for the default one."""
        numbers, streams = self._changes.get(index, ((), ()))
        place = bisect_right(numbers, number) - 1
        return streams[place] if place >= 0 else None


class Backward:
    """One run of the engine in one thread."""

    def __init__(self, machine: Machine, thread: Any) -> None:
        self._machine = machine
        self._thread = thread
        self._node = -1

    def enter_node(self) -> None:
        """Before an operator, or a question for what is current: where a new node begins, make its stream and device current."""
        node = _current_node()
        if node is None:
            return
        number = node._sequence_nr()
        if number == self._node:
            return
        self._node = number
        if number >= _UNNUMBERED:
            return
        index = self._device_of(node)
        if index is None:
            return
        thread, default = self._thread, self._machine.device(index).default_stream
        thread.device = index
        before = thread.streams.get(index) or default
        stream = thread.forward.at(index, number) or default
        if stream is not before:
            thread.streams[index] = stream
            follow(self._machine.scheduler, stream, before)

    def _device_of(self, node: Any) -> int | None:
        """The simulated device of a node's gradients; None where they are on none."""
        for gradient in node._input_metadata:
            if gradient.device.type == self._machine.persona.device_type:
                return int(gradient.device.index)
        return None


def record_uses(args: Any, stream: StreamState) -> None:
    """Note, as the engine does for gradients that change streams, that memory of other streams is used on this one."""
    for value in args:
        for tensor in value if isinstance(value, list | tuple) else (value,):
            block = getattr(tensor, "_block", None)
            if block is not None:
                block.record_stream(stream)


def follow(scheduler: Scheduler, later: StreamState, earlier: StreamState) -> None:
    """Let a stream wait for another."""
    if later is not earlier:
        event = EventState()
        scheduler.record(event, earlier)
        scheduler.wait(event, later)
