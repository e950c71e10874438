"""Factories of a simulated device: the kernels that PyTorch calls when no argument is a tensor.

For: `empty`, `empty_strided` and the few factories that PyTorch does not build from them, registered once a process. Not for:
operators on tensors (`dispatch.py`).
"""

from __future__ import annotations

from typing import Any

import torch

from fakes.arguments import refuse_dtype
from fakes.dispatch import dispatch
from fakes.machine import current_machine
from fakes.tensor import allocate, wrap

_Library: Any = torch.library.Library
_CPU = torch.device("cpu")


_ONE_KERNEL_ON_THE_CPU = ("mish_backward", "native_channel_shuffle", "silu_backward")
"""Operators that PyTorch composes of others for a device without a kernel of its own, whose values would differ in the last bits."""


def _allocate(size: Any, stride: Any, dtype: Any, device: Any, memory_format: Any) -> torch.Tensor:
    machine = current_machine()
    dtype = torch.get_default_dtype() if dtype is None else dtype
    refuse_dtype(machine, dtype)
    target = machine.open(machine.device_index(device))
    if stride is None:
        extent = 1
        for length in size:
            extent *= length
    else:
        extent = 0 if 0 in size else 1 + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    stream = machine.current_stream(target.index)
    target.allocator.require(extent * dtype.itemsize, stream)
    if machine.scheduler.defers:
        if stride is None:
            keywords = {} if memory_format is None else {"memory_format": memory_format}
            stride = torch.ops.aten.empty.memory_format(size, dtype=dtype, device="meta", **keywords).stride()
        return allocate(size, stride, dtype, extent * dtype.itemsize, target, stream)
    if stride is None:
        keywords = {} if memory_format is None else {"memory_format": memory_format}
        data = torch.ops.aten.empty.memory_format(size, dtype=dtype, device=_CPU, **keywords)
    else:
        data = torch.ops.aten.empty_strided.default(size, stride, dtype=dtype, device=_CPU)
    return wrap(data, target, stream)


def _empty(
    size: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, memory_format: Any = None
) -> Any:
    _refuse_layout(layout, pin_memory)
    return _allocate(size, None, dtype, device, memory_format)


def _empty_strided(
    size: Any, stride: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Any:
    _refuse_layout(layout, pin_memory)
    return _allocate(size, stride, dtype, device, None)


def _copy_from(source: Any, destination: Any, non_blocking: bool = False) -> Any:
    # `torch.tensor(data, device=...)` copies with Python dispatch turned off.
    return dispatch(torch.ops.aten.copy_.default, (), (destination, source, non_blocking))


def _item(tensor: Any) -> Any:
    # `torch.tensor([device scalar])`, which PyTorch's boxed fallback below aborts on.
    return dispatch(torch.ops.aten._local_scalar_dense.default, (), (tensor,))


def _fallback(operator: Any, *args: Any, **kwargs: Any) -> Any:
    # Factories that PyTorch does not build from `empty`, and operators called with Python dispatch turned off.
    return dispatch(operator, (), args, kwargs)


def _fused(operator: Any) -> Any:
    return lambda *args, **kwargs: dispatch(operator, (), args, kwargs)


def _refuse_layout(layout: Any, pin_memory: Any) -> None:
    if layout not in (None, torch.strided):
        raise RuntimeError(f"a simulated device has strided tensors only, not {layout}")
    if pin_memory:
        raise RuntimeError("Only dense CPU tensors can be pinned")


def register() -> tuple[torch.library.Library, ...]:
    """Register every factory under PrivateUse1; the kernels live as long as the libraries returned."""
    library = _Library("aten", "IMPL")
    library.impl("empty.memory_format", _empty, "PrivateUse1")
    library.impl("empty_strided", _empty_strided, "PrivateUse1")
    library.impl("_copy_from", _copy_from, "PrivateUse1")
    library.impl("_local_scalar_dense", _item, "PrivateUse1")
    for name in _ONE_KERNEL_ON_THE_CPU:
        library.impl(name, _fused(getattr(torch.ops.aten, name).default), "PrivateUse1")
    everything = _Library("_", "IMPL")
    everything.fallback(_fallback, "PrivateUse1")
    return library, everything
