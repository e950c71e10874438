"""OPS: operators that routing, weight updates and losses use, against the CPU."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conformance.accelerator_access import method
from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, expect_refusal, not_run, require
from conformance.device_dtypes import RARE_DTYPES, dtypes_of
from conformance.programs.bit_patterns import DTYPES
from conformance.programs.casts import CastInputs, cast_inputs, same_numbers
from conformance.programs.operator_cases import OPERATORS, OperatorCase, operator_cases

_CPU = torch.device("cpu")
_REFUSALS = (RuntimeError, TypeError, NotImplementedError, ValueError)


def _device(backend: BackendUnderTest, index: int = 0) -> torch.device:
    accelerator = backend.accelerator
    device: torch.device = method(accelerator, "device")(index % int(method(accelerator, "device_count")()))
    return device


@clause("OPS-1")
@given(case=operator_cases(), device=st.integers(0, 2))
def test_integer_operators_agree_with_the_cpu(backend: BackendUnderTest, case: OperatorCase, device: int) -> None:
    place = _device(backend, device)
    for operator in OPERATORS:
        try:
            due = case.compute(operator, _CPU)
        except RuntimeError:
            continue  # PyTorch itself does not take the dtype
        found = case.compute(operator, place)
        story = f"{operator} on {place} of {case!r}"
        require(len(found) == len(due), f"{story} gave {len(found)} tensors; due were {len(due)}")
        for position, (one, other) in enumerate(zip(found, due, strict=True)):
            if one.dtype != other.dtype or not torch.equal(one, other):
                shown = f"{one.tolist()} ({one.dtype}); due was {other.tolist()} ({other.dtype})"
                require(False, f"{story}: result {position} is {shown}")


@clause("OPS-2")
@given(inputs=cast_inputs, device=st.integers(0, 2))
def test_casts_equal_the_cpus(backend: BackendUnderTest, inputs: CastInputs, device: int) -> None:
    known = dtypes_of(backend)
    if inputs.source not in known:
        return
    place = _device(backend, device)
    for target in (target for target in inputs.targets() if target in known):
        host = inputs.host(target)
        due = host.to(target)
        for way, found in (("on the device", host.to(place).to(target)), ("while copying", host.to(place, target))):
            back = found.cpu()
            # The text costs more than the cast.
            if back.dtype != target or not same_numbers(back, due):
                story = f"the cast of {_shown(host)} from {inputs.source} to {target} {way} on {place}"
                require(False, f"{story} gave {_shown(back)} ({back.dtype}); due was {_shown(due)}")


def _shown(tensor: torch.Tensor) -> str:
    return str(tensor.to(torch.complex128 if tensor.is_complex() else torch.float64).tolist())


@clause("OPS-2")
@pytest.mark.parametrize("dtype", (*DTYPES, *RARE_DTYPES), ids=str)
def test_a_dtype_that_the_device_lacks_is_refused(backend: BackendUnderTest, dtype: torch.dtype) -> None:
    if dtype in dtypes_of(backend):
        return
    place = _device(backend)
    there = torch.ones(2, device=place)

    def cast() -> str:
        return f"{there.to(dtype).dtype}"

    def fill() -> str:
        return f"{torch.zeros(2, dtype=dtype, device=place).dtype}"

    cast.__qualname__, fill.__qualname__ = f"a cast to {dtype} on {place}", f"zeros of {dtype} on {place}"
    expect_refusal(cast, errors=_REFUSALS)
    expect_refusal(fill, errors=_REFUSALS)


# Many elements

_SIMULATED = 2**20
_REAL = 2**31


@clause("OPS-3")
@pytest.mark.parametrize("operation", ["fill and sum", "copy", "index", "select"])
def test_many_elements_are_counted_right(backend: BackendUnderTest, operation: str) -> None:
    if backend.is_fake:
        bound = _SIMULATED  # 2**20 elements stand for 2**31 on a simulated device
    else:
        bound = _REAL
        if backend.effort != "certify":
            not_run(f"past 2**31 elements at effort certify only; this run's effort is {backend.effort}")
        _require_room(backend, 4 * bound)
    place, count = _device(backend), bound + 9
    marks = {0: 3, bound - 1: 5, bound: 7, bound + 8: 11}
    x = torch.ones(count, dtype=torch.uint8, device=place)
    for position, mark in marks.items():
        x[position] = mark
    story = f"{count} elements (bound {bound}) on {place}: "
    total = count + sum(mark - 1 for mark in marks.values())
    if operation == "fill and sum":
        found = x.sum(dtype=torch.int64).item()
        require(found == total, f"{story}the sum is {found}; due was {total}")
        return
    if operation == "copy":
        other = torch.zeros_like(x).copy_(x)
        found = other.sum(dtype=torch.int64).item()
        require(found == total, f"{story}the sum of a copy is {found}; due was {total}")
        _require_marks(f"{story}in a copy, ", lambda position: other[position].item(), marks)
    elif operation == "index":
        _require_marks(story, lambda position: x[position].item(), marks)
    else:
        index = torch.tensor(list(marks), device=place)
        chosen = dict(zip(marks, x.index_select(0, index).tolist(), strict=True))
        _require_marks(f"{story}by index_select, ", chosen.__getitem__, marks)


def _require_marks(story: str, read: Callable[[int], Any], marks: dict[int, int]) -> None:
    for position, mark in marks.items():
        found = read(position)
        require(found == mark, f"{story}element {position} is {found}; due was {mark}")


def _require_room(backend: BackendUnderTest, size: int) -> None:
    """End the check where `size` bytes may not fit on the device, or on a host whose memory the device uses."""
    if method(backend.accelerator, "supports")("device_memory"):
        free = int(method(backend.accelerator, "mem_get_info")(0)[0])
        what = str(_device(backend))
    else:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
        what = "half of the host's free memory"
    if free < size:
        not_run(f"needs {size >> 20} MiB; {what} has {free >> 20} MiB free")


# Floating point

_UNIT = 2.0**-22  # matrix units cut partial sums off where float32 rounds, at up to two bits less: four times half a last place
_ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}  # half a last place, relative
_SUM_VALUES = (1.0, -1.0, 0.5, 3.0, 257.0, 0.0078125, 1000.0, -1000.0, 20000.0)


@clause("OPS-4")
@given(
    dtype=st.sampled_from([torch.bfloat16, torch.float16]),
    values=st.lists(st.sampled_from(_SUM_VALUES), min_size=1, max_size=6),
    length=st.sampled_from([1, 7, 64, 300, 2048, 4096]),
)
def test_half_precision_accumulates_in_single(
    backend: BackendUnderTest, dtype: torch.dtype, values: list[float], length: int
) -> None:
    if dtype not in dtypes_of(backend):
        return
    row = torch.tensor(values, dtype=torch.float64).repeat(-(-length // len(values)))[:length].to(dtype)
    for operation, factor in _SUMMING.items():
        other = torch.full((length,), factor, dtype=dtype)
        terms = row.double() * other.double()
        exact, bulk = terms.sum().item(), terms.abs().sum().item()
        if abs(exact) > 60000:
            continue  # more than float16 holds; sums on the way may be more
        rounding = _ROUNDING[dtype]
        bound = (length + 2) * _UNIT * bulk + rounding * abs(exact) + 2.0**-24
        with _full_accumulation():
            found = _computed(operation, row.to(_device(backend)), other.to(_device(backend)))
        require(
            abs(found - exact) <= bound,
            f"{operation} of {length} {dtype} from {values} is {found}; due was {exact} within {bound:.3g}, float32's bound",
        )


def _computed(operation: str, row: torch.Tensor, other: torch.Tensor) -> float:
    if operation == "sum":
        return float(row.sum().item())
    if operation == "sum of columns":
        return float(row.unsqueeze(1).expand(-1, 3).contiguous().sum(0)[1].item())
    if operation == "dot product":
        return float((row @ other).item())
    return float((row.unsqueeze(0).expand(2, -1).contiguous() @ other.unsqueeze(1).expand(-1, 2).contiguous())[1, 0].item())


_SUMMING = {"sum": 1.0, "sum of columns": 1.0, "matrix product": 0.5, "dot product": 0.5}  # each with what multiplies the terms


class _full_accumulation:  # noqa: N801 - reads as what it does
    """PyTorch lets CUDA's matrix products reduce in half precision unless told otherwise, which is not what is measured here."""

    _NAMES = ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")

    def __enter__(self) -> None:
        self._before = {name: getattr(torch.backends.cuda.matmul, name) for name in self._NAMES}
        for name in self._NAMES:
            setattr(torch.backends.cuda.matmul, name, False)

    def __exit__(self, *exception: object) -> None:
        for name, value in self._before.items():
            setattr(torch.backends.cuda.matmul, name, value)


