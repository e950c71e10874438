"""Faults of streams and the host's waits (STR-1, STR-6, STR-7, STR-13).

For: work on the wrong stream and waits that return too early, in the simulated device or the adapter. Not for: contexts
(`stream_contexts.py`), events (`events.py`), copies and whole programs (`ordering.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from fakes import namespace
from fakes.faults.fault import Fault
from fakes.faults.replacing import Apply, replace
from fakes.machine import Machine, current_machine
from fakes.patching import Patches
from fakes.scheduling.scheduler import DeferringScheduler
from fakes.stream_state import EventState, StreamState
from harness.accelerator.namespace_streams import NamespaceStreams

# Order on one stream -------------------------------------------------------------------------------------------------------------


def _apply_two_hardware_queues(patches: Patches) -> None:
    """Every second kernel of a stream goes to a queue beside it, which the stream's records and waits cover, but not its kernels."""
    issue, record, wait = DeferringScheduler.issue, DeferringScheduler.record, DeferringScheduler.wait
    twins: dict[StreamState, StreamState] = {}
    turn = {"odd": False}

    def twin_of(stream: StreamState) -> StreamState:
        return twins.setdefault(stream, StreamState(stream.device_index, stream.id + 10_000))

    def issuing(self: Any, kernel: Any, reads: Any, writes: Any, stream: StreamState, **keywords: Any) -> Any:
        turn["odd"] = not turn["odd"]
        return issue(self, kernel, reads, writes, twin_of(stream) if turn["odd"] else stream, **keywords)

    patches.set(DeferringScheduler, "issue", issuing)
    for name in ("record", "synchronize_stream", "query_stream"):
        original = getattr(DeferringScheduler, name)

        def covering(self: Any, *args: Any, original: Any = original) -> Any:
            event = EventState()
            record(self, event, twin_of(args[-1]))
            wait(self, event, args[-1])
            return original(self, *args)

        patches.set(DeferringScheduler, name, covering)


# Which stream --------------------------------------------------------------------------------------------------------------------


def _apply_device_argument_ignored(patches: Patches) -> None:
    original = NamespaceStreams.current_stream
    patches.set(NamespaceStreams, "current_stream", lambda self, device=None: original(self, None))  # noqa: ARG005


def _refuses_objects(original: Any, self: Any, device: Any = None) -> Any:
    if isinstance(device, torch.device):
        raise ValueError(  # noqa: TRY004 - as it was seen
            f"{device.type} doesn't match the current accelerator {self.device_type}"
        )
    return original(self, device)


def _apply_one_current_stream(patches: Patches) -> None:
    """A thread has one current stream, not one a device."""

    def current_stream(self: Any, index: int) -> StreamState:
        self.current_device()
        last: StreamState | None = self._thread.streams.get(-1)
        return self.device(index).default_stream if last is None else last

    def set_stream(self: Any, stream: StreamState) -> None:
        self.current_device()
        self._thread.streams[-1] = stream

    patches.set(Machine, "current_stream", current_stream)
    patches.set(Machine, "set_stream", set_stream)


def _fresh_default(_original: Any, self: Any, device: Any = None) -> Any:
    return self.new_stream(device)


def _default_is_current(original: Any, self: Any, device: Any = None) -> Any:
    original(self, device)
    return self.current_stream(device)


def _default_of_current_device(original: Any, self: Any, device: Any = None) -> Any:
    self.device_index(device)
    return original(self, None)


# Waits of the host ---------------------------------------------------------------------------------------------------------------


def _on_current_device(original: Any, self: Any, stream: StreamState) -> Any:
    """Asks the stream of the same number on the current device, as a null pointer for the default stream does."""
    machine = current_machine()
    here = machine.current_device()
    if stream.device_index == here:
        return original(self, stream)
    return original(self, machine.current_stream(here))


def _query_stream_true(_original: Any, self: Any, stream: StreamState) -> bool:  # noqa: ARG001
    return True


def _skips(which: Callable[[StreamState], bool]) -> Callable[..., None]:
    """Synchronizing a device leaves some of its streams out."""

    def wrong(_original: Any, self: Any, device_index: int) -> None:
        for queue in list(self._queues):
            if queue.stream.device_index == device_index and not which(queue.stream):
                self.synchronize_stream(queue.stream)

    return wrong


def _is_last(stream: StreamState) -> bool:
    device = current_machine().device(stream.device_index)
    return stream.id == max(_ids(device))


def _ids(device: Any) -> list[int]:
    queues = current_machine().scheduler._queues  # type: ignore[attr-defined] # the deferring one's
    return [queue.stream.id for queue in queues if queue.stream.device_index == device.index]


def _is_not_current(stream: StreamState) -> bool:
    return current_machine().current_stream(stream.device_index) is not stream


