"""The memory of one simulated device: counters, a capacity, and running out of it.

For: the numbers behind `memory_allocated` and its relatives, and `torch.OutOfMemoryError`. Not for: the bytes themselves, which
are host memory of the tensors (`tensor.py`).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

BLOCK_BYTES = 512
"""Every allocation takes a multiple of this, as in PyTorch's caching allocator."""
SEGMENT_BYTES = 2 << 20
"""The device's memory is reserved in multiples of this."""

OomObserver = Callable[[int, int, int, int], Any]


class Block:
    """The memory of one storage; freed when the last tensor that uses it is gone.

    `size` is in bytes, as accounted for. `stream` is the stream on which it was allocated. `recorded_streams` are the other streams
    that `record_stream` named.
    """

    __slots__ = ("__weakref__", "_bytes", "allocator", "recorded_streams", "size", "stream")

    def __init__(self, allocator: Allocator, size: int, stream: Any) -> None:
        self.size = 0
        self.allocator = allocator
        self.stream = stream
        self.recorded_streams: list[Any] = []
        self._bytes: torch.Tensor | None = None
        self.size = allocator.take(size)

    def bytes(self) -> torch.Tensor:
        """The host bytes that carry the block: uint8, `size` of them, made at first use; the same memory at each call."""
        if self._bytes is None:
            self._bytes = torch.empty(self.size, dtype=torch.uint8, device="cpu")
        return self._bytes

    def resize(self, size: int) -> None:
        """Account for `size` bytes from now on.

        Raises:
            torch.OutOfMemoryError: it does not fit; the block is then as it was.
        """
        previous, self.size = self.size, 0
        self.allocator.give_back(previous)
        try:
            self.size = self.allocator.take(size)
        except torch.OutOfMemoryError:
            self.size = self.allocator.take(previous)
            raise

    def __deepcopy__(self, memo: Any) -> Block:
        # A copy would give the same memory back twice.
        return self

    def __del__(self) -> None:
        # PyTorch's compiler makes instances without initialising them.
        if getattr(self, "size", 0):
            self.allocator.give_back(self.size)


class Allocator:
    """Memory counters of one device, in bytes. Safe to use from several threads.

    `capacity` is the device's memory. `limit` is what this process may use of it (`set_per_process_memory_fraction`).
    """

    def __init__(self, device_index: int, capacity: int, display_name: str) -> None:
        self.device_index = device_index
        self.capacity = capacity
        self.limit = capacity
        self.display_name = display_name
        self.observers: list[OomObserver] = []
        # Re-entrant, since a block may be collected while a counter is being changed in the same thread.
        self._lock = threading.RLock()
        self.allocated = 0
        self.reserved = 0
        self.peak_allocated = 0
        self.peak_reserved = 0
        self.total_allocated = 0
        self.total_freed = 0
        self.allocations = 0
        self.frees = 0
        self.peak_allocations = 0
        self.ooms = 0

    def take(self, size: int) -> int:
        """Account for an allocation of `size` bytes; what it takes, rounded up.

        Raises:
            torch.OutOfMemoryError: it does not fit; no counter but `num_ooms` changes.
        """
        if not size:
            return 0
        taken = -(-size // BLOCK_BYTES) * BLOCK_BYTES
        with self._lock:
            allocated = self.allocated + taken
            if allocated <= self.limit:
                self.allocated = allocated
                self.total_allocated += taken
                self.allocations += 1
                if allocated > self.reserved:
                    self.reserved = min(-(-allocated // SEGMENT_BYTES) * SEGMENT_BYTES, self.limit)
                    self.peak_reserved = max(self.peak_reserved, self.reserved)
                self.peak_allocated = max(self.peak_allocated, allocated)
                self.peak_allocations = max(self.peak_allocations, self.allocations - self.frees)
                return taken
            self.ooms += 1
        self._refuse(size)
        return 0

    def require(self, size: int) -> None:
        """Refuse now what `take` would refuse.

        Raises:
            torch.OutOfMemoryError: `size` bytes do not fit.
        """
        if self.allocated + size > self.limit:
            with self._lock:
                self.ooms += 1
            self._refuse(size)

    def give_back(self, size: int) -> None:
        """Account for the end of an allocation that took `size` bytes."""
        if not size:
            return
        with self._lock:
            self.allocated -= size
            self.total_freed += size
            self.frees += 1

    def empty_cache(self) -> None:
        """Give back to the device what no tensor uses."""
        with self._lock:
            self.reserved = min(-(-self.allocated // SEGMENT_BYTES) * SEGMENT_BYTES, self.reserved)

    def reset_peaks(self) -> None:
        """Set the peaks to the current values."""
        with self._lock:
            self.peak_allocated = self.allocated
            self.peak_reserved = self.reserved
            self.peak_allocations = self.allocations - self.frees

    def reset_accumulated(self) -> None:
        """Set the totals since the start to zero, keeping the current values."""
        with self._lock:
            self.total_allocated = self.allocated
            self.total_freed = 0
            self.allocations -= self.frees
            self.frees = 0
            self.ooms = 0

    def info(self) -> tuple[int, int]:
        """(free, total) bytes of the device."""
        return self.capacity - self.reserved, self.capacity

    def statistics(self) -> OrderedDict[str, int]:
        """The counters under PyTorch's names, sorted."""
        with self._lock:
            live = self.allocations - self.frees
            figures = {
                "allocated_bytes": (self.allocated, self.peak_allocated, self.total_allocated, self.total_freed),
                "active_bytes": (self.allocated, self.peak_allocated, self.total_allocated, self.total_freed),
                "requested_bytes": (self.allocated, self.peak_allocated, self.total_allocated, self.total_freed),
                "reserved_bytes": (self.reserved, self.peak_reserved, self.peak_reserved, self.peak_reserved - self.reserved),
                "allocation": (live, self.peak_allocations, self.allocations, self.frees),
                "active": (live, self.peak_allocations, self.allocations, self.frees),
            }
            result = {
                f"{name}.{pool}.{figure}": value
                for name, values in figures.items()
                for pool in ("all",)
                for figure, value in zip(("current", "peak", "allocated", "freed"), values, strict=True)
            }
            result |= {"num_ooms": self.ooms, "num_alloc_retries": self.ooms, "max_split_size": -1}
        return OrderedDict(sorted(result.items()))

    def _refuse(self, size: int) -> None:
        free = self.capacity - self.reserved
        for observer in tuple(self.observers):
            observer(self.device_index, size, self.limit, free)
        unused = self.reserved - self.allocated
        raise torch.OutOfMemoryError(
            f"{self.display_name} out of memory. Tried to allocate {_readable(size)}. GPU {self.device_index} has a total "
            "capacity of "
            f"{_readable(self.capacity)} of which {_readable(free)} is free. {_readable(self.limit)} allowed; "
            f"of the allocated memory {_readable(self.allocated)} is allocated by PyTorch, and {_readable(unused)} is reserved by "
            "PyTorch but unallocated."
        )


def _readable(size: int) -> str:
    for unit, divisor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= divisor:
            return f"{size / divisor:.2f} {unit}"
    return f"{size} bytes"
