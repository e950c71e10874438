"""Counters of an allocator, under the names that PyTorch gives them.

For: `memory_stats`. Not for: what is allocated where (`memory_pools.py`, `allocator.py`).

For each figure PyTorch tells its current value, its peak, and what was added and taken away in all. A block that was freed, but that
another stream may still use, is no longer allocated and still active.
"""

from __future__ import annotations

_FIGURES = {
    "allocated_bytes": "allocated",
    "allocation": "allocations",
    "active_bytes": "active",
    "active": "actives",
    "requested_bytes": "requested",
    "reserved_bytes": "reserved",
    "segment": "segments",
    "inactive_split_bytes": "split",
    "inactive_split": "splits",
}
"""PyTorch's name of each figure, and the attribute that holds it."""


class Usage:
    """What a size class, or the whole device, has in use. Figures named in bytes are in bytes, the plural ones count.

    Each has a `<figure>_peak` and a `<figure>_total`, what was added in all. What is active is what is allocated and what is `held`
    (in `holds` blocks) for streams that may still use it. The peaks of `split` are those seen when free ranges were merged.
    """

    __slots__ = (
        "_since",
        "active_peak",
        "actives_peak",
        "allocated",
        "allocated_peak",
        "allocated_total",
        "allocations",
        "allocations_peak",
        "allocations_total",
        "held",
        "holds",
        "requested",
        "requested_peak",
        "requested_total",
        "reserved",
        "reserved_peak",
        "reserved_total",
        "segments",
        "segments_peak",
        "segments_total",
        "split",
        "split_peak",
        "split_total",
        "splits",
        "splits_peak",
        "splits_total",
    )

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)
        self._since = self._accumulated()

    @property
    def active(self) -> int:
        """Bytes that are allocated or held."""
        return self.allocated + self.held

    @property
    def actives(self) -> int:
        """Blocks that are allocated or held."""
        return self.allocations + self.holds

    @property
    def active_total(self) -> int:
        """Bytes that ever became active."""
        return self.allocated_total

    @property
    def actives_total(self) -> int:
        """Blocks that ever became active."""
        return self.allocations_total

    def count_allocation(self, size: int, requested: int) -> None:
        """Count a block."""
        self.allocated += size
        self.allocated_total += size
        self.requested += requested
        self.requested_total += requested
        self.allocations += 1
        self.allocations_total += 1
        if self.allocated > self.allocated_peak:
            self.allocated_peak = self.allocated
        if self.requested > self.requested_peak:
            self.requested_peak = self.requested
        if self.allocations > self.allocations_peak:
            self.allocations_peak = self.allocations
        active = self.allocated + self.held
        if active > self.active_peak:
            self.active_peak = active
        actives = self.allocations + self.holds
        if actives > self.actives_peak:
            self.actives_peak = actives

    def count_free(self, size: int, requested: int) -> None:
        """Count the end of a block."""
        self.allocated -= size
        self.requested -= requested
        self.allocations -= 1

    def count_held(self, size: int, blocks: int) -> None:
        """Count blocks that are freed, but that a stream may still use (or, below zero, no longer)."""
        self.held += size
        self.holds += blocks

    def count_reserved(self, size: int, segments: int) -> None:
        """Count memory got from the device, or given back where below zero."""
        self.reserved += size
        self.segments += segments
        self.reserved_total += max(size, 0)
        self.segments_total += max(segments, 0)
        self.reserved_peak = max(self.reserved_peak, self.reserved)
        self.segments_peak = max(self.segments_peak, self.segments)

    def count_split(self, size: int, ranges: int) -> None:
        """Count free ranges that are part of a segment in use, or their end where below zero."""
        self.split += size
        self.splits += ranges
        if ranges > 0:
            self.split_total += size
            self.splits_total += ranges
            if self.split > self.split_peak:
                self.split_peak = self.split
            if self.splits > self.splits_peak:
                self.splits_peak = self.splits

    def reset_peaks(self) -> None:
        """Set the peaks to the current values."""
        for figure in _FIGURES.values():
            setattr(self, f"{figure}_peak", getattr(self, figure))

    def reset_accumulated(self) -> None:
        """Count what is added and taken away from now on."""
        self._since = self._accumulated()

    def _accumulated(self) -> dict[str, tuple[int, int]]:
        totals = {figure: getattr(self, f"{figure}_total") for figure in _FIGURES.values()}
        return {figure: (total, total - getattr(self, figure)) for figure, total in totals.items()}

    def statistics(self) -> dict[str, dict[str, int]]:
        """Every figure under PyTorch's name."""
        accumulated = self._accumulated()
        return {
            name: {
                "current": getattr(self, figure),
                "peak": getattr(self, f"{figure}_peak"),
                "allocated": accumulated[figure][0] - self._since[figure][0],
                "freed": accumulated[figure][1] - self._since[figure][1],
            }
            for name, figure in _FIGURES.items()
        }
