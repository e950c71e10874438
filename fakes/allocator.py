"""The caching allocator of one simulated device: who uses which memory, a capacity, and running out of it.

For: giving blocks (`block.py`) their memory, and what `memory_allocated` and its relatives count. Not for: finding a place
(`memory_pools.py`), nor the values in it, which under a scheduler that runs everything at once are host memory of the tensors
(`tensor.py`).

As in PyTorch's caching allocator: memory is taken from the device in segments and cached; a freed block serves later requests of
its own stream at once, and of no other stream; one that other streams use too (`record_stream`) waits until they are done.

Blocks are freed wherever their last user goes: in any thread, and inside an allocation when the garbage collector runs there. The
lock is therefore the last that a thread takes, nothing foreign is called under it, and what is freed inside is taken back after.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from fakes.allocation_statistics import Usage, statistics
from fakes.block import Block
from fakes.memory_pools import BLOCK_BYTES, LARGE_SEGMENT_BYTES, ROUNDING_BYTES, SMALL_BYTES, Pool, segment_bytes
from fakes.memory_size import readable

__all__ = ["Allocator", "Block"]

if TYPE_CHECKING:
    from fakes.launch import Scheduler

OomObserver = Callable[[int, int, int, int], Any]
_ROUND_UP = BLOCK_BYTES - 1
_DOWN_TO_BLOCK = ~_ROUND_UP
_NOTHING: list[Any] = []


class Allocator:
    """Memory of one device, in bytes. Safe to use from several threads.

    `capacity` is the device's memory. `limit` is what this process may use of it (`set_per_process_memory_fraction`). `settings`
    are those of `allocator_settings`. `usage` counts the whole device, `small` and `large` the two size classes.
    """

    def __init__(
        self, device_index: int, capacity: int, display_name: str, scheduler: Scheduler, settings: Mapping[str, Any]
    ) -> None:
        self.device_index = device_index
        self.capacity = capacity
        self.limit = capacity
        self.display_name = display_name
        self.scheduler = scheduler
        self.settings = settings
        self.observers: list[OomObserver] = []
        self.usage, self.small, self.large = Usage(), Usage(), Usage()
        self.retries = 0
        self.ooms = 0
        self._pools: list[Pool] = []
        self._small_pools: dict[Any, Pool] = {}
        self._large_pools: dict[Any, Pool] = {}
        # Devices have no address in common.
        self._next_address = (device_index + 1) << 48
        self._renew_lock()
        self._freed_inside: deque[Block] = deque()
        # Freed, but perhaps still used by other streams: pool, address, size, and a ticket of each.
        self._held: list[tuple[Pool, int, int, list[Any]]] = []

    def _renew_lock(self) -> None:
        # Re-entrant, since a finalizer may run between taking the lock and saying so.
        self._lock = threading.RLock()
        self._owner = 0  # the thread that holds the lock

    def after_fork_in_child(self) -> None:
        """Let blocks be freed in a forked child, whatever threads were doing when it was forked."""
        self._renew_lock()

    # Blocks -------------------------------------------------------------------------------------------------------------------

    def allocate(self, block: Block) -> None:
        """Give a block its memory.

        Raises:
            torch.OutOfMemoryError: it does not fit, also when nothing is cached any more; only `num_ooms`, `num_alloc_retries` and
                the cache change.
        """
        if self._held:
            self._end_holds()
        if not self._place(block):
            self._make_room()
            if not self._place(block):
                self._refuse(block.requested)

    def free(self, block: Block) -> None:
        """Take a block's memory back; called once, when its last user is gone."""
        me = get_ident()
        if self._owner == me:
            self._freed_inside.append(block)
            return
        scheduler = self.scheduler
        scheduler.freed(block)
        streams = block.recorded_streams
        tickets = [scheduler.mark(stream) for stream in streams] if streams else _NOTHING
        pool, size = block.pool, block.size
        with self._lock:
            self._owner = me
            try:
                requested = pool.live.pop(block.address)
                pool.usage.count_free(size, requested)
                self.usage.count_free(size, requested)
                if tickets:
                    self._hold(pool, block.address, size, tickets)
                else:
                    pool.put_back(block.address, size)
            finally:
                self._owner = 0
        if self._freed_inside:
            self._settle()

    def _place(self, block: Block) -> bool:
        """Find room for a block in what is cached, else get a segment; False where the device has none."""
        me = get_ident()
        if self._owner == me:
            # A finalizer that the garbage collector runs inside another allocation allocates: apart from what is half done.
            return self._place_in(self._new_pool(block.stream, block.requested <= SMALL_BYTES), block)
        with self._lock:
            self._owner = me
            try:
                pool = (self._small_pools if block.requested <= SMALL_BYTES else self._large_pools).get(block.stream)
                placed = self._place_in(pool or self._stream_pool(block), block)
            finally:
                self._owner = 0
        if self._freed_inside:
            self._settle()
        return placed

    def _place_in(self, pool: Pool, block: Block) -> bool:
        requested = block.requested
        size = (requested + _ROUND_UP) & _DOWN_TO_BLOCK
        recent = pool.recent.get(size)
        if recent:
            address = recent.pop()
        else:
            place = self._find(pool, size)
            if place is None:
                return False
            address, size = place
        pool.live[address] = requested
        pool.usage.count_allocation(size, requested)
        self.usage.count_allocation(size, requested)
        block.pool = pool
        block.address = address
        block.size = size
        return True

    def _stream_pool(self, block: Block) -> Pool:
        """A stream's pool for a size, at its first use."""
        is_small = block.requested <= SMALL_BYTES
        pools = self._small_pools if is_small else self._large_pools
        return pools.setdefault(block.stream, self._new_pool(block.stream, is_small))

    def _new_pool(self, stream: Any, is_small: bool) -> Pool:
        pool = Pool(stream, is_small, self.small if is_small else self.large, self.usage)
        self._pools.append(pool)
        return pool

    def _find(self, pool: Pool, size: int) -> tuple[int, int] | None:
        expandable = bool(self.settings["expandable_segments"])
        splits_all = pool.is_small or expandable
        place = pool.take(size, splits_all)
        if place is None and (self._expand(pool, size) if expandable else self._add_segment(pool, size)):
            place = pool.take(size, splits_all)
        return place

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold the lock, where this thread does not."""
        if self._owner == get_ident():
            yield
            return
        with self._lock:
            self._owner = get_ident()
            try:
                yield
            finally:
                self._owner = 0
        self._settle()

    def _settle(self) -> None:
        """Take back what was freed while the lock was held."""
        while self._freed_inside and self._owner != get_ident():
            try:
                block = self._freed_inside.popleft()
            except IndexError:  # another thread had the last one
                return
            self.free(block)

    def bytes_of(self, block: Block, nbytes: int | None = None) -> torch.Tensor:
        """See `Block.bytes`; the first `nbytes` of them where not None."""
        if not block.size:
            return torch.empty(0, dtype=torch.uint8, device="cpu")
        me = get_ident()
        size = block.size if nbytes is None else nbytes
        if self._owner == me:
            data: torch.Tensor = block.pool.bytes_at(block.address, size)
            return data
        with self._lock:
            self._owner = me
            try:
                data = block.pool.bytes_at(block.address, size)
            finally:
                self._owner = 0
        if self._freed_inside:
            self._settle()
        return data

    # Blocks that other streams use --------------------------------------------------------------------------------------------

    def _hold(self, pool: Pool, address: int, size: int, tickets: list[Any]) -> None:
        pool.usage.count_held(size, 1)
        self.usage.count_held(size, 1)
        self._held.append((pool, address, size, tickets))

    def _end_holds(self) -> None:
        """Put back what other streams used, where they are done."""
        with self._exclusive():
            held, self._held = self._held, []
        is_complete = self.scheduler.is_complete
        done = [all(is_complete(ticket) for ticket in hold[3]) for hold in held]
        with self._exclusive():
            for hold, is_done in zip(held, done, strict=True):
                if not is_done:
                    self._held.append(hold)
                    continue
                pool, address, size, _ = hold
                pool.usage.count_held(-size, -1)
                self.usage.count_held(-size, -1)
                pool.put_back(address, size)

    # Segments -----------------------------------------------------------------------------------------------------------------

    def _add_segment(self, pool: Pool, size: int) -> bool:
        taken = segment_bytes(size)
        if not self._reserve(pool, taken, 1):
            return False
        pool.add_segment(self._addresses(taken), taken)
        return True

    def _expand(self, pool: Pool, size: int) -> bool:
        if size > self.limit:
            return False
        if not pool.has_room_to_grow(pool.growth(size)):
            span = 2 * self.capacity + 2 * LARGE_SEGMENT_BYTES
            pool.start_arena(self._addresses(span), span)
        growth, segments = pool.growth(size), len(pool.segments)
        if not self._reserve(pool, growth, 0):
            return False
        pool.grow(growth)
        self._count_reserved(pool, 0, len(pool.segments) - segments)
        return True

    def _reserve(self, pool: Pool, size: int, segments: int) -> bool:
        if self.usage.reserved + size > self.limit:
            return False
        self._count_reserved(pool, size, segments)
        return True

    def _count_reserved(self, pool: Pool, size: int, segments: int) -> None:
        self.usage.count_reserved(size, segments)
        pool.usage.count_reserved(size, segments)

    def _addresses(self, size: int) -> int:
        """A range of addresses that nothing has had, apart from all others."""
        start = self._next_address
        self._next_address = (start + size + 2 * ROUNDING_BYTES) // ROUNDING_BYTES * ROUNDING_BYTES
        return start

    def require(self, size: int, stream: Any) -> None:
        """Refuse now what an allocation of `size` bytes on a stream would be refused.

        Raises:
            torch.OutOfMemoryError: they do not fit.
        """
        if size > SMALL_BYTES and not self._has_room(size, stream):
            self._make_room()
            if not self._has_room(size, stream):
                self._refuse(size)

    def _has_room(self, size: int, stream: Any) -> bool:
        size = (size + _ROUND_UP) & _DOWN_TO_BLOCK
        with self._exclusive():
            pool = self._large_pools.get(stream)
            if pool is not None and pool.largest_free >= size:
                return True
            if self.settings["expandable_segments"]:
                growth = (pool or Pool(stream, False, Usage(), Usage())).growth(size)
            else:
                growth = segment_bytes(size)
            return self.usage.reserved + growth <= self.limit

    def _make_room(self) -> None:
        """Give back to the device what is cached, before a request is tried again."""
        self.retries += 1
        self.empty_cache()

    def empty_cache(self) -> None:
        """Give back to the device what no tensor uses. Waits for the device, as vendors' drivers do before they take memory back."""
        self.scheduler.synchronize_device(self.device_index)
        self._end_holds()
        given_up: list[torch.Tensor] = []
        with self._exclusive():
            for pool in tuple(self._pools):
                segments = len(pool.segments)
                released = pool.release(given_up)
                self._count_reserved(pool, -released, len(pool.segments) - segments)
            used = {id(pool) for pools in (self._small_pools, self._large_pools) for pool in pools.values()}
            self._pools = [pool for pool in self._pools if pool.segments or id(pool) in used]
        for memory in given_up:
            self.scheduler.released(memory)

    # Figures ------------------------------------------------------------------------------------------------------------------

    @property
    def allocated(self) -> int:
        """Bytes that live blocks have."""
        return self.usage.allocated

    @property
    def reserved(self) -> int:
        """Bytes that the device gave."""
        return self.usage.reserved

    @property
    def peak_allocated(self) -> int:
        """The most that was `allocated` since the last reset."""
        return self.usage.allocated_peak

    @property
    def peak_reserved(self) -> int:
        """The most that was `reserved` since the last reset."""
        return self.usage.reserved_peak

    def reset_peaks(self) -> None:
        """Set the peaks to the current values."""
        with self._exclusive():
            for usage in (self.usage, self.small, self.large):
                usage.reset_peaks()

    def reset_accumulated(self) -> None:
        """Set the totals since the start to zero, keeping the current values."""
        with self._exclusive():
            for usage in (self.usage, self.small, self.large):
                usage.reset_accumulated()
            self.ooms = self.retries = 0

    def info(self) -> tuple[int, int]:
        """(free, total) bytes of the device."""
        return self.capacity - self.usage.reserved, self.capacity

    def statistics(self) -> OrderedDict[str, int]:
        """The counters under PyTorch's names, sorted."""
        with self._exclusive():
            for pool in self._pools:
                pool.merge_recent()
            others = {
                "max_split_size": self.settings["max_split_size"],
                "num_alloc_retries": self.retries,
                "num_ooms": self.ooms,
            }
            return statistics(self.usage, self.small, self.large, others)

    def snapshot(self) -> list[dict[str, Any]]:
        """Every segment with its blocks, as PyTorch's `memory_snapshot` gives them."""
        with self._exclusive():
            held = [address for _, address, _, _ in self._held]
            segments = [segment for pool in self._pools for segment in pool.snapshot(held)]
        return [{"device": self.device_index, **segment} for segment in segments]

    def _refuse(self, size: int) -> NoReturn:
        self.ooms += 1
        free = self.capacity - self.usage.reserved
        for observer in tuple(self.observers):
            observer(self.device_index, size, self.limit, free)
        raise torch.OutOfMemoryError(
            f"{self.display_name} out of memory. Tried to allocate {readable(size)}. GPU {self.device_index} has a total capacity of "
            f"{readable(self.capacity)} of which {readable(free)} is free. {readable(self.limit)} allowed; of the allocated memory "
            f"{readable(self.allocated)} is allocated by PyTorch, and {readable(self.reserved - self.allocated)} is reserved by "
            "PyTorch but unallocated."
        )
