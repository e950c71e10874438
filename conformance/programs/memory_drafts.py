"""Drawing memory programs, and the programs that every run tries first.

For: Hypothesis strategies. Not for: what statements mean (`memory_program.py`).

Statements are sampled from lists, which is much cheaper to draw than building each from parts; the simplest come first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import example
from hypothesis import strategies as st

from conformance.programs.memory_program import MAX_DEVICES, VIEWS, WAYS, WAYS_TO_ASK_TOO_MUCH, MemoryProgram
from conformance.programs.memory_statements import Allocate, AskTooMuch, EmptyCache, Free, ResetPeaks, View, WriteInPlace

Test = TypeVar("Test", bound=Callable[..., Any])

_LARGE = (1 << 20) + 8
_SIZES = (1, 513, 0, 512, 511, 4096, 65537, _LARGE)
_HUGE = (10 << 20) + 3
_NUMBERS = range(MAX_DEVICES)


def _allocations(sizes: tuple[int, ...], streams: range) -> list[Allocate]:
    return [
        Allocate(size, device, current, way, stream)
        for stream in streams
        for size in sizes
        for way in WAYS
        for current in _NUMBERS
        for device in _NUMBERS
    ]


_allocate = st.sampled_from(_allocations(_SIZES, range(1)))
_allocate_anywhere = st.sampled_from(
    _allocations((*_SIZES, 3 << 20), range(3)) + [Allocate(_HUGE, device, 0, "empty") for device in (0, 1)]
)
_free = st.sampled_from([Free(which) for which in range(5)])
_view = st.sampled_from([View(which, kind) for kind in VIEWS for which in range(5)])
_write = st.sampled_from([WriteInPlace(which) for which in range(5)])
_empty_cache = st.just(EmptyCache())
_too_much = st.sampled_from(
    [
        AskTooMuch(device, times, extra, way)
        for times in (1, 2, 8)
        for extra in (1, 4096, 1 << 30)
        for device in _NUMBERS
        for way in WAYS_TO_ASK_TOO_MUCH
    ]
)
_reset = st.sampled_from([ResetPeaks(device) for device in _NUMBERS])


def programs(*, out_of_memory: bool = False, peaks: bool = False) -> st.SearchStrategy[MemoryProgram]:
    """Programs that allocate, view, free and empty the cache, and that run out of memory or reset peaks where asked."""
    choices: list[st.SearchStrategy[Any]] = [_allocate, _allocate, _allocate, _free, _free, _view, _empty_cache]
    choices.extend([_too_much] * 3 * out_of_memory)
    choices.extend([_reset] * 3 * peaks)
    return st.lists(st.one_of(*choices), min_size=2, max_size=8).map(lambda statements: MemoryProgram(tuple(statements)))


def whole_programs(*, out_of_memory: bool, peaks: bool) -> st.SearchStrategy[MemoryProgram]:
    """Longer programs of everything: several streams, slices and writes in place too."""
    choices: list[st.SearchStrategy[Any]] = [*[_allocate_anywhere] * 5, *[_free] * 4, _view, _view, _write, _empty_cache]
    choices.extend([_too_much] * out_of_memory)
    choices.extend([_reset] * peaks)
    return st.lists(st.one_of(*choices), min_size=2, max_size=24).map(lambda statements: MemoryProgram(tuple(statements)))


def first_of_all(*, out_of_memory: bool = False, peaks: bool = False, **others: Any) -> Callable[[Test], Test]:
    """Have a check of programs try a few typical ones before it draws any: what every backend does is then tried in every run.

    `others` are the check's other arguments.
    """

    def decorate(test: Test) -> Test:
        for program in reversed((*_TYPICAL, _LIVE_NEIGHBOUR, _SIDE_STREAM) + _REFUSED * out_of_memory + _RESET * peaks):
            test = example(program=program, **others)(test)
        return test

    return decorate


# With one device, that of number 1 is device 0 again.
_TYPICAL = (
    MemoryProgram((Allocate(_LARGE, 0, 0, "empty"), Free(0))),
    MemoryProgram((Allocate(513, 1, 0, "full"), Allocate(_LARGE, 1, 0, "to(device)"), Free(0), EmptyCache(), Free(0))),
    MemoryProgram((Allocate(4096, 0, 1, "empty_strided"), View(0), Free(0), EmptyCache(), View(0, "slice"), Free(0), Free(0))),
)
_LIVE_NEIGHBOUR = MemoryProgram(
    (Allocate(512, 0, 0, "full"), Allocate(512, 0, 0, "full"), Free(0), EmptyCache(), Allocate(513, 0, 0, "full"), EmptyCache())
)
_SIDE_STREAM = MemoryProgram(
    (Allocate(4096, 0, 0, "full", stream=1), Allocate(_LARGE, 0, 0, "empty", stream=1), WriteInPlace(0), Free(0), EmptyCache())
)
_REFUSED = tuple(
    MemoryProgram((Allocate(65537, device, 0, "full"), Allocate(_LARGE, device, 0, "full"), AskTooMuch(device, 1, 1, way), Free(0)))
    for device in (1, 0)
    for way in WAYS_TO_ASK_TOO_MUCH
)
_RESET = (
    MemoryProgram(
        (Allocate(_LARGE, 0, 0, "empty"), Allocate(_LARGE, 1, 0, "empty"), Free(0), Free(0), ResetPeaks(0), ResetPeaks(1))
    ),
    MemoryProgram((Allocate(513, 0, 0, "empty"), ResetPeaks(0), Allocate(4096, 0, 0, "empty"), Free(1), ResetPeaks(0))),
)
