"""Pinned host memory of a simulated machine (MEM-13).

For: `Tensor.pin_memory`, `is_pinned` and `pin_memory=True` of the factories, on CPU tensors. Not for: device memory, which cannot
be pinned.

A pinned storage is an ordinary host storage whose Python object is marked; views of it are pinned too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from fakes.machine import Machine, _current
from fakes.patching import Patches

_Library: Any = torch.library.Library
_MARK = "_pinned_for_simulated_device"
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
    return getattr(tensor.untyped_storage(), _MARK, None) is not None


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
    return mark(torch.ops.aten.clone.default(tensor))


class _Pin:
    """The mark of a pinned storage; ends with it."""

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self._start = storage.data_ptr()
        self._nbytes = storage.nbytes()

    def __del__(self) -> None:
        if _current.machine is not None:
            _current.machine.scheduler.unpinned(self._start, self._nbytes)


def mark(tensor: torch.Tensor) -> torch.Tensor:
    """Pin a host tensor's memory; the tensor itself comes back."""
    storage = tensor.untyped_storage()
    if getattr(storage, _MARK, None) is None:
        setattr(storage, _MARK, _Pin(storage))
    return tensor


def _pinning(factory: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(factory)
    def pinning(*args: Any, **kwargs: Any) -> torch.Tensor:
        if not kwargs.get("pin_memory"):
            return factory(*args, **kwargs)
        kwargs["pin_memory"] = False
        result = factory(*args, **kwargs)
        if result.device.type != "cpu":
            raise RuntimeError("Only dense CPU tensors can be pinned")
        return mark(result)

    return pinning
