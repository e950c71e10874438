"""Tensors that stay the same object when they change devices.

For: `tensor.data = other` and with it `Module.to`, which on hardware keep a parameter, its attributes, whoever shares it and an
optimizer that was made before. Not for: other changes of a tensor's memory (`tensor.py`).

PyTorch's own assignment takes no tensor of another C++ type. The two Python objects trade places instead, which takes along what the
objects know, hooks included. What cannot trade places, since somebody has a weak reference to it, is replaced by `Module.to`.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.nn import parameter

from fakes.patching import Patches
from fakes.tensor import DeviceTensor

_swap_tensors: Any = torch.utils.swap_tensors
_Uninitialized: Any = parameter.UninitializedTensorMixin  # type: ignore[attr-defined]
_PLACE = "_simulated_device"
"""What a parameter without a shape yet has as attribute: the device that it will be on."""
_base_data: Any = torch._C.TensorBase.data


def apply(patches: Patches) -> None:
    """Let `data` be set across devices, and let `Module.to` rely on it."""
    original: Any = torch._has_compatible_shallow_copy_type

    # TorchDynamo compares the names of the arguments when it is imported.
    def has_compatible_shallow_copy_type(input: torch.Tensor, from_: torch.Tensor) -> bool:  # noqa: A002
        if isinstance(input, DeviceTensor) != isinstance(from_, DeviceTensor):
            on_host = input.device.type == "cpu" or from_.device.type == "cpu"
            return on_host and not weakref.getweakrefs(input)
        return bool(original(input, from_))

    def get_data(self: torch.Tensor) -> Any:
        return _base_data.__get__(self)

    def set_data(self: torch.Tensor, value: torch.Tensor) -> None:
        if isinstance(value, DeviceTensor):
            exchange(self, value)
        else:
            _base_data.__set__(self, value)

    patches.set(torch, "_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type)
    patches.set(torch.Tensor, "data", property(get_data, set_data))
    # Lazy modules let through the functions of a list.
    allowed = [*_Uninitialized._allowed_methods, torch.Tensor.to, has_compatible_shallow_copy_type]
    patches.set(_Uninitialized, "_allowed_methods", allowed)
    original_materialize: Any = _Uninitialized.materialize

    def materialize(self: Any, shape: Any, device: Any = None, dtype: Any = None) -> None:
        there = self.__dict__.pop(_PLACE, None) if device is None else device
        value = torch.empty(shape, device=there or self.data.device, dtype=dtype or self.data.dtype)
        moves = isinstance(value, DeviceTensor)
        original_materialize(self, shape, "cpu" if moves else there, dtype)
        if moves:
            self.data = value

    patches.set(_Uninitialized, "materialize", materialize)


def exchange(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Have a tensor take over the memory of `value`, which is on another type of device.

    Raises:
        RuntimeError: there are weak references to the tensor, or a graph holds it.
    """
    if isinstance(tensor, _Uninitialized):
        setattr(tensor, _PLACE, value.device)
        return
    new = value.detach().requires_grad_(tensor.requires_grad)
    if isinstance(tensor, torch.nn.Parameter):
        new = torch.nn.Parameter(new, requires_grad=tensor.requires_grad)
    attributes = tensor._user_state() if isinstance(tensor, DeviceTensor) else dict(tensor.__dict__)
    gradient, tensor.grad = tensor.grad, None
    hooks = {name: getattr(tensor, name) for name in ("_backward_hooks", "_post_accumulate_grad_hooks")}
    _swap_tensors(tensor, new)
    for name, attribute in attributes.items():
        setattr(tensor, name, attribute)
    for name, registered in hooks.items():
        if registered:
            setattr(tensor, name, registered)
    if gradient is not None:
        tensor.grad = gradient.to(value.device)
