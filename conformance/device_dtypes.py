"""Which dtypes the backend under test has.

For: checks over dtypes (DEV-7, OPS-2). Not for: what can be computed in them.
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
def dtypes_of(backend: BackendUnderTest) -> frozenset[torch.dtype]:
    """The dtypes among `DTYPES` and `RARE_DTYPES` of which the backend can make an empty tensor."""
    device = method(backend.accelerator, "device")(0)
    found = set()
    for dtype in (*DTYPES, *RARE_DTYPES):
        try:
            torch.empty(1, dtype=dtype, device=device)
        except (RuntimeError, TypeError, NotImplementedError):
            continue
        found.add(dtype)
    return frozenset(found)
