"""Faults of copies between the host and a device (DEV-7).

For: copies that do not keep every bit. Not for: where a tensor is or which device is current (`devices.py`), nor the order of copies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fakes.faults.fault import Fault
from fakes.faults.replacing import Apply
from fakes.patching import Patches


def _copies_to_the_device(change: Callable[[torch.Tensor], torch.Tensor]) -> Apply:
    """Every host tensor that is copied to the device goes through `change`."""

    def apply(patches: Patches) -> None:
        from fakes import dispatch
        from fakes.special_operators import SPECIAL
        from fakes.tensor import DeviceTensor

        operator = torch.ops.aten.copy_.default
        original = SPECIAL[operator]

        def copy(plan: Any, args: Any, kwargs: Any) -> Any:
            source = args[1] if isinstance(args[1], DeviceTensor) else change(args[1])
            return original(plan, (args[0], source, *args[2:]), kwargs)

        patches.set_item(SPECIAL, operator, copy)
        patches.set(dispatch, "_plans", {})

    return apply


def _is_wide_float(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.dtype.itemsize > 1


def _canonical_nan(source: torch.Tensor) -> torch.Tensor:
    return torch.where(source.isnan(), torch.nan, source) if _is_wide_float(source) else source


def _positive_zero(source: torch.Tensor) -> torch.Tensor:
    return source + 0.0 if _is_wide_float(source) else source


def _as_if_contiguous(source: torch.Tensor) -> torch.Tensor:
    room = source.untyped_storage().nbytes() // source.dtype.itemsize
    if source.is_contiguous() or source.numel() > room:
        return source
    return source.as_strided(source.shape, torch.empty(source.shape, device="meta").stride(), 0)


def _flushed(source: torch.Tensor) -> torch.Tensor:
    if not _is_wide_float(source):
        return source
    return torch.where(source.abs() < torch.finfo(source.dtype).tiny, torch.zeros_like(source).copysign(source), source)


FAULTS: tuple[Fault, ...] = (
    Fault(
        "dev-copy-loses-nan-payload",
        ("DEV-7",),
        "A copy to the device makes every NaN the same.",
        "derived",
        _copies_to_the_device(_canonical_nan),
    ),
    Fault(
        "dev-copy-loses-signed-zero",
        ("DEV-7",),
        "A copy to the device makes negative zeros positive.",
        "derived",
        _copies_to_the_device(_positive_zero),
    ),
    Fault(
        "dev-copy-flushes-subnormals",
        ("DEV-7",),
        "A copy to the device flushes subnormals to zero.",
        "derived",
        _copies_to_the_device(_flushed),
    ),
    Fault(
        "dev-copy-ignores-strides",
        ("DEV-7",),
        "A copy to the device takes a strided source for a contiguous one.",
        "derived",
        _copies_to_the_device(_as_if_contiguous),
    ),
)
