"""Kernels that failed.

For: telling the host of it, at its next call for that device and at every one after. Not for: wrong calls, which are refused at launch.
"""

from __future__ import annotations

from fakes.scheduling.launches import Launch


class Failures:
    """The first failure of each device."""

    def __init__(self) -> None:
        self._first: dict[int, tuple[str, BaseException]] = {}
        self._told: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._first)

    def add(self, launch: Launch, error: BaseException) -> None:
        """A kernel raised."""
        where = launch.where
        told = f"at {where}" if where != "unknown" else "detect_races=True would tell its line"
        self._first.setdefault(launch.queue.stream.device_index, (f"{launch!r}, {told}", error))

    def take(self) -> BaseException:
        """Forget a failure; the kernel's own error."""
        return self._first.popitem()[1][1]

    def raise_for(self, device_index: int) -> None:
        """Raise if a kernel of the device failed.

        Raises:
            RuntimeError: one did.
        """
        if device_index in self._first:
            self._told.add(device_index)
            raise self._error(device_index)

    def untold(self) -> RuntimeError | None:
        """The error of a device whose failure was never raised."""
        return next((self._error(index) for index in self._first if index not in self._told), None)

    def _error(self, device_index: int) -> RuntimeError:
        what, cause = self._first[device_index]
        error = RuntimeError(
            f"device {device_index} failed in {what}: {type(cause).__name__}: {cause}\n"
            "Its result was never written, and the device is of no use until the machine is reset."
        )
        error.__cause__ = cause
        return error
