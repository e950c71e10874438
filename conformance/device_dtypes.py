"""Which dtypes the backend under test has.

For: checks that draw a dtype for a tensor on the device; hardware need not have all. Not for: which it must have (DEV-7's check), or what
can be computed in them.
"""

from __future__ import annotations

import functools

import torch

from conformance.accelerator_access import method
from conformance.backend_under_test import BackendUnderTest
from conformance.programs.bit_patterns import DTYPES

_RARE_NAMES = ("uint16", "uint32", "uint64", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
RARE_DTYPES: tuple[torch.dtype, ...] = tuple(getattr(torch, name) for name in _RARE_NAMES if hasattr(torch, name))
"""Dtypes of this PyTorch that devices often lack, beside those of `DTYPES`."""


@functools.cache
def device_dtypes(backend: BackendUnderTest, among: tuple[torch.dtype, ...]) -> tuple[torch.dtype, ...]:
    """Those of `among`, in their order, of which the backend can make an empty tensor on its first device."""
    device = method(backend.accelerator, "device")(0)
    return tuple(dtype for dtype in among if _can_make(dtype, device))


def dtypes_of(backend: BackendUnderTest) -> tuple[torch.dtype, ...]:
    """Those of `DTYPES` and `RARE_DTYPES` that the backend has."""
    return device_dtypes(backend, (*DTYPES, *RARE_DTYPES))


def _can_make(dtype: torch.dtype, device: torch.device) -> bool:
    try:
        torch.empty(1, dtype=dtype, device=device)
    except (RuntimeError, TypeError, NotImplementedError):
        return False
    return True
