"""Faults of stream contexts (STR-5).

For: contexts that do not undo themselves, or do not select the device, in the simulated device or the adapter. Not for: which stream is
current without one (`streams.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from fakes.faults.fault import Fault
from fakes.faults.replacing import Apply, replace
from fakes.machine import current_machine
from fakes.patching import Patches
from fakes.stream import Stream
from harness.accelerator.stream_context import StreamContext


def _kept_after(kinds: Callable[[Any], bool]) -> Callable[..., None]:
    """The vendor's context restores nothing where its body ended by such an exception."""

    def wrong(original: Any, self: Any, kind: Any, error: Any, traceback: Any) -> None:
        if kinds(kind):
            self._entered.pop()
        else:
            original(self, kind, error, traceback)

    return wrong


def _is_base_only(kind: Any) -> bool:
    return kind is not None and not issubclass(kind, Exception)


def _restores_default(original: Any, self: Any, kind: Any, error: Any, traceback: Any) -> None:
    original(self, kind, error, traceback)
    machine = current_machine()
    index = self.state.device_index
    machine.set_stream(machine.device(index).default_stream)


def _apply_one_slot(patches: Patches) -> None:
    """Nested contexts share one place for what was current."""
    slot: dict[str, Any] = {}
    enter = Stream.__enter__

    def entering(self: Any) -> Any:
        result = enter(self)
        slot["before"] = self._entered.pop()
        return result

    def leaving(_self: Any, *_exception: Any) -> None:
        machine = current_machine()
        device, stream = slot["before"]
        machine.set_stream(stream)
        machine.set_device(device)

    patches.set(Stream, "__enter__", entering)
    patches.set(Stream, "__exit__", leaving)


def _apply_device_not_restored(patches: Patches) -> None:
    def leaving(self: Any, kind: Any, error: Any, traceback: Any) -> None:
        device = self._accelerator.current_device()
        self._vendor_context.__exit__(kind, error, traceback)
        self._accelerator._restore_device(device)

    patches.set(StreamContext, "__exit__", leaving)


def _apply_device_not_selected(patches: Patches) -> None:
    def entering(self: Any) -> Any:
        device = self._accelerator.current_device()
        self._previous = device
        self._vendor_context.__enter__()
        self._accelerator._restore_device(device)
        return self._stream

    patches.set(StreamContext, "__enter__", entering)


def _apply_not_entered_on_other_device(patches: Patches) -> None:
    enter = StreamContext.__enter__

    def entering(self: Any) -> Any:
        if self._stream.device.index == self._accelerator.current_device():
            return enter(self)
        self._vendor_context = nullcontext()
        return enter(self)

    patches.set(StreamContext, "__enter__", entering)


def _swallows(original: Any, self: Any, kind: Any, error: Any, traceback: Any) -> bool:
    original(self, kind, error, traceback)
    return kind is not None and issubclass(kind, Exception)


def _fault(fault_id: str, summary: str, apply: Apply, seen_in: str = "derived") -> Fault:
    return Fault(fault_id, ("STR-5",), summary, seen_in, apply)


FAULTS: tuple[Fault, ...] = (
    _fault(
        "str-context-lost-on-exception",
        "A stream context restores nothing when its body raises.",
        replace(Stream, "__exit__", _kept_after(lambda kind: kind is not None)),
    ),
    _fault(
        "str-context-lost-on-base-exception",
        "A stream context restores nothing on exceptions that are no `Exception`.",
        replace(Stream, "__exit__", _kept_after(_is_base_only)),
    ),
    _fault(
        "str-context-never-restored",
        "A stream context leaves its stream current.",
        replace(Stream, "__exit__", _kept_after(lambda _kind: True)),
    ),
    _fault(
        "str-context-restores-default",
        "A stream context leaves the default stream current, not the previous one.",
        replace(Stream, "__exit__", _restores_default),
    ),
    _fault("str-contexts-share-a-slot", "Nested stream contexts share one place for the previous stream.", _apply_one_slot),
    _fault("str-context-keeps-device", "A stream context does not restore the device.", _apply_device_not_restored),
    _fault(
        "str-context-selects-no-device",
        "A stream context does not make its stream's device current.",
        _apply_device_not_selected,
        "B89",
    ),
    _fault(
        "str-context-without-effect-on-other-device",
        "A context of another device's stream has no effect on it.",
        _apply_not_entered_on_other_device,
        "B89",
    ),
    _fault(
        "str-context-swallows",
        "A stream context swallows the exception of its body.",
        replace(StreamContext, "__exit__", _swallows),
    ),
)
