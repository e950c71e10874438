"""MEM-13 and the last sentence of STR-9: pinned host memory, copies of any geometry through it, and its reuse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from conformance.accelerator_access import method
from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, require
from conformance.device_dtypes import device_dtypes
from conformance.programs.pinned_copies import (
    DTYPES,
    STRIDED_TO_DEVICE,
    STRIDED_TO_HOST,
    Geometry,
    PinnedCopy,
    geometries,
    numbers,
    pinned_copies,
)
from conformance.programs.stream_executor import Lengthener

_seeds = st.integers(0, 1 << 16)
_shapes = st.lists(st.sampled_from((2, 3, 1, 5, 0)), max_size=3).map(tuple)


@pytest.fixture(autouse=True)
def _usual_order_afterwards(backend: BackendUnderTest) -> Iterator[None]:
    yield
    backend.restart()


def _reorder(backend: BackendUnderTest, seed: int) -> None:
    backend.restart(backend.given_schedule or ("seeded", "lazy")[seed % 2], seed)


@clause("MEM-13", examples=0.6)
@given(data=st.data(), shape=_shapes, dtype=st.sampled_from(DTYPES))
def test_pinning_keeps_the_data(backend: BackendUnderTest, data: st.DataObject, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    del backend
    geometry: Geometry = data.draw(geometries(len(shape)))
    values = geometry.part(numbers(geometry.base_shape(shape), 1, dtype))
    due = values.clone()
    pinned = values.pin_memory()
    asked = f"a host tensor{geometry} of {shape}, {dtype}"
    require(torch.equal(pinned, due), f"pin_memory() of {asked} holds {pinned.tolist()}; due was {due.tolist()}")
    require(pinned.dtype == dtype and pinned.device.type == "cpu", f"pin_memory() of {asked} is {pinned.dtype} on {pinned.device}")
    if not pinned.numel():
        return
    require(pinned.is_pinned(), f"is_pinned() of pin_memory() of {asked} is false")
    require(pinned[..., None].is_pinned(), f"is_pinned() of a view of pin_memory() of {asked} is false")
    require(pinned.pin_memory().is_pinned(), f"is_pinned() of what was pinned twice, {asked}, is false")
    pinned.zero_()
    require(torch.equal(values, due), f"writing pin_memory() of {asked} changed the tensor itself")


@clause("MEM-13", examples=0.6)
@example(copy=STRIDED_TO_DEVICE, device=0, seed=1)
@example(copy=STRIDED_TO_HOST, device=1, seed=1)
@given(copy=pinned_copies(), device=st.integers(0, 1), seed=_seeds)
def test_copies_through_pinned_memory_are_exact(backend: BackendUnderTest, copy: PinnedCopy, device: int, seed: int) -> None:
    _reorder(backend, seed)
    dtypes = device_dtypes(backend, DTYPES)
    copy = replace(copy, dtype=dtypes[DTYPES.index(copy.dtype) % len(dtypes)])
    copy.run(backend.accelerator, device % backend.device_count)


def _elements(backend: BackendUnderTest) -> int:
    """So many that a real copy takes a while."""
    return 64 if backend.is_fake else 1 << 16


@clause("STR-9", examples=0.5)
@example(values=[1, 2], streams=2, waits_for=0, seed=1)
@example(values=[1, 2], streams=2, waits_for=1, seed=1)
@given(
    values=st.lists(st.integers(1, 99), min_size=2, max_size=4),
    streams=st.integers(1, 2),
    waits_for=st.sampled_from((None, 0, 1)),
    seed=_seeds,
)
def test_freed_pinned_memory_is_not_written_before_the_copy_from_it_ran(
    backend: BackendUnderTest, values: list[int], streams: int, waits_for: int | None, seed: int
) -> None:
    """Each value goes to the device, on one or two streams, from pinned memory that is freed at once, with the copy on one of the streams
    waited for or none; the host fills the next value's."""
    _reorder(backend, seed)
    accelerator, elements = backend.accelerator, _elements(backend)
    on = [method(accelerator, "new_stream")(0) for _ in range(streams)]
    device = method(accelerator, "device")(0)
    found = [[torch.zeros(elements, dtype=torch.int64, device=device) for _ in on] for _ in values]
    method(accelerator, "synchronize")(0)
    lengthen = Lengthener(accelerator)
    for value, targets in zip(values, found, strict=True):
        source = torch.full((elements,), value, pin_memory=True)
        for stream, target in zip(on, targets, strict=True):
            with method(accelerator, "stream")(stream):
                lengthen(0)
                target.copy_(source, non_blocking=True)
        del source
        if waits_for is not None:
            on[waits_for % streams].synchronize()
    method(accelerator, "synchronize")(0)
    for value, targets in zip(values, found, strict=True):
        for stream, target in enumerate(targets):
            seen = torch.unique(target.cpu()).tolist()
            require(
                seen == [value],
                f"{values} were copied one by one from pinned memory, each on {streams} streams and freed after its non-blocking copies "
                f"were issued, stream {waits_for} waited for: where stream {stream} copied {value} to, the device has {seen[:3]}",
            )


@clause("STR-9", examples=0.5)
@given(value=st.integers(1, 99), count=st.integers(1, 3), seed=_seeds)
def test_freed_pinned_memory_is_not_reused_before_the_copy_to_it_ran(
    backend: BackendUnderTest, value: int, count: int, seed: int
) -> None:
    """A copy to pinned memory is pending when that is freed; what the host has in pinned memory then must stay."""
    _reorder(backend, seed)
    accelerator, elements = backend.accelerator, _elements(backend)
    source = torch.full((elements,), value, dtype=torch.int64, device=method(accelerator, "device")(0))
    method(accelerator, "synchronize")(0)
    lengthen = Lengthener(accelerator)
    for _ in range(count):
        lengthen(0)
        torch.empty(elements, dtype=torch.int64, pin_memory=True).copy_(source, non_blocking=True)
    mine = [torch.full((elements,), -1 - number, pin_memory=True) for number in range(count)]
    method(accelerator, "synchronize")(0)
    for number, tensor in enumerate(mine):
        seen = torch.unique(tensor).tolist()
        require(
            seen == [-1 - number],
            f"pinned memory that the host filled with {-1 - number} holds {seen[:3]}, after a copy of {value} to pinned memory that had "
            "been freed",
        )