# Deterministic algorithms


def _repeated_sums(place: torch.device, seed: int, size: int) -> dict[str, Callable[[], torch.Tensor]]:
    numbers = torch.Generator().manual_seed(seed)
    index = torch.randint(0, 3, (size,), generator=numbers).to(place)
    source = (torch.randn(size, generator=numbers) * 10.0 ** torch.randint(-3, 9, (size,), generator=numbers)).to(place)
    weight = source.reshape(1, -1)
    return {
        "index_add_": lambda: torch.zeros(3, device=place).index_add_(0, index, source),
        "scatter_add_": lambda: torch.zeros(3, device=place).scatter_add_(0, index, source),
        "index_put_": lambda: torch.zeros(3, device=place).index_put_((index,), source, accumulate=True),
        "sum": source.sum,
        "cumsum": lambda: source.cumsum(0),
        "matrix product": lambda: weight @ weight.T,
    }


@clause("OPS-5")
@given(seed=st.integers(0, 2**16), size=st.sampled_from([64, 5, 500]))
def test_deterministic_repeats_are_equal_or_raise(backend: BackendUnderTest, seed: int, size: int) -> None:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        for name, compute in _repeated_sums(_device(backend), seed, size).items():
            try:
                results = [compute().cpu() for _ in range(3)]
            except RuntimeError:
                continue  # refused, as it may be
            same = all(torch.equal(result, results[0]) for result in results[1:])
            require(same, f"{name} of {size} numbers, three times: {[result.flatten()[:3].tolist() for result in results]}")
    finally:
        torch.use_deterministic_algorithms(before)
