"""Tensors on a simulated device.

For: the tensor class, and wrapping host tensors into it. Not for: what operators do (`dispatch.py`).

A `DeviceTensor` has the sizes, strides, dtype and device that PyTorch sees; its bytes are those of the host tensor `_data`, which
has the same geometry. Tensors that share memory share `_block`, the accounting of their storage.
"""

from __future__ import annotations

from collections import OrderedDict
from copy import deepcopy
from typing import Any, NoReturn

import torch
from torch import _tensor_str as printing

from fakes.allocator import Block
from fakes.device import Device
from fakes.forward_streams import ForwardStreams
from fakes.machine import current_machine
from fakes.storage import DeviceStorage, block_data, storage_of

_make: Any = torch.Tensor._make_wrapper_subclass
_strided = torch.strided
_print_values: Any = printing._tensor_str
_print_suffixes: Any = printing._add_suffixes
_TypedStorage: Any = torch.storage.TypedStorage
_share_storage = torch._functionalize_unsafe_set
_base_data: Any = torch._C.TensorBase.data
_OWN = frozenset({"_data", "_block", "_index", "_may_be_lazy", "_made_in"})
"""What an instance has besides what its user puts there."""


class DeviceTensor(torch.Tensor):
    """A tensor on a simulated device; made by PyTorch's own factories, never by its constructor."""

    _data: torch.Tensor
    _block: Block
    _index: int
    _may_be_lazy = False
    """Whether the conjugate or negative bit was ever set. The host tensor never has them, see `host_tensor`."""
    _made_in: ForwardStreams | None = None
    """The thread that made it, where several use the machine."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        from fakes.dispatch import dispatch

        # The first call replaces this method by the function itself, which saves an import and a call each time.
        DeviceTensor.__torch_dispatch__ = staticmethod(dispatch)  # type: ignore[method-assign, assignment]
        return dispatch(func, types, args, kwargs)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        del tensor_contents
        with torch.no_grad():
            prefix = "tensor("
            body = "..., size=" + str(tuple(self.shape)) if self.numel() == 0 and self.dim() != 1 else ""
            text = body or ("[]" if self.numel() == 0 else _print_values(host_copy(self), len(prefix)))
        if body:
            text = f"[], size={tuple(self.shape)}"
        suffixes = [f"device='{self.device}'"]
        default = self.dtype in (torch.get_default_dtype(), torch.int64, torch.bool) or (
            self.dtype == torch.complex64 and torch.get_default_dtype() == torch.float32
        )
        if not default or (self.numel() == 0 and self.dtype != torch.get_default_dtype()):
            suffixes.append(f"dtype={self.dtype}")
        if self.grad_fn is not None:
            suffixes.append(f"grad_fn=<{type(self.grad_fn).__name__}>")
        elif self.requires_grad:
            suffixes.append("requires_grad=True")
        shown = _print_suffixes(prefix + text, suffixes, 0, force_newline=False)
        return f"Parameter containing:\n{shown}" if getattr(self, "_is_param", False) else shown

    def __format__(self, format_spec: str) -> str:
        if self.dim() == 0:
            return self.item().__format__(format_spec)
        return object.__format__(self, format_spec)

    def tolist(self) -> Any:
        """The values as nested lists; waits for them."""
        return host_copy(self).tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """Refused, as on hardware, unless `force`."""
        if force:
            return host_copy(self.detach()).numpy(force=True)
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
        )

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        self.numpy()
        raise AssertionError

    def data_ptr(self) -> int:
        """The address of the first element; as on hardware, of no use to the host."""
        return self._data.data_ptr()

    def untyped_storage(self) -> DeviceStorage:
        """The storage, which tensors that share memory have in common."""
        return storage_of(self._data, self._block, self.device)

    def __deepcopy__(self, memo: dict[Any, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment."
            )
        with torch.no_grad():
            storage = deepcopy(self.untyped_storage(), memo)
            result: Any = torch.empty(0, dtype=self.dtype, device=self.device)
            result.set_(storage, self.storage_offset(), self.size(), self.stride())
            if self.is_conj():
                result = result.conj_physical()
            if self.is_neg():
                result = result.neg()
            result.requires_grad_(self.requires_grad)
            if self.grad is not None:
                result.grad = deepcopy(self.grad, memo)
        result.__dict__.update({name: deepcopy(value, memo) for name, value in self._user_state().items()})
        memo[id(self)] = result
        return result

    def __reduce_ex__(self, protocol: Any) -> Any:
        if getattr(self, "_is_param", False):
            return torch._utils._rebuild_parameter, (self.detach(), self.requires_grad, OrderedDict())
        storage = self.untyped_storage()
        geometry: tuple[Any, ...] = (self.storage_offset(), tuple(self.size()), self.stride(), self.requires_grad, OrderedDict())
        if self.dtype not in torch.storage._dtype_to_storage_type_map():
            return torch._utils._rebuild_tensor_v3, (
                _TypedStorage(wrap_storage=storage, dtype=torch.uint8, _internal=True),
                *geometry,
                self.dtype,
                {},
            )
        typed = _TypedStorage(wrap_storage=storage, dtype=self.dtype, _internal=True)
        bits = {name: True for name, is_set in (("conj", self.is_conj()), ("neg", self.is_neg())) if is_set}
        return torch._utils._rebuild_tensor_v2, (typed, *geometry, *([bits] if bits else []))

    def _user_state(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _OWN}

    def record_stream(self, stream: Any) -> None:
        """Say that a stream uses this tensor's memory, which must not be reused before the work issued there so far is done."""
        from fakes.event import _state_of

        state = _state_of(stream)
        if state is not None:
            self._block.record_stream(state)
            current_machine().scheduler.record_stream(self._block, state)

    @property
    def data(self) -> Any:
        """The tensor without its history; setting it takes over another tensor's memory."""
        return _base_data.__get__(self)

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        if not isinstance(value, DeviceTensor):
            from fakes.parameters import exchange

            exchange(self, value)
            return
        _base_data.__set__(self, value)
        self._data, self._block, self._index = value._data, value._block, value._index
        self._may_be_lazy = value._may_be_lazy


