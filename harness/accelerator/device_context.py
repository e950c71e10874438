"""The adapter's device context (DEV-8).

For: making a device current for a block and restoring the previous one on every exit. Not for: streams, which select their device by
themselves.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from harness.errors import DeviceError

if TYPE_CHECKING:
    from harness.accelerator.contract import Accelerator
    from harness.accelerator.device_forms import DeviceLike


class DeviceContext:
    """Made by `Accelerator.device_context`; a fresh object for each `with`."""

    def __init__(self, accelerator: Accelerator, device: DeviceLike) -> None:
        self._accelerator = accelerator
        self._device = device
        self._previous: int | None = None

    def __enter__(self) -> None:
        if self._previous is not None:
            raise DeviceError("a device context can be entered once; ask device_context() for a fresh one")
        previous = self._accelerator.current_device()
        self._accelerator.set_device(self._accelerator.device_index(self._device))
        self._previous = previous

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._previous is not None:
            self._accelerator._restore_device(self._previous)
