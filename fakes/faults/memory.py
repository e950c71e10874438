"""Faults in memory: counters, the cache, running out, peaks and first use (MEM).

For: the catalogue. Not for: the allocator's settings (`memory_settings.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import torch

from fakes.allocation_statistics import Usage
from fakes.allocator import Allocator
from fakes.faults.fault import Fault
from fakes.faults.replacing import Apply, nothing, replace_method
from fakes.patching import Patches
from harness.accelerator.namespace_memory import NamespaceMemory

_adapter = partial(replace_method, NamespaceMemory)
_allocator = partial(replace_method, Allocator)
_usage = partial(replace_method, Usage)


def _current_device_only(_accelerator: Any, right: Callable[..., Any], _device: Any = None) -> Any:
    return right(None)


def _swapped(_accelerator: Any, right: Callable[..., Any], device: Any = None) -> tuple[int, int]:
    free, total = right(device)
    return total, free


def _index_needed(accelerator: Any, right: Callable[..., Any], device: Any = None) -> Any:
    if device == accelerator.device_type or device == torch.device(accelerator.device_type):
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got: {device}")
    return right(device)


def _never_given_back(_usage: Any, _right: Callable[..., None], _size: int, _requested: int) -> None:
    """Nothing is counted."""


def _large_blocks_shrink(_usage: Any, right: Callable[..., None], size: int, requested: int) -> None:
    right(size - 512 if size > 1 << 20 else size, requested)


def _other_devices_pay(allocator: Any, right: Callable[..., bool], pool: Any, block: Any) -> bool:
    from fakes.machine import current_machine

    placed = right(pool, block)
    for device in current_machine().initialize():
        if device.allocator is not allocator:
            usage = device.allocator.usage
            usage.allocated += block.size
            usage.reserved = max(usage.reserved, usage.allocated)
    return placed


def _forgets_what_is_in_use(allocator: Any, right: Callable[..., None]) -> None:
    right()
    allocator.usage.allocated = min(allocator.usage.allocated, 512)


def _takes_more(allocator: Any, right: Callable[..., None]) -> None:
    right()
    allocator.usage.reserved += 2 << 20


def _empties_tensors(_accelerator: Any, right: Callable[..., None]) -> None:
    from fakes.tensor import DeviceTensor

    right()
    for reference in _live:
        value = reference()
        if isinstance(value, DeviceTensor) and value._data.numel() > 512:
            value._data.zero_()


_live: list[Any] = []


def _apply_cache_empties_tensors(patches: Patches) -> None:
    import weakref

    from fakes import factories, tensor

    original = tensor.wrap

    def wrap(*arguments: Any) -> Any:
        made = original(*arguments)
        _live[:] = [*_live[-20:], weakref.ref(made)]
        return made

    patches.set(factories, "wrap", wrap)
    _adapter("empty_cache", _empties_tensors)(patches)


def _driver_error(_allocator: Any, _right: Callable[..., None], _size: int) -> NoReturn:
    raise RuntimeError("driver error: out of memory")


def _counts_what_it_refuses(allocator: Any, right: Callable[..., None], size: int) -> None:
    usage = allocator.usage
    usage.allocated += 512
    usage.reserved = max(usage.reserved, usage.allocated)
    right(size)


def _keeps_a_segment(allocator: Any, right: Callable[..., None], size: int) -> None:
    allocator.usage.reserved += 32 << 20
    right(size)


def _apply_full_for_good(patches: Patches) -> None:
    refused: set[int] = set()

    def refuse(allocator: Any, right: Callable[..., None], size: int) -> None:
        refused.add(id(allocator))
        right(size)

    def place(allocator: Any, right: Callable[..., bool], block: Any) -> bool:
        return id(allocator) not in refused and right(block)

    _allocator("_refuse", refuse)(patches)
    _allocator("_place", place)(patches)


def _wipes_when_full(_allocator: Any, right: Callable[..., None], size: int) -> None:
    for reference in _live:
        value = reference()
        if value is not None:
            value._data.zero_()
    right(size)


def _apply_wipes_when_full(patches: Patches) -> None:
    _apply_cache_empties_tensors(patches)
    _allocator("_refuse", _wipes_when_full)(patches)


def _as_current(accelerator: Any, _right: Callable[..., int], device: Any = None) -> int:
    return int(accelerator.memory_allocated(device))


def _peaks_to_zero(allocator: Any, _right: Callable[..., None]) -> None:
    allocator.usage.allocated_peak = allocator.usage.reserved_peak = 0


def _reset_everywhere(accelerator: Any, right: Callable[..., None], device: Any = None) -> None:
    right(device)
    for index in range(accelerator.device_count()):
        right(index)


def _raises_before_use(accelerator: Any, right: Callable[..., Any], *arguments: Any) -> Any:
    if not accelerator._is_initialized():
        raise RuntimeError("Invalid device argument 0: did you call init?")
    return right(*arguments)


def _opens_every_context(accelerator: Any, right: Callable[..., Any], device: Any = None) -> Any:
    for index in range(accelerator.device_count()):
        accelerator.synchronize(index)
        accelerator.accelerator_module().synchronize(index)
    return right(device)


def _whole_memory(_accelerator: Any, right: Callable[..., int], device: Any = None) -> int:
    return right(device) + (1 << 40)


def _in_mebibytes(_accelerator: Any, right: Callable[..., int], device: Any = None) -> int:
    return right(device) >> 20


def _half_counted(_accelerator: Any, right: Callable[..., int], device: Any = None) -> int:
    return right(device) // 2


def _fault(name: str, clauses: tuple[str, ...], summary: str, apply: Apply, seen_in: str = "derived") -> Fault:
    return Fault(f"mem-{name}", clauses, summary, seen_in, apply)


FAULTS: tuple[Fault, ...] = (
    _fault("free-and-total-swapped", ("MEM-1",), "`mem_get_info` gives (total, free).", _adapter("mem_get_info", _swapped)),
    _fault("reserved-in-mebibytes", ("MEM-1",), "`memory_reserved` counts in MiB.", _adapter("memory_reserved", _in_mebibytes)),
    _fault(
        "reserved-past-the-device",
        ("MEM-1",),
        "`memory_reserved` is more than the device has.",
        _adapter("memory_reserved", _whole_memory),
    ),
    _fault(
        "allocated-half-counted",
        ("MEM-2",),
        "`memory_allocated` counts half of what is in use.",
        _adapter("memory_allocated", _half_counted),
    ),
    _fault(
        "allocated-of-current-device",
        ("MEM-2", "MEM-7"),
        "`memory_allocated` ignores its device.",
        _adapter("memory_allocated", _current_device_only),
        "B101",
    ),
    _fault("freed-never-counted", ("MEM-2",), "A free is not counted.", _usage("count_free", _never_given_back)),
    _fault(
        "large-free-counted-short",
        ("MEM-2",),
        "A free of more than 1 MiB gives 512 bytes too little back.",
        _usage("count_free", _large_blocks_shrink),
    ),
    _fault(
        "allocation-counted-on-all-devices",
        ("MEM-2",),
        "An allocation is counted on every device.",
        _allocator("_place_in", _other_devices_pay),
    ),
    _fault(
        "cache-forgets-tensors",
        ("MEM-3",),
        "`empty_cache` sets `memory_allocated` back although tensors live.",
        _allocator("empty_cache", _forgets_what_is_in_use),
    ),
    _fault("cache-grows", ("MEM-3",), "`empty_cache` raises `memory_reserved`.", _allocator("empty_cache", _takes_more)),
    _fault(
        "cache-empties-tensors",
        ("MEM-3",),
        "`empty_cache` clears memory that tensors still use.",
        _apply_cache_empties_tensors,
    ),
    _fault(
        "oom-of-another-class",
        ("MEM-4",),
        "Running out of memory raises a plain RuntimeError.",
        _allocator("_refuse", _driver_error),
        "B114",
    ),
    _fault(
        "oom-counted-as-allocated",
        ("MEM-4",),
        "A refused request stays in `memory_allocated`.",
        _allocator("_refuse", _counts_what_it_refuses),
    ),
    _fault(
        "oom-keeps-a-segment", ("MEM-4",), "A refused request raises `memory_reserved`.", _allocator("_refuse", _keeps_a_segment)
    ),
    _fault(
        "oom-for-good",
        ("MEM-4",),
        "After one refused request the device takes nothing more.",
        _apply_full_for_good,
    ),
    _fault("oom-wipes-tensors", ("MEM-4",), "A refused request clears live tensors.", _apply_wipes_when_full),
    _fault(
        "peak-is-current",
        ("MEM-6",),
        "`max_memory_allocated` is what is allocated now.",
        _adapter("max_memory_allocated", _as_current),
    ),
    _fault("peak-reset-to-zero", ("MEM-6",), "A reset sets the peaks to zero.", _allocator("reset_peaks", _peaks_to_zero)),
    _fault(
        "peak-reset-everywhere",
        ("MEM-6",),
        "A reset of one device's peaks resets every device's.",
        _adapter("reset_peak_memory_stats", _reset_everywhere),
    ),
    _fault("peak-never-reset", ("MEM-6",), "A reset leaves the peaks as they are.", _adapter("reset_peak_memory_stats", nothing)),
    _fault(
        "info-ignores-device",
        ("MEM-7",),
        "`mem_get_info` gives the current device's numbers for every device.",
        _adapter("mem_get_info", _current_device_only),
        "B98",
    ),
    _fault(
        "info-needs-an-index",
        ("MEM-7",),
        "`mem_get_info` refuses a device without an index.",
        _adapter("mem_get_info", _index_needed),
        "B99",
    ),
    _fault(
        "handles-collected-too-early",
        ("MEM-8",),
        "`ipc_collect` raises before first use.",
        _adapter("ipc_collect", _raises_before_use),
        "B102",
    ),
    _fault(
        "statistics-need-first-use",
        ("MEM-11",),
        "`memory_allocated` raises before first use.",
        _adapter("memory_allocated", _raises_before_use),
        "B101",
    ),
    _fault(
        "reset-needs-first-use",
        ("MEM-11",),
        "`reset_peak_memory_stats` raises before first use.",
        _adapter("reset_peak_memory_stats", _raises_before_use),
        "B102",
    ),
    _fault(
        "info-opens-every-context",
        ("MEM-11",),
        "`mem_get_info` opens a context on every device.",
        _adapter("mem_get_info", _opens_every_context),
        "B103",
    ),
)
