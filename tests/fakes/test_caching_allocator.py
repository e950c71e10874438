"""The caching allocator on its own: sizes, best fit, streams, the cache, fragmentation, running out."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from allocators import MIB, check, make
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.allocator import Allocator, Block


class _Stream:
    def __init__(self, number: int) -> None:
        self.id = number


A, B = _Stream(0), _Stream(1)


def test_sizes_and_segments_are_those_of_pytorch() -> None:
    for size, taken, reserved in (
        (1, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB + 1, 12 * MIB, 12 * MIB),  # what is left is too little to be of use
        (11 * MIB - 1, 12 * MIB, 12 * MIB),
    ):
        allocator = make()
        block = Block(allocator, size, A)
        assert (block.size, allocator.reserved, block.requested) == (taken, reserved, size)
        check(allocator, [block])


def test_an_empty_block_takes_nothing() -> None:
    allocator = make()
    block = Block(allocator, 0, A)
    assert (block.size, block.address, allocator.reserved, block.bytes().numel()) == (0, 0, 0, 0)


def test_a_freed_block_serves_its_own_stream_at_once_and_no_other() -> None:
    allocator = make()
    first = Block(allocator, 4096, A)
    address = first.address
    del first
    other = Block(allocator, 4096, B)
    again = Block(allocator, 4000, A)
    assert again.address == address != other.address
    assert allocator.reserved == 4 * MIB, "each stream has segments of its own"
    check(allocator, [other, again])


def test_best_fit_and_merging() -> None:
    allocator = make()
    blocks = [Block(allocator, size * 1024, A) for size in (8, 1, 4, 1, 16, 1)]
    addresses = [block.address for block in blocks]
    for position in (4, 2, 0):
        del blocks[position]
    best = Block(allocator, 3 * 1024, A)
    assert best.address == addresses[2], "the smallest that fits"
    check(allocator, [*blocks, best])
    del best, blocks[0]  # the 1 KiB between 8 and 4
    merged = Block(allocator, 13 * 1024, A)
    assert merged.address == addresses[0], "8 + 1 + 4 KiB became one"
    check(allocator, [*blocks, merged])


def test_a_large_range_is_split_only_where_the_rest_is_of_use() -> None:
    allocator = make()
    first = Block(allocator, 20 * MIB, A)
    del first
    block = Block(allocator, 19 * MIB + 512, A)
    assert block.size == 20 * MIB
    assert allocator.statistics()["requested_bytes.large_pool.current"] == 19 * MIB + 512
    del block
    block = Block(allocator, 18 * MIB, A)
    assert block.size == 18 * MIB
    check(allocator, [block])


def test_only_whole_unused_segments_are_given_back() -> None:
    allocator = make()
    keep = Block(allocator, 512, A)
    more = [Block(allocator, MIB, A) for _ in range(5)]
    keep.bytes().fill_(7)
    more[-1].bytes().fill_(1)
    segments = allocator.statistics()["segment.small_pool.current"]
    del more
    allocator.empty_cache()
    assert allocator.reserved == 2 * MIB
    assert segments == 3
    assert keep.bytes().eq(7).all()
    scheduler: Any = allocator.scheduler
    assert scheduler.released_bytes == 2 * MIB, "of the segments given back, one had host bytes"
    check(allocator, [keep])
    del keep
    allocator.empty_cache()
    assert allocator.reserved == 0
    check(allocator, [])


def fragment(allocator: Allocator) -> list[Block]:
    """Fill the device with blocks of 8 MiB and free every other one."""
    blocks = []
    try:
        while True:
            blocks.append(Block(allocator, 8 * MIB, A))
    except torch.OutOfMemoryError:
        return blocks[::2]


def test_memory_fragments_and_does_less_so_in_expandable_segments() -> None:
    fixed, expandable = make(100 * MIB), make(100 * MIB, "expandable_segments:True")
    held = fragment(fixed)
    assert len(held) == 5, "two blocks a segment of 20 MiB"
    with pytest.raises(torch.OutOfMemoryError):
        Block(fixed, 18 * MIB, A)
    check(fixed, held)
    kept = fragment(expandable)
    assert len(kept) == 6, "twelve blocks in one segment of 100 MiB"
    assert expandable.statistics()["segment.all.current"] == 1
    check(expandable, kept)
    del kept[::2]
    block = Block(expandable, 18 * MIB, A)
    assert expandable.reserved <= 100 * MIB
    check(expandable, [*kept, block])


def test_an_expandable_segment_grows_and_gives_back_its_unused_parts() -> None:
    allocator = make(200 * MIB, "expandable_segments:True")
    blocks = [Block(allocator, 15 * MIB, A) for _ in range(8)]
    assert [later.address - block.address for block, later in pairwise(blocks)] == [15 * MIB] * 7
    assert allocator.reserved == 120 * MIB
    blocks[0].bytes().fill_(1)
    blocks[7].bytes().fill_(2)
    del blocks[1:7]  # 15 to 105 MiB, of which 20 to 100 are whole granules
    check(allocator, blocks)
    allocator.empty_cache()
    assert allocator.reserved == 40 * MIB
    check(allocator, blocks)
    assert blocks[0].bytes().eq(1).all()
    assert blocks[1].bytes().eq(2).all()
    large = Block(allocator, 150 * MIB, A)
    check(allocator, [*blocks, large])
    del blocks, large
    allocator.empty_cache()
    assert allocator.reserved == 0


def test_a_full_device_is_flushed_before_it_refuses() -> None:
    allocator = make(64 * MIB)
    block = Block(allocator, 60 * MIB, A)
    del block
    fits = Block(allocator, 50 * MIB, B)  # cached memory of another stream is in the way
    figures = allocator.statistics()
    assert (figures["num_alloc_retries"], figures["num_ooms"]) == (1, 0)
    with pytest.raises(torch.OutOfMemoryError):
        Block(allocator, 20 * MIB, A)
    figures = allocator.statistics()
    assert (figures["num_alloc_retries"], figures["num_ooms"]) == (2, 1)
    check(allocator, [fits])
    with pytest.raises(torch.OutOfMemoryError):
        allocator.require(20 * MIB, A)
    allocator.require(14 * MIB, A)
    check(allocator, [fits])


def test_resizing_keeps_the_block_where_it_cannot_grow() -> None:
    allocator = make(64 * MIB)
    block = Block(allocator, 4096, A)
    before = block.address, block.size
    with pytest.raises(torch.OutOfMemoryError):
        block.resize(100 * MIB)
    assert (block.address, block.size) == before
    block.resize(5 * MIB)
    assert block.size == 5 * MIB
    block.resize(0)
    assert allocator.allocated == 0
    block.resize(100)
    check(allocator, [block])
    del block
    check(allocator, [])


def test_a_block_that_other_streams_use_waits_for_them() -> None:
    allocator = make()
    scheduler: Any = allocator.scheduler
    block = Block(allocator, 4096, A)
    address = block.address
    block.record_stream(A)
    assert block.recorded_streams == ()
    block.record_stream(B)
    block.record_stream(B)
    assert block.recorded_streams == (B,)
    del block
    assert scheduler.freed_blocks == [(address, 4096)]
    figures = allocator.statistics()
    assert (figures["allocated_bytes.all.current"], figures["active_bytes.all.current"]) == (0, 4096)
    assert (figures["allocation.all.current"], figures["active.all.current"]) == (0, 1)
    held = Block(allocator, 4096, A)
    assert held.address != address
    check(allocator, [held])
    assert allocator.statistics()["active_bytes.all.peak"] == 8192
    assert allocator.statistics()["allocated_bytes.all.peak"] == 4096
    scheduler.complete()
    assert Block(allocator, 4096, A).address == address
    check(allocator, [held])


def test_flushing_waits_for_the_streams_that_use_what_was_freed() -> None:
    allocator = make(64 * MIB)
    block = Block(allocator, 60 * MIB, A)
    block.record_stream(B)
    del block
    assert Block(allocator, 60 * MIB, B).size == 60 * MIB


def test_live_blocks_of_a_segment_share_its_bytes_and_no_byte_of_each_other() -> None:
    allocator = make()
    first, second = Block(allocator, 1000, A), Block(allocator, 1000, A)
    assert second.bytes().data_ptr() - first.bytes().data_ptr() == second.address - first.address == 1024
    first.bytes().fill_(1)
    second.bytes().fill_(2)
    assert first.bytes().eq(1).all()
    del first
    again = Block(allocator, 1000, A)
    assert again.bytes().eq(1).all(), "the bytes of a freed block are what its next user finds"


def test_memory_that_nobody_touches_costs_the_host_nothing() -> None:
    for text in ("", "expandable_segments:True"):
        allocator = make(1 << 42, text)
        block = Block(allocator, 1 << 41, A)
        block.bytes()[-1] = 5
        assert block.bytes()[-1] == 5


def test_statistics_can_be_reset() -> None:
    allocator = make()
    block, gone = Block(allocator, 1000, A), Block(allocator, 3 * MIB, A)
    del gone
    allocator.reset_accumulated()
    figures = allocator.statistics()
    assert figures["allocated_bytes.all.allocated"] == figures["allocated_bytes.all.freed"] == 0
    assert figures["allocated_bytes.all.peak"] == 3 * MIB + 1024
    allocator.reset_peaks()
    for name, value in allocator.statistics().items():
        if name.endswith(".peak"):
            assert value == allocator.statistics()[name.replace("peak", "current")], name
    del block
    assert allocator.statistics()["allocation.small_pool.freed"] == 1


# Whole programs

_step = st.one_of(
    st.tuples(
        st.just("allocate"), st.integers(0, 2), st.sampled_from((1, 512, 700, 4096, MIB, MIB + 1, 3 * MIB, 9 * MIB, 12 * MIB))
    ),
    st.tuples(st.just("free"), st.integers(0, 20), st.none()),
    st.tuples(st.just("record"), st.integers(0, 20), st.integers(0, 2)),
    st.tuples(st.sampled_from(("complete", "empty cache", "switch")), st.none(), st.none()),
)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(_step, max_size=40), expandable=st.booleans())
def test_any_program_keeps_the_books(steps: list[tuple[str, Any, Any]], expandable: bool) -> None:
    allocator = make(64 * MIB, f"expandable_segments:{expandable}")
    scheduler: Any = allocator.scheduler
    streams = [_Stream(number) for number in range(3)]
    live: list[Block] = []
    owner: dict[int, tuple[Any, int]] = {}
    waiting: dict[int, int] = {}
    for action, which, argument in steps:
        if action == "allocate":
            ooms = allocator.ooms
            try:
                block = Block(allocator, argument, streams[which])
            except torch.OutOfMemoryError:
                assert allocator.ooms == ooms + 1
                waiting.clear()  # flushing waited for the device
                check(allocator, live)
                continue
            span = range(block.address, block.address + block.size)
            for address, size in waiting.items():
                assert address + size <= span.start or span.stop <= address or not scheduler.pending, "reused too early"
            live.append(block)
            owner[block.address] = (streams[which], block.size)
        elif action == "free" and live:
            block = live.pop(which % len(live))
            if block.recorded_streams:
                waiting[block.address] = block.size
            del block
        elif action == "record" and live:
            live[which % len(live)].record_stream(streams[argument])
        elif action == "complete":
            scheduler.complete()
            waiting.clear()
        elif action == "empty cache":
            before = allocator.allocated
            allocator.empty_cache()
            assert allocator.allocated == before
            waiting.clear()
        elif action == "switch":
            allocator.settings = {**allocator.settings, "expandable_segments": not allocator.settings["expandable_segments"]}
        check(allocator, live)
        for segment in allocator.snapshot():
            for block in live:
                if segment["address"] <= block.address < segment["address"] + segment["total_size"]:
                    assert segment["stream"] == block.stream.id, "a segment belongs to one stream"
    live.clear()
    block = None  # type: ignore[assignment]
    allocator.empty_cache()
    assert allocator.reserved == allocator.allocated == 0
    assert allocator.statistics()["active.all.current"] == 0
