"""The memory that an allocator got from a device for one stream and one size class, and which ranges of it are free.

For: best fit, splitting, merging, growing and giving segments back, over plain addresses. Not for: who uses a range, limits and
counters of the device (`allocator.py`).

Free ranges are kept three times: sorted by size, to find the best fit; by their start and by their end, to merge with neighbours.
A range that was just freed waits in `recent` for a request of its very size; it is merged when a request finds none, and before
anybody looks. Segments lie apart from each other, so that ranges of two of them never merge.
"""

from __future__ import annotations

import mmap
import sys
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import torch

from fakes.allocation_statistics import Usage
from fakes.scheduling import poison

BLOCK_BYTES = 512
"""Every allocation takes a multiple of this."""
SMALL_BYTES = 1 << 20
"""Allocations up to this size share small segments."""
SMALL_SEGMENT_BYTES = 2 << 20
LARGE_SEGMENT_BYTES = 20 << 20
HUGE_BYTES = 10 << 20
"""From this size on, an allocation gets a segment of its own size."""
ROUNDING_BYTES = 2 << 20
"""Such a segment is a multiple of this."""

# A reservation of addresses costs no memory until a page is touched.
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


def segment_bytes(size: int) -> int:
    """The size of the segment that is made for an allocation of `size` bytes, as in PyTorch's caching allocator."""
    if size <= SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    if size < HUGE_BYTES:
        return LARGE_SEGMENT_BYTES
    return -(-size // ROUNDING_BYTES) * ROUNDING_BYTES


class Pool:
    """Segments of one stream and one size class. Sizes and addresses are in bytes; the caller holds the allocator's lock.

    `segments` gives each segment's size by its address. `live` gives the bytes asked for by the address of each allocation.
    `recent` gives the addresses that were freed last by their size. `usage` counts its size class, `total` the whole device.
    """

    __slots__ = (
        "_arena_end",
        "_arenas",
        "_by_end",
        "_by_start",
        "_free",
        "_granule",
        "_hosts",
        "_region_starts",
        "_regions",
        "_tail",
        "_touched",
        "is_small",
        "live",
        "recent",
        "segments",
        "stream",
        "total",
        "usage",
    )

    def __init__(self, stream: Any, is_small: bool, usage: Usage, total: Usage) -> None:
        self.stream = stream
        self.is_small = is_small
        self.usage = usage
        self.total = total
        self.segments: dict[int, int] = {}
        self.live: dict[int, int] = {}
        self.recent: dict[int, list[int]] = {}
        self._free: list[tuple[int, int]] = []
        self._by_start: dict[int, int] = {}
        self._by_end: dict[int, int] = {}
        # Ranges of addresses with host memory of their own: a fixed segment, or an arena for an expandable one to grow in.
        self._regions: dict[int, int] = {}
        self._region_starts: list[int] = []
        self._hosts: dict[int, torch.Tensor] = {}
        self._touched: dict[int, int] = {}  # how many bytes of a region were ever used
        self._arenas: set[int] = set()
        self._granule = SMALL_SEGMENT_BYTES if is_small else LARGE_SEGMENT_BYTES
        self._tail = self._arena_end = 0  # where the expandable segment ends, and where it must

    # Taking and putting back --------------------------------------------------------------------------------------------------

    def take(self, size: int, splits_all: bool) -> tuple[int, int] | None:
        """Take the smallest free range that fits, the lowest of equals: (address, size). None where there is none.

        What is left of the range stays free if it is large enough to be of use, always where `splits_all`.
        """
        self.merge_recent()
        free = self._free
        at = bisect_left(free, (size, 0))
        if at == len(free):
            return None
        available, start = free[at]
        rest = available - size
        self._remove(start, available)
        if rest < BLOCK_BYTES or not (splits_all or rest > SMALL_BYTES):
            return start, available
        self._add(start + size, rest)
        return start, size

    def put_back(self, start: int, size: int) -> None:
        """Free a range; it is merged later."""
        starts = self.recent.get(size)
        if starts is None:
            self.recent[size] = [start]
        else:
            starts.append(start)

    def merge_recent(self) -> None:
        """Merge what was freed last with its free neighbours."""
        if not self.recent:
            return
        recent, self.recent = self.recent, {}
        for size, starts in recent.items():
            for start in starts:
                self._merge(start, size)

    def _merge(self, start: int, size: int) -> None:
        end = start + size
        after = self._by_start.get(end, 0)
        if after:
            self._remove(end, after)
        before = self._by_end.get(start, 0)
        if before:
            self._remove(start - before, before)
        self._add(start - before, before + size + after)

    def _add(self, start: int, size: int) -> None:
        """Keep a free range."""
        self._by_start[start] = self._by_end[start + size] = size
        insort(self._free, (size, start))
        if self.segments.get(start) != size:
            self.usage.count_split(size, 1)
            self.total.count_split(size, 1)

    def _remove(self, start: int, size: int) -> None:
        """Forget a free range."""
        del self._by_start[start], self._by_end[start + size]
        del self._free[bisect_left(self._free, (size, start))]
        if self.segments.get(start) != size:
            self.usage.count_split(-size, -1)
            self.total.count_split(-size, -1)

    # Segments -----------------------------------------------------------------------------------------------------------------

    def add_segment(self, start: int, size: int) -> None:
        """Take a new segment in, free as a whole."""
        self.segments[start] = size
        self._add_region(start, size)
        self._add(start, size)

    def growth(self, size: int) -> int:
        """By how much the expandable segment must grow until `size` bytes fit at its end."""
        return -(-(size - self._by_end.get(self._tail, 0)) // self._granule) * self._granule

    def has_room_to_grow(self, growth: int) -> bool:
        """Whether the expandable segment has addresses left."""
        return self._tail + growth <= self._arena_end

    def start_arena(self, start: int, span: int) -> None:
        """Let an expandable segment begin at `start` and have `span` addresses to grow in."""
        self._tail, self._arena_end = start, start + span
        self._arenas.add(start)
        self._add_region(start, span)

    def grow(self, growth: int) -> None:
        """Extend the expandable segment."""
        end = self._tail
        before = self._by_end.get(end, 0)
        if before:
            self._remove(end - before, before)
        segment = max((start for start in self.segments if start + self.segments[start] == end), default=end)
        self.segments[segment] = self.segments.get(segment, 0) + growth
        self._tail += growth
        self._add(end - before, before + growth)

    def release(self, hosts: list[torch.Tensor]) -> int:
        """Give up the segments that are free as a whole, and such parts of expandable ones; how many bytes that is.

        Their host bytes, where they had any, are appended to `hosts`.
        """
        self.merge_recent()
        released = 0
        for size, start in tuple(self._free):
            region = self._region_of(start)
            if region in self._arenas:
                # Only whole granules; the base is a multiple of any.
                first = region - (region - start) // self._granule * self._granule
                last = region + (start + size - region) // self._granule * self._granule
            else:
                first, last = start, start + self.segments.get(start, 0)
            if last > first and last <= start + size:
                if region in self._hosts:
                    hosts.append(self.bytes_at(first, last - first))
                self._cut(start, size, first, last)
                released += last - first
        return released

    def _cut(self, start: int, size: int, first: int, last: int) -> None:
        """Take the addresses from `first` to `last` out of a free range and of its segment."""
        self._remove(start, size)
        segment = max(one for one in self.segments if one <= start)
        segment_end = segment + self.segments.pop(segment)
        for left, right in ((segment, first), (last, segment_end)):
            if right > left:
                self.segments[left] = right - left
        for left, right in ((start, first), (last, start + size)):
            if right > left:
                self._add(left, right - left)
        if self._tail == last:
            self._tail = first
        if segment not in self._arenas and segment in self._regions:
            del self._regions[segment]
            self._region_starts.remove(segment)
            self._hosts.pop(segment, None)
            self._touched.pop(segment, None)

    @property
    def largest_free(self) -> int:
        """The size of the largest free range."""
        self.merge_recent()
        return self._free[-1][0] if self._free else 0

    def snapshot(self, held: Iterable[int]) -> list[dict[str, Any]]:
        """Each segment with its blocks under PyTorch's names; `held` are the addresses of freed blocks
        that streams may still use."""
        self.merge_recent()
        starts = sorted({*self.live, *self._by_start, *held})
        found = []
        for start, size in sorted(self.segments.items()):
            inside = starts[bisect_left(starts, start) : bisect_left(starts, start + size)]
            blocks: list[dict[str, Any]] = [
                {
                    "address": address,
                    "size": end - address,
                    "requested_size": self.live.get(address, 0),
                    "state": self._state_of(address),
                }
                for address, end in pairwise([*inside, start + size])
            ]
            allocated = sum(block["size"] for block in blocks if block["state"] == "active_allocated")
            found.append(
                {
                    "address": start,
                    "total_size": size,
                    "stream": self.stream.id,
                    "segment_type": "small" if self.is_small else "large",
                    "is_expandable": self._region_of(start) in self._arenas,
                    "allocated_size": allocated,
                    "active_size": allocated + sum(block["size"] for block in blocks if block["state"] == "active_awaiting_free"),
                    "requested_size": sum(block["requested_size"] for block in blocks),
                    "blocks": blocks,
                }
            )
        return found

    def _state_of(self, address: int) -> str:
        if address in self.live:
            return "active_allocated"
        return "inactive" if address in self._by_start else "active_awaiting_free"

    # Host memory --------------------------------------------------------------------------------------------------------------

    def bytes_at(self, start: int, size: int) -> torch.Tensor:
        """The host bytes behind a range, uint8 on the CPU, poisoned where nobody has used them; the rest takes no memory."""
        region = self._region_of(start)
        host = self._hosts.get(region)
        if host is None:
            host = self._hosts[region] = _host_memory(self._regions[region])
        end, touched = start - region + size, self._touched.get(region, 0)
        if end > touched:
            poison.fill(host[touched:end])
            self._touched[region] = end
        return host[start - region : end]

    def _add_region(self, start: int, size: int) -> None:
        # Addresses only grow, so these are in order.
        self._regions[start] = size
        self._region_starts.append(start)

    def _region_of(self, address: int) -> int:
        return self._region_starts[bisect_right(self._region_starts, address) - 1]


def _host_memory(size: int) -> torch.Tensor:
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
    return torch.frombuffer(memory, dtype=torch.uint8)
