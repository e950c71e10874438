"""An allocator on its own, under a scheduler whose tickets the test completes.

For: tests of the allocator. Not for: tensors.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from fakes.allocator import Allocator, Block
from fakes.allocator_settings import parse_allocator_settings
from fakes.launch import EagerScheduler
from fakes.stream_state import StreamState

MIB = 1 << 20


class TicketScheduler(EagerScheduler):
    """Completes a ticket when `complete` is called, or the device is waited for. Notes what was freed and released."""

    def __init__(self) -> None:
        super().__init__()
        self.pending: set[int] = set()
        self.marks = 0
        self.freed_blocks: list[tuple[int, int]] = []
        self.released_bytes = 0

    def freed(self, block: Block) -> None:
        self.freed_blocks.append((block.address, block.size))

    def released(self, memory: Any) -> None:
        self.released_bytes += memory.numel()

    def mark(self, stream: StreamState) -> Any:
        self.marks += 1
        self.pending.add(self.marks)
        return self.marks

    def is_complete(self, ticket: Any) -> bool:
        return ticket not in self.pending

    def synchronize_device(self, device_index: int) -> None:
        self.pending.clear()

    def complete(self) -> None:
        self.pending.clear()


def make(capacity: int = 256 * MIB, settings: str = "", index: int = 0) -> Allocator:
    """An allocator with a `TicketScheduler`."""
    return Allocator(index, capacity, "MUSA", TicketScheduler(), parse_allocator_settings(settings))


def check(allocator: Allocator, live: list[Block]) -> None:
    """Fail unless the figures, the segments and the live blocks fit together."""
    segments = allocator.snapshot()
    figures = allocator.statistics()
    assert allocator.allocated == sum(block.size for block in live) == figures["allocated_bytes.all.current"]
    assert allocator.reserved == sum(segment["total_size"] for segment in segments) <= allocator.limit
    assert figures["requested_bytes.all.current"] == sum(block.requested for block in live)
    assert figures["allocation.all.current"] == sum(block.size > 0 for block in live)
    assert figures["segment.all.current"] == len(segments)
    assert figures["active_bytes.all.current"] == sum(segment["active_size"] for segment in segments)
    found: dict[int, tuple[int, int, str]] = {}
    split = splits = 0
    for segment in segments:
        at = segment["address"]
        for part in segment["blocks"]:
            assert part["address"] == at, "blocks cover their segment without gaps"
            assert part["size"] > 0
            at += part["size"]
            found[part["address"]] = (part["size"], part["requested_size"], part["state"])
            if part["state"] == "inactive" and len(segment["blocks"]) > 1:
                split, splits = split + part["size"], splits + 1
        assert at == segment["address"] + segment["total_size"]
        states = [part["state"] for part in segment["blocks"]]
        assert all(pair != ("inactive", "inactive") for pair in pairwise(states)), "free neighbours merge"
    for block in live:
        if block.size:
            assert found[block.address] == (block.size, block.requested, "active_allocated")
    assert sum(state == "active_allocated" for _, _, state in found.values()) == sum(block.size > 0 for block in live)
    assert (figures["inactive_split_bytes.all.current"], figures["inactive_split.all.current"]) == (split, splits)
    for name in {name.split(".")[0] for name in figures if "." in name}:
        for pool in ("all", "small_pool", "large_pool"):
            row = {kind: figures[f"{name}.{pool}.{kind}"] for kind in ("current", "peak", "allocated", "freed")}
            assert 0 <= row["current"] <= row["peak"]
            assert row["allocated"] - row["freed"] == row["current"]
        for kind in ("current", "allocated", "freed"):
            parts = figures[f"{name}.small_pool.{kind}"] + figures[f"{name}.large_pool.{kind}"]
            assert figures[f"{name}.all.{kind}"] == parts, name
