"""What the reductions of a simulated transport are, on host buffers, in terms of those that gloo has.

For: dtypes and reductions that gloo lacks (truth values, means). Not for: which of them a transport has (`collective_checks.py`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch._C import _distributed_c10d as c10d

from fakes.tensor import DeviceTensor, host_tensor


def reduction_name(reduce_op: Any) -> str:
    """`SUM`, `MAX`, …"""
    return str(c10d.ReduceOp.RedOpType(reduce_op.op()).name)


def values_to_reduce(tensor: DeviceTensor) -> torch.Tensor:
    """A copy of a tensor's values, flat; truth values as bytes."""
    return as_reducible(host_tensor(tensor).reshape(-1).clone())


def as_reducible(values: torch.Tensor) -> torch.Tensor:
    """Values in a dtype that gloo reduces."""
    return values.view(torch.uint8) if values.dtype == torch.bool else values


def gloo_reduction(name: str, dtype: torch.dtype) -> Any:
    """The reduction that gloo has for one of the device's."""
    if dtype == torch.bool:
        return {"SUM": c10d.ReduceOp.MAX, "MAX": c10d.ReduceOp.MAX, "PRODUCT": c10d.ReduceOp.MIN, "MIN": c10d.ReduceOp.MIN}[name]
    return c10d.ReduceOp.SUM if name == "AVG" else getattr(c10d.ReduceOp, name)


def finished(values: torch.Tensor, name: str, size: int) -> torch.Tensor:
    """What is left to do once gloo has reduced."""
    return values / size if name == "AVG" else values
