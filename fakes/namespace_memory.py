"""The memory part of a simulated device's namespace.

For: `torch.<type>.memory_allocated` and its relatives. Not for: the counters themselves (`allocator.py`). Before first use every
counter is zero and every reset does nothing, without initialising the runtime; only `mem_get_info` uses it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from fakes.allocator import Allocator
from fakes.allocator_settings import settings_in_force
from fakes.errors import MachineConfigurationError
from fakes.machine import _current, current_machine

NAMES = (
    "_set_allocator_settings",
    "_snapshot",
    "empty_cache",
    "ipc_collect",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
)


def _allocator(device: Any) -> Allocator | None:
    """The allocator of a device in use, or None before first use."""
    machine = _current.machine
    if machine is None or machine.in_bad_fork:
        return None
    used = machine.peek(machine.device_index(device))
    return None if used is None else used.allocator


def memory_allocated(device: Any = None) -> int:
    """Bytes that live tensors hold."""
    allocator = _allocator(device)
    return 0 if allocator is None else allocator.allocated


def memory_reserved(device: Any = None) -> int:
    """Bytes that the allocator holds."""
    allocator = _allocator(device)
    return 0 if allocator is None else allocator.reserved


def max_memory_allocated(device: Any = None) -> int:
    """The largest `memory_allocated` since the last reset."""
    allocator = _allocator(device)
    return 0 if allocator is None else allocator.peak_allocated


def max_memory_reserved(device: Any = None) -> int:
    """The largest `memory_reserved` since the last reset."""
    allocator = _allocator(device)
    return 0 if allocator is None else allocator.peak_reserved


def reset_peak_memory_stats(device: Any = None) -> None:
    """Set the peaks to the current values."""
    allocator = _allocator(device)
    if allocator is not None:
        allocator.reset_peaks()


def reset_max_memory_allocated(device: Any = None) -> None:
    """As `reset_peak_memory_stats`, as in PyTorch."""
    reset_peak_memory_stats(device)


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Set the totals since the start to zero."""
    allocator = _allocator(device)
    if allocator is not None:
        allocator.reset_accumulated()


def memory_stats(device: Any = None) -> OrderedDict[str, int]:
    """Every counter under PyTorch's name; empty before first use."""
    allocator = _allocator(device)
    return OrderedDict() if allocator is None else allocator.statistics()


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The counters as text, one a line."""
    del abbreviated
    return "\n".join(f"{name:<40} {value}" for name, value in memory_stats(device).items())


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes. Opens the device's context and no other."""
    machine = current_machine()
    return machine.open(machine.device_index(device)).allocator.info()


def empty_cache() -> None:
    """Give unused memory of every device in use back. Opens no context."""
    machine = _current.machine
    if machine is not None and machine.is_initialized:
        for device in machine.initialize():
            device.allocator.empty_cache()


def ipc_collect() -> None:
    """Nothing to release: a simulated device shares no memory between processes."""


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Allow this process a fraction of a device's memory.

    Raises:
        TypeError, ValueError: not a float in [0, 1].
    """
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    machine = current_machine()
    allocator = machine.device(machine.device_index(device)).allocator
    allocator.limit = int(allocator.capacity * fraction)


def attach_out_of_memory_observer(observer: Any) -> None:
    """Have `observer(device, bytes asked, bytes of the limit, bytes free)` called at each out-of-memory error."""
    if not callable(observer):
        raise MachineConfigurationError(f"an out-of-memory observer must be callable, not {type(observer).__name__}")
    for device in current_machine().initialize():
        device.allocator.observers.append(observer)


def _set_allocator_settings(settings: str) -> None:
    """Put allocator settings (`name:value,name:value`) in force; those that are not named go back to their defaults.

    Raises:
        ValueError: an unknown name, or a value that is not one of its own.
    """
    machine = current_machine()
    machine.use_allocator_settings(settings_in_force(machine.persona.device_type, settings))


def _snapshot(device: Any = None) -> dict[str, Any]:
    """The segments of every device in use, and the allocator's settings in force. Traces are not kept."""
    del device
    machine = _current.machine
    settings = {} if machine is None else machine.allocator_settings
    devices = machine.initialize() if machine is not None and machine.is_initialized else ()
    segments = [segment for one in devices for segment in one.allocator.snapshot()]
    return {"segments": segments, "device_traces": [], "allocator_settings": dict(settings)}


def memory_snapshot() -> list[dict[str, Any]]:
    """Every segment of every device in use, with its blocks; empty before first use."""
    segments: list[dict[str, Any]] = _snapshot()["segments"]
    return segments
