"""Tensors whose sizes change in place.

For: `resize_`, `out=` and in-place transposition: the device tensor's metadata and accounting follow its host tensor. Not for:
views, which are new tensors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._mode_utils import no_dispatch

from fakes.tensor import DeviceTensor

_Tensor = torch.Tensor


def follow_geometry(tensor: Any) -> None:
    """Make a tensor follow its host tensor, whose geometry an operator changed.

    Raises:
        torch.OutOfMemoryError: the device has no room.
    """
    if isinstance(tensor, DeviceTensor):
        data = tensor._data
        nbytes = data.untyped_storage().nbytes()
        if nbytes > tensor._block.size:
            tensor._block.resize(nbytes)
        set_geometry(tensor, data)


def set_geometry(tensor: DeviceTensor, data: torch.Tensor) -> None:
    """Give a tensor the sizes, strides and offset of `data`."""
    if tensor.shape == data.shape and tensor.stride() == data.stride() and tensor.storage_offset() == data.storage_offset():
        return
    with no_dispatch():
        previous = torch._C._meta_in_tls_dispatch_include()
        torch._C._set_meta_in_tls_dispatch_include(True)
        try:
            torch.ops.aten.set_.source_Storage_storage_offset(
                tensor, _Tensor.untyped_storage(tensor), data.storage_offset(), data.shape, data.stride()
            )
        finally:
            torch._C._set_meta_in_tls_dispatch_include(previous)
