"""Backward on the forward's device and stream (THR-1).

For: what the autograd engine does about streams. Not for: running it in the caller's thread (`torch_patches.py`).

As PyTorch's engine does, a node's stream (`forward_streams.py`) waits for the work before it, and the caller's stream for the last one
when backward ends. The engine orders along the graph; this orders all nodes of one backward, one after the other. Gradients are
accumulated on the stream of the node before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from fakes.stream_state import EventState, StreamState

if TYPE_CHECKING:
    from fakes.forward_streams import ForwardStreams
    from fakes.launch import Scheduler
    from fakes.machine import Machine

_UNNUMBERED = 1 << 63
"""PyTorch gives nodes that accumulate gradients a number beyond this, so that they run first."""
_current_node: Any = torch._C._current_autograd_node


class Backward:
    """One run of the engine in one thread."""

    def __init__(self, machine: Machine, thread: Any, roots: Iterable[Any]) -> None:
        self._machine = machine
        self._thread = thread
        self._threads: Mapping[Any, ForwardStreams] = {}
        if machine.threads_of_nodes.several:
            self._threads = machine.threads_of_nodes.of_graph(roots, thread.forward)
        self._node: tuple[int, ForwardStreams] | None = None

    def enter_node(self) -> None:
        """Before an operator, or a question for what is current: where a new node begins, make its stream and device current."""
        node = _current_node()
        if node is None:
            return
        number = node._sequence_nr()
        made_in = self._threads.get(node, self._thread.forward)
        if (number, made_in) == self._node:
            return
        self._node = number, made_in
        if number >= _UNNUMBERED:
            return
        index = self._device_of(node)
        if index is None:
            return
        thread, default = self._thread, self._machine.device(index).default_stream
        thread.device = index
        before = thread.streams.get(index) or default
        stream = made_in.at(index, number) or default
        if stream is not before:
            thread.streams[index] = stream
            thread.forward.changed(stream)  # backward makes nodes too, where it is differentiated again
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
