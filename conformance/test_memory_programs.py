"""MEM-10: whole programs against a model, and memory that must be found again when it is needed."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conformance.accelerator_access import method
from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, not_checkable, require
from conformance.memory_limits import room_for, shared_memory_reason
from conformance.programs.memory_drafts import first_of_all, whole_programs
from conformance.programs.memory_program import MemoryProgram, no_collection
from conformance.programs.memory_statements import AskTooMuch, ResetPeaks


@pytest.fixture(autouse=True)
def _garbage_is_gone() -> None:
    """What earlier checks left in cycles is freed before counting starts."""
    gc.collect()


@pytest.fixture(autouse=True)
def _usual_order_afterwards(backend: BackendUnderTest) -> Iterator[None]:
    yield
    backend.restart()


_ROOM = 256 << 20
_size = st.sampled_from([mebibytes << 20 for mebibytes in (3, 1, 2, 4, 5, 7, 9, 11, 16, 24, 60, 100, 150, 200)])


@clause("MEM-10", examples=0.1)
@given(sizes=st.lists(_size, min_size=12, max_size=40))
def test_what_was_freed_can_be_had_again_in_any_size(backend: BackendUnderTest, sizes: list[int]) -> None:
    """One tensor at a time, each far smaller than the room there is, while the cache holds pieces of other sizes."""
    _take_one_by_one(backend, sizes)


@clause("MEM-10")
def test_what_was_freed_can_be_had_again_in_growing_sizes(backend: BackendUnderTest) -> None:
    _take_one_by_one(backend, [mebibytes << 20 for mebibytes in (*range(1, 20), 150, 200, 3, 190)])


def _take_one_by_one(backend: BackendUnderTest, sizes: Sequence[int]) -> None:
    accelerator = backend.accelerator
    device = method(accelerator, "device")(0)
    with room_for(accelerator, _ROOM, 0) as is_limited, no_collection():
        if not is_limited:
            not_checkable(
                "nothing in the device's namespace limits what this process may use of a device, or others leave less than "
                f"{2 * _ROOM >> 20} MiB of it"
            )
        allocated = method(accelerator, "memory_allocated")
        before = allocated(0)
        for position, size in enumerate(sizes):
            try:
                tensor = torch.empty(size, dtype=torch.uint8, device=device)
            except torch.OutOfMemoryError as error:
                earlier = ", ".join(str(one >> 20) for one in sizes[:position])
                require(
                    False,
                    f"with room for {_ROOM >> 20} MiB and nothing else in use, {size >> 20} MiB were refused after tensors of "
                    f"{earlier or 'no'} MiB had come and gone: {error}",
                )
            taken = allocated(0) - before
            require(taken >= size, f"{size} bytes raised memory_allocated(0) by {taken}")
            del tensor
            require(allocated(0) == before, f"{size} bytes came and went; memory_allocated(0) is {allocated(0)}; due was {before}")
        method(accelerator, "empty_cache")()


@clause("MEM-10", examples=0.5)
@first_of_all(out_of_memory=True, peaks=True, seed=0)
@given(program=whole_programs(out_of_memory=True, peaks=True), seed=st.just(0) | st.integers(0, 1 << 16))
def test_every_program_keeps_the_books(backend: BackendUnderTest, program: MemoryProgram, seed: int) -> None:
    # Deferred work has its bytes where the allocator put them.
    backend.restart(backend.given_schedule or "seeded", seed)
    judged, statements = {"MEM-1", "MEM-2", "MEM-3"}, list(program.statements)
    if shared_memory_reason(backend):
        statements = [statement for statement in statements if not isinstance(statement, AskTooMuch)]
    else:
        judged.add("MEM-4")
    if method(backend.accelerator, "supports")("peak_memory"):
        judged.add("MEM-6")
    else:
        statements = [statement for statement in statements if not isinstance(statement, ResetPeaks)]
    MemoryProgram(tuple(statements)).run(backend.accelerator, *judged)
