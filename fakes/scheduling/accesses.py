"""Who touched which bytes.

For: finding the earlier accesses that a new one conflicts with. Not for: saying so (`race_detector.py`), nor host code that touches
pinned memory, which is not seen.

Bytes are host addresses, those that carry device memory or pinned memory. Two accesses conflict where they have a byte in common and one
of them writes: disjoint slices of one tensor do not, strided ones included.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import torch

from fakes.scheduling.happens_before import is_before
from fakes.scheduling.launches import Launch

_MOST_COMPARED = 1 << 28
"""Strided accesses that span more bytes than this conflict wherever their spans meet."""

_MOST_KEPT = 64
"""With more accesses to the same bytes than this, of the reads of one stream the last is enough."""


class Access:
    """Bytes from address `start` up to `stop` that a launch reads or writes. `geometry` is (sizes, strides in bytes, item size) where
    there are gaps between them, else None."""

    __slots__ = ("geometry", "is_write", "launch", "start", "stop")

    def __init__(self, launch: Launch, is_write: bool, start: int, stop: int, geometry: Any = None) -> None:
        self.launch = launch
        self.is_write = is_write
        self.start = start
        self.stop = stop
        self.geometry = geometry


def access_of(launch: Launch, tensor: torch.Tensor, is_write: bool) -> Access | None:
    """The access of a launch to a host tensor; None where that is empty."""
    count, item = tensor.numel(), tensor.itemsize
    if not count:
        return None
    start = tensor.data_ptr()
    if tensor.is_contiguous():
        return Access(launch, is_write, start, start + count * item)
    sizes, strides = tuple(tensor.shape), tensor.stride()
    span = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    gaps = None if span == count else (sizes, tuple(stride * item for stride in strides), item)
    return Access(launch, is_write, start, start + span * item, gaps)


def conflict(first: Access, second: Access) -> bool:
    """Whether two accesses have a byte in common and one of them writes."""
    if not (first.is_write or second.is_write) or first.start >= second.stop or second.start >= first.stop:
        return False
    return (first.geometry is None and second.geometry is None) or _meet(first, second)


def _meet(first: Access, second: Access) -> bool:
    low = min(first.start, second.start)
    span = max(first.stop, second.stop) - low
    if span > _MOST_COMPARED:
        return True
    touched = torch.zeros(span, dtype=torch.uint8, device="cpu")
    _bytes_of(first, touched, low).fill_(1)
    return bool(_bytes_of(second, touched, low).any())


def _bytes_of(access: Access, memory: torch.Tensor, low: int) -> torch.Tensor:
    if access.geometry is None:
        return memory[access.start - low : access.stop - low]
    sizes, strides, item = access.geometry
    return memory.as_strided((*sizes, item), (*strides, 1), access.start - low)


class _Stretch:
    """Bytes from `start` up to `stop` with one history: the accesses that a later one may conflict with."""

    __slots__ = ("accesses", "start", "stop")

    def __init__(self, start: int, stop: int, accesses: list[Access]) -> None:
        self.start = start
        self.stop = stop
        self.accesses = accesses


class AccessHistory:
    """What was touched by whom, for all memory of one machine."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stretches: list[_Stretch] = []

    def add(self, access: Access) -> list[Access]:
        """Note an access; the earlier accesses that conflict with it and are not ordered before it, the latest last."""
        conflicts: dict[int, Access] = {}
        clean = self._cut(access.start, access.stop)
        first = bisect_left(self._starts, access.start)
        last = bisect_left(self._starts, access.stop)
        covers = access.is_write and access.geometry is None
        for stretch in self._stretches[first:last]:
            for earlier in stretch.accesses:
                if (
                    (access.is_write or earlier.is_write)
                    and earlier.launch is not access.launch
                    and not is_before(earlier.launch, access.launch)
                    and conflict(earlier, access)
                ):
                    conflicts[id(earlier)] = earlier
        if covers and not conflicts:
            self._starts[first:last] = [access.start]
            self._stretches[first:last] = [_Stretch(access.start, access.stop, [access])]
        else:
            for stretch in self._stretches[first:last]:
                crowded = len(stretch.accesses) >= _MOST_KEPT
                stretch.accesses = [earlier for earlier in stretch.accesses if not _replaces(access, earlier, crowded)] + [access]
            self._fill_gaps(access, clean)
        return sorted(conflicts.values(), key=lambda earlier: earlier.launch.sequence)

    def forget(self, start: int, stop: int) -> None:
        """These bytes are no longer what they were."""
        self._cut(start, stop)
        first, last = bisect_left(self._starts, start), bisect_left(self._starts, stop)
        del self._starts[first:last], self._stretches[first:last]

    def _cut(self, start: int, stop: int) -> bool:
        """Make stretches end at both addresses; whether there is none between them."""
        for address in (start, stop):
            place = bisect_right(self._starts, address) - 1
            if place >= 0:
                stretch = self._stretches[place]
                if stretch.start < address < stretch.stop:
                    self._starts.insert(place + 1, address)
                    self._stretches.insert(place + 1, _Stretch(address, stretch.stop, list(stretch.accesses)))
                    stretch.stop = address
        return bisect_left(self._starts, start) == bisect_left(self._starts, stop)

    def _fill_gaps(self, access: Access, clean: bool) -> None:
        first, last = bisect_left(self._starts, access.start), bisect_left(self._starts, access.stop)
        if clean:
            gaps: Sequence[tuple[int, int]] = [(access.start, access.stop)]
        else:
            edges = [access.start]
            for stretch in self._stretches[first:last]:
                edges += [stretch.start, stretch.stop]
            edges.append(access.stop)
            gaps = [(edges[i], edges[i + 1]) for i in range(0, len(edges), 2) if edges[i] < edges[i + 1]]
        for start, stop in gaps:
            place = bisect_left(self._starts, start)
            self._starts.insert(place, start)
            self._stretches.insert(place, _Stretch(start, stop, [access]))


def _replaces(access: Access, earlier: Access, crowded: bool) -> bool:
    """Whether whoever conflicts with `earlier` from now on conflicts with `access` too, or is ordered after both.

    An earlier read of the same stream is kept all the same, unless there are too many.
    """
    if not is_before(earlier.launch, access.launch) or (earlier.is_write and not access.is_write):
        return False
    covers = access.geometry is None or (access.geometry == earlier.geometry and access.start == earlier.start)
    return covers and (access.is_write or (crowded and earlier.launch.queue is access.launch.queue))
