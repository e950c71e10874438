"""Pinned host memory of a simulated machine, cached and reused.

For: memory that a device's copies read and write behind the host's back, and that nobody else gets before they are done (STR-9). Not
for: tensors on it (`pinned_memory.py`), nor device memory (`allocator.py`).

As PyTorch's caching host allocator: sizes are powers of two; the streams of the copies are noted with the block; when its last
tensor is gone, it serves another request as soon as what was issued on those streams until then is complete.
"""

from __future__ import annotations

import ctypes
import mmap
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fakes.launch import Scheduler
    from fakes.stream_state import StreamState


class HostBlock:
    """The memory of one pinned storage, from `address` on; given back when that is gone. `streams` have copies that use it."""

    __slots__ = ("address", "allocator", "memory", "streams")

    def __init__(self, allocator: HostAllocator, memory: mmap.mmap) -> None:
        self.allocator = allocator
        self.memory = memory
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self.streams: tuple[StreamState, ...] = ()

    def note_use(self, stream: StreamState) -> None:
        """Note that a copy on a stream uses the memory."""
        if stream not in self.streams:
            self.streams += (stream,)

    def __del__(self) -> None:
        self.allocator.free(self)


class HostAllocator:
    """Every pinned block of a machine. May be used from several threads, and from finalizers at any time: it takes no lock."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._free: dict[int, list[mmap.mmap]] = {}
        self._returned: deque[tuple[HostBlock, list[Any]]] = deque()

    def allocate(self, nbytes: int) -> HostBlock:
        """A block of at least `nbytes` bytes; its contents are what its last user left."""
        size = max(mmap.PAGESIZE, 1 << (nbytes - 1).bit_length())
        self._take_back()
        free = self._free.setdefault(size, [])
        try:
            memory = free.pop()
        except IndexError:
            memory = mmap.mmap(-1, size)
        return HostBlock(self, memory)

    def free(self, block: HostBlock) -> None:
        """Take a block's memory back; called once, when its storage is gone."""
        self._returned.append((block, [self._scheduler.mark(stream) for stream in block.streams]))

    def empty_cache(self) -> None:
        """Give back to the system what no tensor and no copy uses."""
        self._take_back()
        self._free.clear()

    def _take_back(self) -> None:
        """Let what was given back serve again, where the copies that use it are complete."""
        for _ in range(len(self._returned)):
            try:
                block, tickets = self._returned.popleft()
            except IndexError:  # another thread had it
                return
            if all(self._scheduler.is_complete(ticket) for ticket in tickets):
                self._scheduler.unpinned(block.address, len(block.memory))
                self._free.setdefault(len(block.memory), []).append(block.memory)
            else:
                self._returned.append((block, tickets))
