"""MEM: counters, the cache, running out of memory, peaks. First use and the allocator's settings are in `test_memory_settings.py`."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conformance.accelerator_access import device_type_of, method
from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, require
from conformance.memory_limits import require_memory_of_its_own
from conformance.programs.device_forms import DeviceForm, forms
from conformance.programs.memory_drafts import first_of_all, programs
from conformance.programs.memory_program import MemoryProgram, no_collection


@pytest.fixture(autouse=True)
def _garbage_is_gone() -> None:
    """What earlier checks left in cycles is freed before counting starts."""
    gc.collect()


@clause("MEM-1", examples=0.4)
@first_of_all()
@given(program=programs())
def test_counters_stay_within_their_bounds(backend: BackendUnderTest, program: MemoryProgram) -> None:
    program.run(backend.accelerator, "MEM-1")


@clause("MEM-2", examples=0.6)
@first_of_all()
@given(program=programs())
def test_an_allocation_counts_on_its_device_until_it_is_freed(backend: BackendUnderTest, program: MemoryProgram) -> None:
    program.run(backend.accelerator, "MEM-2")


@clause("MEM-3", examples=0.5)
@first_of_all()
@given(program=programs())
def test_emptying_the_cache_leaves_what_is_in_use(backend: BackendUnderTest, program: MemoryProgram) -> None:
    program.run(backend.accelerator, "MEM-3")


@clause("MEM-1", "MEM-4", examples=0.4)
@first_of_all(out_of_memory=True)
@given(program=programs(out_of_memory=True))
def test_a_request_for_too_much_is_refused_and_changes_nothing(backend: BackendUnderTest, program: MemoryProgram) -> None:
    require_memory_of_its_own(backend)
    program.run(backend.accelerator, "MEM-1", "MEM-4")


@clause("MEM-6", examples=0.5)
@first_of_all(peaks=True)
@given(program=programs(peaks=True))
def test_peaks_grow_until_they_are_reset(backend: BackendUnderTest, program: MemoryProgram) -> None:
    program.run(backend.accelerator, "MEM-6")


@clause("MEM-6")
def test_a_peak_remembers_what_was_freed(backend: BackendUnderTest) -> None:
    accelerator = backend.accelerator
    size = 4 << 20
    for index in range(min(2, int(method(accelerator, "device_count")()))):
        with no_collection():
            method(accelerator, "reset_peak_memory_stats")(index)
            before = method(accelerator, "memory_allocated")(index)
            torch.empty(size, dtype=torch.uint8, device=method(accelerator, "device")(index))
            peak = method(accelerator, "max_memory_allocated")(index)
        require(
            peak >= before + size,
            f"after {size} bytes were allocated and freed on device {index}, max_memory_allocated({index}) is {peak}; "
            f"due were at least {before + size}",
        )


# Forms of a device

_ATTEMPTS = 3


@clause("MEM-7")
@given(form=forms, current=st.integers(0, 3))
def test_every_form_of_a_device_gives_its_numbers(backend: BackendUnderTest, form: DeviceForm, current: int) -> None:
    accelerator = backend.accelerator
    count = int(method(accelerator, "device_count")())
    current %= count
    with no_collection():
        # Different amounts, so that another device's numbers are other numbers; so large that each gets memory of its own.
        held = [
            torch.empty((index + 1) * (12 << 20), dtype=torch.uint8, device=method(accelerator, "device")(index))
            for index in range(min(count, 4))
        ]
        value, index = form.value(device_type_of(accelerator), count), form.local_index(current, count)
        for name, read in _questions(accelerator).items():
            _require_one_answer(accelerator, name, read, value, index, current)
        del held
    method(accelerator, "set_device")(0)


def _questions(accelerator: Any) -> dict[str, Callable[[Any], Any]]:
    """What is asked of a device, by how it is written. Free bytes apart, nobody else can change the answers."""
    names = ["memory_allocated", "memory_reserved"]
    if method(accelerator, "supports")("peak_memory"):
        names += ["max_memory_allocated", "max_memory_reserved"]
    questions: dict[str, Callable[[Any], Any]] = {f"{name}({{}})": method(accelerator, name) for name in names}
    questions["mem_get_info({})[1]"] = lambda device: method(accelerator, "mem_get_info")(device)[1]
    questions["mem_get_info({})[0]"] = lambda device: method(accelerator, "mem_get_info")(device)[0]
    return questions


def _require_one_answer(accelerator: Any, name: str, read: Callable[[Any], Any], value: Any, index: int, current: int) -> None:
    """`read(value)` with one device current is what `read(None)` gives with the device itself current.

    Others on a shared device may change its free bytes meanwhile, so a difference counts only if it lasts.
    """
    set_device = method(accelerator, "set_device")
    for _ in range(_ATTEMPTS):
        set_device(index)
        before = read(None)
        set_device(current)
        answer = read(value)
        set_device(index)
        after = read(None)
        if answer == before or before != after:
            return
    require(
        False,
        f"{name.format(repr(value))} is {answer} while device {current} is current; {name.format('None')} is {before} while device "
        f"{index}, which it names, is current",
    )