def _current_device_instead(original: Any, self: Any, device_index: int) -> None:  # noqa: ARG001
    original(self, current_machine().current_device())


def _apply_synchronize_ignores_indexed(patches: Patches) -> None:
    original = namespace.synchronize

    def synchronize(device: Any = None) -> None:
        if device is None or current_machine().device_index(device) == current_machine().current_device():
            original(device)

    patches.set(namespace, "synchronize", synchronize)
    machine_namespace = getattr(torch, "musa", None)
    if machine_namespace is not None:
        patches.set(machine_namespace, "synchronize", synchronize)


# Without streams -----------------------------------------------------------------------------------------------------------------


def _apply_stand_in_stream(patches: Patches) -> None:
    patches.set(NamespaceStreams, "current_stream", lambda self, device=None: object())  # noqa: ARG005


def _apply_null_context(patches: Patches) -> None:
    patches.set(NamespaceStreams, "stream", lambda self, stream: nullcontext(stream))  # noqa: ARG005


def _apply_stream_is_none(patches: Patches) -> None:
    patches.set(NamespaceStreams, "new_stream", lambda self, *args, **kwargs: None)  # noqa: ARG005


def _fault(fault_id: str, clause_id: str, summary: str, apply: Apply, seen_in: str = "derived", persona: str = "musa") -> Fault:
    return Fault(f"str-{fault_id}", (clause_id,), summary, seen_in, apply, (persona,))


FAULTS: tuple[Fault, ...] = (
    _fault("out-of-order", "STR-1", "Kernels of one stream run on two hardware queues.", _apply_two_hardware_queues),
    _fault(
        "current-stream-ignores-device",
        "STR-6",
        "`current_stream(device)` answers for the current device.",
        _apply_device_argument_ignored,
        "B91",
    ),
    _fault(
        "current-stream-refuses-device-object",
        "STR-6",
        "`current_stream` refuses a `torch.device`.",
        replace(NamespaceStreams, "current_stream", _refuses_objects),
        "B86",
    ),
    _fault("one-current-stream", "STR-6", "All devices share one current stream.", _apply_one_current_stream),
    _fault(
        "default-stream-fresh",
        "STR-6",
        "`default_stream` is a new stream at each call.",
        replace(NamespaceStreams, "default_stream", _fresh_default),
    ),
    _fault(
        "default-stream-is-current",
        "STR-6",
        "`default_stream` is the stream that is current.",
        replace(NamespaceStreams, "default_stream", _default_is_current),
    ),
    _fault(
        "default-stream-of-current-device",
        "STR-6",
        "`default_stream(device)` is the current device's.",
        replace(NamespaceStreams, "default_stream", _default_of_current_device),
    ),
    _fault(
        "stream-query-of-current-device",
        "STR-6",
        "`query()` of another device's stream asks the current device's.",
        replace(DeferringScheduler, "query_stream", _on_current_device),
        "B90",
    ),
    _fault(
        "stream-synchronize-of-current-device",
        "STR-6",
        "`synchronize()` of another device's stream waits for the current device's.",
        replace(DeferringScheduler, "synchronize_stream", _on_current_device),
        "B90",
    ),
    _fault(
        "stream-query-always-true",
        "STR-6",
        "`stream.query()` is always true.",
        replace(DeferringScheduler, "query_stream", _query_stream_true),
    ),
    _fault(
        "synchronize-skips-last-stream",
        "STR-7",
        "`synchronize(device)` leaves out the stream that was used last.",
        replace(DeferringScheduler, "synchronize_device", _skips(_is_last)),
    ),
    _fault(
        "synchronize-current-stream-only",
        "STR-7",
        "`synchronize(device)` waits for the current stream only.",
        replace(DeferringScheduler, "synchronize_device", _skips(_is_not_current)),
    ),
    _fault(
        "synchronize-current-device",
        "STR-7",
        "`synchronize(device)` waits for the current device.",
        replace(DeferringScheduler, "synchronize_device", _current_device_instead),
    ),
    _fault(
        "synchronize-skips-other-devices",
        "STR-7",
        "`synchronize(device)` does nothing for a device that is not current.",
        _apply_synchronize_ignores_indexed,
    ),
    _fault(
        "streams-denied-current-object",
        "STR-13",
        "Without streams, `current_stream()` is some object.",
        _apply_stand_in_stream,
        persona="minimal",
    ),
    _fault(
        "streams-denied-null-context",
        "STR-13",
        "Without streams, `stream()` gives a context that does nothing.",
        _apply_null_context,
        persona="minimal",
    ),
    _fault(
        "streams-denied-none", "STR-13", "Without streams, `new_stream()` gives None.", _apply_stream_is_none, persona="minimal"
    ),
)
