"""Which dtypes the backend under test has.

For: checks that draw a dtype for a tensor on the device; hardware need not have all. Not for: which it must have (DEV-7's check).
"""

from __future__ import annotations

import functools

import torch

from conformance.accelerator_access import method
from conformance.backend_under_test import BackendUnderTest


@functools.cache
def device_dtypes(backend: BackendUnderTest, among: tuple[torch.dtype, ...]) -> tuple[torch.dtype, ...]:
    """Those of `among`, in their order, of which the backend can make an empty tensor on its first device."""
    device = method(backend.accelerator, "device")(0)
    return tuple(dtype for dtype in among if _can_make(dtype, device))


def _can_make(dtype: torch.dtype, device: torch.device) -> bool:
    try:
        torch.empty(1, dtype=dtype, device=device)
    except (RuntimeError, TypeError, NotImplementedError):
        return False
    return True
