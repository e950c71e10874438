"""The adapter's stream context (STR-5).

For: making a stream and its device current for a block and restoring both on every exit, also where the vendor's own context
forgets the device. Not for: ordering work; that is what streams and events do."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch

from harness.errors import DeviceError

if TYPE_CHECKING:
    from harness.accelerator.contract import Accelerator


class StreamContext:
    """Made by `Accelerator.stream`; a fresh object for each `with`, which yields the stream."""

    def __init__(self, accelerator: Accelerator, stream: Any, vendor_context: AbstractContextManager[Any]) -> None:
        self._accelerator = accelerator
        self._stream = stream
        self._vendor_context = vendor_context
        self._previous: int | None = None

    def __enter__(self) -> Any:
        if self._previous is not None:
            raise DeviceError("a stream context can be entered once; ask stream() for a fresh one")
        target = self._accelerator.device_index(stream_device(self._stream))
        previous = self._accelerator.current_device()
        self._vendor_context.__enter__()
        self._previous = previous
        if self._accelerator.current_device() != target:
            self._accelerator.set_device(target)
        return self._stream

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        try:
            self._vendor_context.__exit__(kind, error, traceback)
        finally:
            if self._previous is not None and self._accelerator.current_device() != self._previous:
                self._accelerator._restore_device(self._previous)


class CurrentStream:
    """A context over `torch.accelerator.set_stream`, for devices whose namespace has none."""

    def __init__(self, stream: torch.Stream) -> None:
        self._stream = stream
        self._previous: torch.Stream | None = None

    def __enter__(self) -> torch.Stream:
        self._previous = torch.accelerator.current_stream(self._stream.device)
        torch.accelerator.set_stream(self._stream)
        return self._stream

    def __exit__(self, *_exception: object) -> None:
        if self._previous is not None:
            torch.accelerator.set_stream(self._previous)


def stream_device(stream: Any) -> Any:
    """The device of a stream, in a form that `Accelerator.device_index` takes.

    Raises:
        DeviceError: the object is not a stream.
    """
    device = getattr(stream, "device", None)
    if device is None:
        device = getattr(stream, "device_index", None)
    if device is None:
        raise DeviceError(f"{stream!r} ({type(stream).__name__}) is not a stream of a device; make one with new_stream()")
    return device
