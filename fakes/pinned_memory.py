"""Pinned host memory of a simulated machine (MEM-13).

For: `Tensor.pin_memory`, `is_pinned` and `pin_memory=True` of the factories, on CPU tensors. Not for: device memory, which cannot
be pinned.

A pinned storage is a host storage whose memory comes from `host_allocator.py` and whose Python object has the block; views of it are
pinned too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fakes.host_allocator import HostBlock
from fakes.machine import Machine, current_machine
from fakes.patching import Patches
from fakes.stream_state import StreamState

aten = torch.ops.aten
_Library: Any = torch.library.Library
_CPU = torch.device("cpu")
_BLOCK = "_pinned_for_simulated_device"
_NO_BYTES = object()
"""Stands for the block of a storage without bytes."""
_FACTORIES = (
    "arange",
    "empty",
    "empty_like",
    "empty_strided",
    "eye",
    "full",
    "full_like",
    "linspace",
    "ones",
    "ones_like",
    "rand",
    "rand_like",
    "randint",
    "randn",
    "randn_like",
    "randperm",
    "tensor",
    "zeros",
    "zeros_like",
)
_METHODS = ("new_empty", "new_full", "new_ones", "new_tensor", "new_zeros")


def is_pinned(tensor: torch.Tensor) -> bool:
    """Whether a CPU tensor's memory is pinned."""
    return getattr(tensor.untyped_storage(), _BLOCK, None) is not None


def empty_pinned(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A CPU tensor in pinned memory; its contents are undefined."""
    nbytes = 0 if 0 in size else (1 + sum((one - 1) * step for one, step in zip(size, stride, strict=True))) * dtype.itemsize
    if not nbytes:
        result: torch.Tensor = aten.empty_strided.default(size, stride, dtype=dtype, device=_CPU)
        setattr(result.untyped_storage(), _BLOCK, _NO_BYTES)
        return result
    block = current_machine().host_allocator.allocate(nbytes)
    storage = torch.frombuffer(block.memory, dtype=torch.uint8, count=nbytes).untyped_storage()
    setattr(storage, _BLOCK, block)
    return _on_storage(storage, dtype, 0, size, stride)


def used_by_copy(tensor: torch.Tensor, stream: StreamState) -> torch.Tensor:
    """The elements of a pinned tensor for a copy that runs later on a stream.

    The memory is then not reused before the copy is done; as on hardware, the copy does not keep the tensor's storage alive.
    """
    block = getattr(tensor.untyped_storage(), _BLOCK, None)
    if not isinstance(block, HostBlock):
        return tensor
    block.note_use(stream)
    if tensor.is_conj() or tensor.is_neg():
        return tensor
    storage = torch.frombuffer(block.memory, dtype=torch.uint8).untyped_storage()
    return _on_storage(storage, tensor.dtype, int(tensor.storage_offset()), tensor.shape, tensor.stride())


def _on_storage(
    storage: torch.UntypedStorage, dtype: torch.dtype, offset: int, size: Sequence[int], stride: Sequence[int]
) -> torch.Tensor:
    result: torch.Tensor = aten.empty.memory_format([0], dtype=dtype, device=_CPU)
    aten.set_.source_Storage_storage_offset(result, storage, offset, size, stride)
    return result


def apply(patches: Patches, machine: Machine) -> None:
    """Let CPU tensors be pinned."""
    del machine
    library: Any = _Library("aten", "IMPL")
    library.impl("is_pinned", _is_pinned, "CPU", allow_override=True)
    library.impl("_pin_memory", _pin_memory, "CPU", allow_override=True)
    patches.on_undo(library._destroy)
    for name in _FACTORIES:
        patches.set(torch, name, _pinning(getattr(torch, name)))
    for name in _METHODS:
        patches.set(torch.Tensor, name, _pinning(getattr(torch.Tensor, name)))


def _is_pinned(tensor: torch.Tensor, device: Any = None) -> bool:
    del device
    return is_pinned(tensor)


def _pin_memory(tensor: torch.Tensor, device: Any = None) -> torch.Tensor:
    del device
    return pinned_copy(tensor)


def pinned_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a CPU tensor in pinned memory, of the same geometry."""
    pinned = empty_pinned(tensor.shape, tensor.stride(), tensor.dtype)
    aten.copy_.default(pinned, tensor)
    return pinned


def _pinning(factory: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(factory)
    def pinning(*args: Any, **kwargs: Any) -> torch.Tensor:
        if not kwargs.get("pin_memory"):
            return factory(*args, **kwargs)
        kwargs["pin_memory"] = False
        result = factory(*args, **kwargs)
        if result.device.type != "cpu":
            raise RuntimeError("Only dense CPU tensors can be pinned")
        return pinned_copy(result.detach()).requires_grad_(result.requires_grad)

    return pinning