def wrap(data: torch.Tensor, device: Device, stream: Any) -> DeviceTensor:
    """A tensor with memory of its own on a device, whose bytes are `data`.

    Raises:
        torch.OutOfMemoryError: the device has no room.
        NotImplementedError: the tensor is sparse.
    """
    try:
        nbytes = data.nbytes
    except RuntimeError:
        raise NotImplementedError(f"a simulated device has strided tensors only, not {data.layout}") from None
    if data.is_quantized:
        raise NotImplementedError("a simulated device has strided tensors only, not quantized ones")
    block = Block(device.allocator, nbytes, stream)
    size = data.shape
    tensor: DeviceTensor = _make(
        DeviceTensor, size, data.stride(), data.storage_offset(), None, data.dtype, _strided, device.torch_device
    )
    tensor._data = data
    tensor._block = block
    tensor._index = device.index
    return tensor


def allocate(size: Any, stride: Any, dtype: torch.dtype, nbytes: int, device: Device, stream: Any) -> DeviceTensor:
    """A tensor with memory of its own on a device, whose bytes are those of its block; its contents are undefined.

    `nbytes` is what its elements span.

    Raises:
        torch.OutOfMemoryError: the device has no room.
    """
    block = Block(device.allocator, nbytes, stream)
    tensor: DeviceTensor = _make(DeviceTensor, size, stride, 0, None, dtype, _strided, device.torch_device)
    tensor._data = block_data(block, size, stride, dtype, nbytes)
    tensor._block = block
    tensor._index = device.index
    return tensor


def wrap_view(data: torch.Tensor, base: DeviceTensor) -> DeviceTensor:
    """A tensor that shares the memory of `base`, whose bytes are `data`."""
    conjugate, negative = data.is_conj(), data.is_neg()
    if conjugate:
        data = torch.ops.aten._conj.default(data)
    if negative:
        data = torch.ops.aten._neg_view.default(data)
    device = base.device
    tensor: DeviceTensor = _make(DeviceTensor, data.shape, data.stride(), data.storage_offset(), None, data.dtype, _strided, device)
    if conjugate or negative:
        torch._C._set_conj(tensor, conjugate)
        torch._C._set_neg(tensor, negative)
        tensor._may_be_lazy = True
    _share_storage(tensor, base)
    tensor._data = data
    tensor._block = base._block
    tensor._index = base._index
    return tensor


def host_tensor(tensor: DeviceTensor) -> torch.Tensor:
    """The host tensor to compute with: with the lazy bits that the tensor has now, which PyTorch's fallbacks set and clear."""
    data = tensor._data
    if tensor._may_be_lazy:
        if tensor.is_conj():
            data = torch.ops.aten._conj.default(data)
        if tensor.is_neg():
            data = torch.ops.aten._neg_view.default(data)
    return data


def host_copy(tensor: torch.Tensor) -> torch.Tensor:
    """The values on the host, waited for, without history."""
    return tensor.detach().cpu()
