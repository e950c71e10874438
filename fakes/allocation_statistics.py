"""Counters of an allocator, under the names that PyTorch gives them.

For: `memory_stats`. Not for: what is allocated where (`memory_pools.py`, `allocator.py`).

For each figure PyTorch tells its current value, its peak, and what was added and taken away in all. A block that was freed, but that
another stream may still use, is no longer allocated and still active.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

_NAMES = {
    "allocated": "allocated_bytes",
    "allocations": "allocation",
    "active": "active_bytes",
    "actives": "active",
    "requested": "requested_bytes",
    "reserved": "reserved_bytes",
    "segments": "segment",
    "split": "inactive_split_bytes",
    "splits": "inactive_split",
}
"""PyTorch's name of each figure."""


@dataclass(slots=True, eq=False)
class Usage:
    """What a size class, or the whole device, has in use. Figures named in bytes are in bytes, the plural ones count.

    Each has a `<figure>_peak` and a `<figure>_total`, what was added in all. What is active is what is allocated and what is `held`
    (in `holds` blocks) for streams that may still use it. The peaks of `split` are those seen when free ranges were merged.
    """

    allocated: int = 0
    allocated_peak: int = 0
    allocated_total: int = 0
    allocations: int = 0
    allocations_peak: int = 0
    allocations_total: int = 0
    requested: int = 0
    requested_peak: int = 0
    requested_total: int = 0
    held: int = 0
    holds: int = 0
    active_while_held: int = 0
    actives_while_held: int = 0
    reserved: int = 0
    reserved_peak: int = 0
    reserved_total: int = 0
    segments: int = 0
    segments_peak: int = 0
    segments_total: int = 0
    split: int = 0
    split_peak: int = 0
    split_total: int = 0
    splits: int = 0
    splits_peak: int = 0
    splits_total: int = 0
    since: dict[str, tuple[int, int]] = field(default_factory=dict)
    """(added, taken away) of each figure when it was last reset; empty before."""

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

    @property
    def active_peak(self) -> int:
        """The most bytes that were active; without holds that is what was allocated."""
        return max(self.active_while_held, self.allocated_peak)

    @property
    def actives_peak(self) -> int:
        """The most blocks that were active."""
        return max(self.actives_while_held, self.allocations_peak)

    def _note_active(self) -> None:
        self.active_while_held = max(self.active_while_held, self.active)
        self.actives_while_held = max(self.actives_while_held, self.actives)

    def count_allocation(self, size: int, requested: int) -> None:
        """Count a block."""
        # Run at every allocation, where `max` would cost as much as all the rest.
        self.allocated += size
        self.allocated_total += size
        self.requested += requested
        self.requested_total += requested
        self.allocations += 1
        self.allocations_total += 1
        if self.allocated > self.allocated_peak:  # noqa: PLR1730
            self.allocated_peak = self.allocated
        if self.requested > self.requested_peak:  # noqa: PLR1730
            self.requested_peak = self.requested
        if self.allocations > self.allocations_peak:  # noqa: PLR1730
            self.allocations_peak = self.allocations
        if self.held:
            self._note_active()

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
            self.split_peak = max(self.split_peak, self.split)
            self.splits_peak = max(self.splits_peak, self.splits)

    def reset_peaks(self) -> None:
        """Set the peaks to the current values."""
        self.active_while_held, self.actives_while_held = self.active, self.actives
        for figure in _NAMES:
            if not figure.startswith("active"):
                setattr(self, f"{figure}_peak", getattr(self, figure))

    def reset_accumulated(self) -> None:
        """Count what is added and taken away from now on."""
        self.since = self._accumulated()

    def _accumulated(self) -> dict[str, tuple[int, int]]:
        totals = {figure: getattr(self, f"{figure}_total") for figure in _NAMES}
        return {figure: (total, total - getattr(self, figure)) for figure, total in totals.items()}

    def statistics(self, pool: str) -> dict[str, int]:
        """Every figure under PyTorch's name, `<figure>.<pool>.<current, peak, allocated or freed>`."""
        found = {}
        for figure, (added, taken) in self._accumulated().items():
            name = f"{_NAMES[figure]}.{pool}"
            before = self.since.get(figure, (0, 0))
            found[f"{name}.current"] = getattr(self, figure)
            found[f"{name}.peak"] = getattr(self, f"{figure}_peak")
            found[f"{name}.allocated"] = added - before[0]
            found[f"{name}.freed"] = taken - before[1]
        return found


def statistics(total: Usage, small: Usage, large: Usage, others: dict[str, int]) -> OrderedDict[str, int]:
    """The figures of a device and of its two size classes, and others, sorted by name."""
    found = total.statistics("all") | small.statistics("small_pool") | large.statistics("large_pool") | others
    return OrderedDict(sorted(found.items()))
