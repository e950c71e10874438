"""Faults of what belongs to a thread, and of where backward runs (THR-1).

For: state that threads share or inherit, and backward on another device or stream than the forward. Not for: streams in one thread
(`streams.py`, `ordering.py`).
"""

from __future__ import annotations

import threading
from typing import Any

import torch

from fakes import backward, machine
from fakes.faults.fault import Fault
from fakes.faults.replacing import Apply, nothing
from fakes.forward_streams import ForwardStreams, ThreadsOfNodes
from fakes.machine import Machine, current_machine
from fakes.patching import Patches
from fakes.stream_state import StreamState


def _apply_streams_shared_by_threads(patches: Patches) -> None:
    shared: dict[tuple[int, int], StreamState] = {}

    def current_stream(self: Any, index: int) -> StreamState:
        return shared.get((self._generation, index)) or self.device(index).default_stream

    def set_stream(self: Any, stream: StreamState) -> None:
        shared[(self._generation, stream.device_index)] = stream

    patches.set(Machine, "current_stream", current_stream)
    patches.set(Machine, "set_stream", set_stream)


def _apply_threads_inherit_streams(patches: Patches) -> None:
    """A new thread starts on the streams that are current in the thread that starts it."""
    start, run = threading.Thread.start, threading.Thread.run

    def starting(self: Any) -> None:
        machine = current_machine()
        self._streams = [machine.current_stream(index) for index in range(machine.device_count())] if machine.is_initialized else []
        start(self)

    def running(self: Any) -> None:
        for stream in getattr(self, "_streams", ()):
            current_machine().set_stream(stream)
        run(self)

    patches.set(threading.Thread, "start", starting)
    patches.set(threading.Thread, "run", running)


def _apply_threads_inherit_autocast(patches: Patches) -> None:
    """A new thread starts inside the autocast of the thread that starts it."""
    start, run = threading.Thread.start, threading.Thread.run

    def starting(self: Any) -> None:
        kind = current_machine().persona.device_type
        self._autocast = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
        start(self)

    def running(self: Any) -> None:
        enabled, dtype = getattr(self, "_autocast", (False, None))
        if enabled:
            with torch.autocast(current_machine().persona.device_type, dtype=dtype):
                run(self)
        else:
            run(self)

    patches.set(threading.Thread, "start", starting)
    patches.set(threading.Thread, "run", running)


def _apply_backward_where_it_is_called(patches: Patches) -> None:
    patches.set(backward.Backward, "enter_node", nothing)


def _apply_backward_on_default_stream(patches: Patches) -> None:
    patches.set(ForwardStreams, "at", lambda _self, _index, _number: None)


def _apply_backward_by_its_own_thread(patches: Patches) -> None:
    patches.set(ThreadsOfNodes, "of_graph", lambda _self, _roots, _here: {})


def _apply_backward_not_waited_for(patches: Patches) -> None:
    patches.set(machine, "follow", nothing)


def _fault(fault_id: str, summary: str, apply: Apply) -> Fault:
    return Fault(fault_id, ("THR-1",), summary, "derived", apply)


FAULTS: tuple[Fault, ...] = (
    _fault("thr-current-stream-shared", "All threads share one current stream a device.", _apply_streams_shared_by_threads),
    _fault("thr-current-stream-inherited", "A new thread starts on its starter's current stream.", _apply_threads_inherit_streams),
    _fault("thr-autocast-inherited", "A new thread starts inside its starter's autocast.", _apply_threads_inherit_autocast),
    _fault(
        "thr-backward-where-it-is-called", "Backward runs on the caller's device and stream.", _apply_backward_where_it_is_called
    ),
    _fault(
        "thr-backward-on-default-stream",
        "Backward runs on the default stream, whatever the forward ran on.",
        _apply_backward_on_default_stream,
    ),
    _fault(
        "thr-backward-of-another-thread",
        "Backward that another thread calls than the forward's runs on that thread's stream.",
        _apply_backward_by_its_own_thread,
    ),
    _fault(
        "thr-backward-not-waited-for",
        "The stream that is current where backward is called does not wait for the gradients.",
        _apply_backward_not_waited_for,
    ),
)
