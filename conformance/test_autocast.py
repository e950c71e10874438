"""AMP: autocast's dtype inside and outside its contexts, and dtypes that it cannot compute in."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conformance.accelerator_access import method
from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, require
from conformance.device_dtypes import dtypes_of
from conformance.programs.autocast_program import AutocastProgram, autocast_programs


@clause("AMP-1")
@given(program=autocast_programs, device=st.integers(0, 2), current=st.integers(0, 2))
def test_products_have_autocasts_dtype_inside_only(
    backend: BackendUnderTest, program: AutocastProgram, device: int, current: int
) -> None:
    count = int(method(backend.accelerator, "device_count")())
    method(backend.accelerator, "set_device")(current % count)
    program.run(backend.accelerator, device % count)
    method(backend.accelerator, "set_device")(0)


_CAPABILITIES = {torch.bfloat16: "bf16", torch.float16: "fp16"}
_DTYPES = (
    torch.bfloat16,
    torch.float16,
    torch.float32,
    torch.float64,
    torch.int32,
    torch.bool,
    torch.float8_e4m3fn,
    torch.complex64,
)


@clause("AMP-2")
@pytest.mark.parametrize("dtype", _DTYPES, ids=str)
def test_a_dtype_is_computed_in_or_refused(backend: BackendUnderTest, dtype: torch.dtype) -> None:
    accelerator = backend.accelerator
    supports = method(accelerator, "supports")
    names = ["amp", *([_CAPABILITIES[dtype]] if dtype in _CAPABILITIES else [])]
    answers = {name: supports(name) for name in names}
    inputs = _inputs(backend, dtype)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        product = _product(accelerator, inputs, dtype)
    said = [str(warning.message) for warning in caught if "autocast" in str(warning.message).lower()]
    require(
        not said, f"autocast(dtype={dtype}) was left to PyTorch, which warned: {said[0] if said else ''}; it must be refused before"
    )
    if isinstance(product, Exception):
        require(
            dtype not in _CAPABILITIES or not all(answers.values()),
            f"autocast(dtype={dtype}) raised {type(product).__name__}: {product}; supports() had answered {answers}",
        )
        return
    require(answers["amp"], f"supports('amp') is false, but autocast(dtype={dtype}) was accepted; it must raise")
    require(
        product.dtype == dtype,
        f"autocast(dtype={dtype}) was accepted, and a product of {inputs.dtype} inside it silently has {product.dtype}",
    )


def _inputs(backend: BackendUnderTest, dtype: torch.dtype) -> torch.Tensor:
    """Inputs of another dtype than the asked one, so that a context without effect shows."""
    other = torch.bfloat16 if dtype == torch.float32 and torch.bfloat16 in dtypes_of(backend) else torch.float32
    return torch.ones(2, 2, dtype=other, device=method(backend.accelerator, "device")(0))


def _product(accelerator: Any, inputs: torch.Tensor, dtype: torch.dtype) -> torch.Tensor | Exception:
    try:
        with method(accelerator, "autocast")(dtype=dtype):
            return inputs @ inputs
    except Exception as error:  # noqa: BLE001 - a refusal of any class; the check judges it
        return error


@clause("AMP-2")
def test_the_default_dtype_is_computed_in_or_refused(backend: BackendUnderTest) -> None:
    accelerator = backend.accelerator
    supported = method(accelerator, "supports")("amp")
    inputs = torch.ones(2, 2, device=method(accelerator, "device")(0))
    try:
        with method(accelerator, "autocast")():
            product = inputs @ inputs
    except Exception as error:  # noqa: BLE001 - a refusal of any class
        require(not supported, f"supports('amp') is true, but autocast() raised {type(error).__name__}: {error}")
        return
    require(supported, "supports('amp') is false, but autocast() was accepted; it must raise")
    require(product.dtype != torch.float32, "autocast() was accepted, and a product inside it silently has float32")
