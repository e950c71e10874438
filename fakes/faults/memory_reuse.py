"""Faults in the caching allocator: what it hands out again, to whom and when, and what whole programs show (STR-12, MEM-10).

For: the catalogue. Not for: single counters (`memory.py`), nor pinned memory (`pinned_memory.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fakes.allocation_statistics import Usage
from fakes.allocator import Allocator
from fakes.block import Block
from fakes.faults.fault import Fault
from fakes.faults.replacing import Apply, nothing, replace, replace_method
from fakes.memory_pools import Pool
from fakes.patching import Patches

# Streams


def _any_streams_pool(allocator: Any, right: Callable[..., Any], block: Any) -> Any:
    from fakes.memory_pools import SMALL_BYTES

    pools = allocator._small_pools if block.requested <= SMALL_BYTES else allocator._large_pools
    return pools.setdefault(block.stream, next(iter(pools.values()))) if pools else right(block)


def _remembers_the_last(block: Any, right: Callable[..., None], stream: Any) -> None:
    right(stream)
    block.recorded_streams = block.recorded_streams[-1:]


def _remembers_the_first(block: Any, right: Callable[..., None], stream: Any) -> None:
    right(stream)
    block.recorded_streams = block.recorded_streams[:1]


def _does_not_hold(_allocator: Any, _right: Callable[..., None], pool: Any, address: int, size: int, _tickets: Any) -> None:
    pool.put_back(address, size)


def _holds_for_its_own_stream(
    allocator: Any, right: Callable[..., None], pool: Any, address: int, size: int, _tickets: Any
) -> None:
    right(pool, address, size, [allocator.scheduler.mark(pool.stream)])


def _apply_marked_at_the_call(patches: Patches) -> None:
    marks: dict[int, list[Any]] = {}

    def record_stream(block: Any, right: Callable[..., None], stream: Any) -> None:
        right(stream)
        marks.setdefault(block.address, []).append(block.allocator.scheduler.mark(stream))

    def hold(_allocator: Any, right: Callable[..., None], pool: Any, address: int, size: int, _tickets: Any) -> None:
        right(pool, address, size, marks.pop(address, []))

    replace_method(Block, "record_stream", record_stream)(patches)
    replace_method(Allocator, "_hold", hold)(patches)


# Books


def _frees_what_was_asked(_usage: Any, right: Callable[..., None], _size: int, requested: int) -> None:
    right(requested, requested)


def _apply_views_counted(patches: Patches) -> None:
    from fakes import dispatch, tensor

    original = tensor.wrap_view

    def wrap_view(data: Any, base: Any) -> Any:
        allocator = base._block.allocator
        allocator.usage.count_allocation(512, 512)
        return original(data, base)

    patches.set(dispatch, "wrap_view", wrap_view)


def _apply_writes_counted(patches: Patches) -> None:
    from fakes import dispatch

    def unwrap(original: Any, plan: Any, args: Any, kwargs: Any) -> Any:
        # Not where the tensor is being made.
        if plan.name == "aten::fill_" and args[0]._block.allocator.usage.allocations > 1:
            args[0]._block.allocator.usage.allocated -= 512
        return original(plan, args, kwargs)

    replace(dispatch, "unwrap", unwrap)(patches)


def _counts_oom_elsewhere(allocator: Any, right: Callable[..., None], size: int) -> None:
    from fakes.machine import current_machine

    for device in current_machine().initialize():
        if device.allocator is not allocator:
            device.allocator.usage.allocated += 512
            device.allocator.usage.reserved = max(device.allocator.usage.reserved, device.allocator.usage.allocated)
    right(size)


def _side_streams_for_free(allocator: Any, right: Callable[..., bool], pool: Any, block: Any) -> bool:
    placed = right(pool, block)
    if placed and block.stream.id:
        allocator.usage.allocated -= block.size
    return placed


def _side_streams_never_freed(allocator: Any, right: Callable[..., None], block: Any) -> None:
    right(block)
    if block.stream.id:
        allocator.usage.allocated += 512


# The cache


def _gives_nothing_back(_pool: Any, _right: Callable[..., int], _hosts: Any) -> int:
    return 0


def _loses_what_is_left(pool: Any, right: Callable[..., Any], size: int, splits_all: bool) -> Any:
    place = right(size, splits_all)
    if place is not None:
        left = place[0] + place[1]
        rest = pool._by_start.get(left, 0)
        if rest and rest > size:
            pool._remove(left, rest)
    return place


def _never_merges(pool: Any, _right: Callable[..., None], start: int, size: int) -> None:
    pool._add(start, size)


def _merges_a_live_neighbour(pool: Any, right: Callable[..., None], start: int, size: int) -> None:
    end = start + size
    if end in pool.live and end not in pool._by_start and size + 512 not in (item[0] for item in pool._free):
        size += 512
    try:
        right(start, size)
    except (KeyError, IndexError):
        return


def _poisons_what_is_in_use(pool: Any, right: Callable[..., int], hosts: Any) -> int:
    from fakes.scheduling import poison

    for address in list(pool.live)[1:]:
        poison.fill(pool.bytes_at(address, 512))
    return right(hosts)


def _apply_others_dropped(patches: Patches) -> None:
    from fakes import allocator_settings, namespace_memory

    original = allocator_settings.settings_in_force

    def settings_in_force(kind: str, text: str) -> dict[str, Any]:
        if "expandable_segments:True" not in text:
            return original(kind, text)
        return {**original(kind, "expandable_segments:True")}

    patches.set(namespace_memory, "settings_in_force", settings_in_force)


def _fault(name: str, clauses: tuple[str, ...], summary: str, apply: Apply, seen_in: str = "derived") -> Fault:
    return Fault(f"mem-{name}", clauses, summary, seen_in, apply)


_REUSE = ("STR-12",)
_BOOKS = ("MEM-10",)

FAULTS: tuple[Fault, ...] = (
    _fault(
        "reused-across-streams",
        _REUSE,
        "A freed block is given to any stream at once.",
        replace_method(Allocator, "_stream_pool", _any_streams_pool),
    ),
    _fault("record-stream-forgotten", _REUSE, "`record_stream` has no effect.", replace_method(Block, "record_stream", nothing)),
    _fault(
        "record-stream-last-only",
        _REUSE,
        "Of the streams that were recorded, only the last counts.",
        replace_method(Block, "record_stream", _remembers_the_last),
    ),
    _fault(
        "record-stream-first-only",
        _REUSE,
        "Of the streams that were recorded, only the first counts.",
        replace_method(Block, "record_stream", _remembers_the_first),
    ),
    _fault(
        "record-stream-not-waited-for",
        _REUSE,
        "Memory of recorded streams is used again at once.",
        replace_method(Allocator, "_hold", _does_not_hold),
    ),
    _fault(
        "record-stream-waits-for-owner",
        _REUSE,
        "Memory of recorded streams waits for the stream that it was allocated on.",
        replace_method(Allocator, "_hold", _holds_for_its_own_stream),
    ),
    _fault(
        "record-stream-marks-at-call",
        _REUSE,
        "Memory of a recorded stream waits for what was issued there until `record_stream`, not until the free.",
        _apply_marked_at_the_call,
    ),
    _fault(
        "free-counts-what-was-asked",
        ("MEM-2",),
        "A free counts the bytes asked for, its allocation the rounded ones.",
        replace_method(Usage, "count_free", _frees_what_was_asked),
    ),
    _fault("views-counted", ("MEM-2",), "A view counts as an allocation.", _apply_views_counted),
    _fault("writes-in-place-counted", _BOOKS, "A write in place lowers `memory_allocated`.", _apply_writes_counted),
    _fault(
        "oom-counted-on-another-device",
        ("MEM-4",),
        "A refused request raises another device's `memory_allocated`.",
        replace_method(Allocator, "_refuse", _counts_oom_elsewhere),
    ),
    _fault(
        "side-streams-not-counted",
        _BOOKS,
        "Memory that is allocated on another stream than the default one is not counted.",
        replace_method(Allocator, "_place_in", _side_streams_for_free),
    ),
    _fault(
        "side-streams-leak",
        _BOOKS,
        "Memory that is allocated on another stream than the default one is not wholly given back.",
        replace_method(Allocator, "free", _side_streams_never_freed),
    ),
    _fault(
        "oom-without-flushing",
        _BOOKS,
        "A request is refused though the cache has room for it.",
        replace_method(Allocator, "_make_room", nothing),
    ),
    _fault(
        "cache-never-given-back",
        _BOOKS,
        "What is cached never returns to the device.",
        replace_method(Pool, "release", _gives_nothing_back),
    ),
    _fault(
        "split-remainder-lost",
        _BOOKS,
        "What is left when a block is split is never used.",
        replace_method(Pool, "take", _loses_what_is_left),
    ),
    _fault(
        "free-neighbours-not-merged", _BOOKS, "Free neighbours are never merged.", replace_method(Pool, "_merge", _never_merges)
    ),
    _fault(
        "live-neighbour-merged",
        _BOOKS,
        "A freed block is merged with a neighbour in use.",
        replace_method(Pool, "_merge", _merges_a_live_neighbour),
    ),
    _fault(
        "flush-poisons-live-memory",
        _BOOKS,
        "`empty_cache` overwrites blocks in use.",
        replace_method(Pool, "release", _poisons_what_is_in_use),
    ),
    _fault(
        "segments-drop-other-settings",
        ("MEM-9",),
        "The device takes the expandable segments and drops every other setting.",
        _apply_others_dropped,
        "B113",
    ),
)
