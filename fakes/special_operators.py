"""Operators of their own kind: copies, host reads, storage and size changes.

For: the operators whose meaning on a device does not follow from their schema. Not for: all others (`dispatch.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from fakes import deferral
from fakes.arguments import bytes_of, refuse_mixture, unwrap
from fakes.copies import copy
from fakes.device import Device
from fakes.geometry import set_geometry
from fakes.machine import _current, current_machine
from fakes.operator_plan import OperatorPlan
from fakes.pinned_memory import is_pinned
from fakes.storage import DeviceStorage, block_data
from fakes.tensor import DeviceTensor, allocate, host_tensor, wrap, wrap_view

aten = torch.ops.aten
_CPU = torch.device("cpu")


def _copy(plan: OperatorPlan, args: Any, kwargs: Any) -> Any:
    destination, source = args[0], args[1]
    machine = _current.machine or current_machine()
    to_device, from_device = isinstance(destination, DeviceTensor), isinstance(source, DeviceTensor)
    data = host_tensor(destination) if to_device else destination
    contents = host_tensor(source) if from_device else source
    if from_device:
        machine.open(source._index)
    asked = bool(args[2]) if len(args) > 2 else bool((kwargs or {}).get("non_blocking", False))
    if machine.scheduler.defers:
        machine.open((destination if to_device else source)._index)
        copy(plan, destination, source, asked, machine)
        return destination
    index = destination._index if to_device else source._index
    machine.open(index)
    stream = machine.current_stream(index)
    machine.scheduler.launch(plan, plan.kernel, (data, contents), {}, stream)
    # Only pinned memory can be copied behind the host's back.
    if not (to_device and from_device) and not (asked and is_pinned(data if from_device else contents)):
        machine.scheduler.synchronize_stream(stream)
    return destination


def _read(plan: OperatorPlan, args: Any, kwargs: Any) -> Any:
    """A host read: `item()`, `equal`."""
    host_args, host_kwargs, index, _ = unwrap(plan, args, kwargs)
    machine = current_machine()
    machine.open(index)
    stream = machine.current_stream(index)
    if machine.scheduler.defers:
        return deferral.read(plan, plan.kernel, host_args, host_kwargs, machine, stream)
    machine.scheduler.synchronize_stream(stream)
    return plan.kernel(*host_args, **host_kwargs)


def _resize(plan: OperatorPlan, args: Any, kwargs: Any) -> Any:
    tensor = args[0]
    size = args[1] if plan.name == "aten::resize_" else args[1].shape
    nbytes = tensor.storage_offset() * tensor.itemsize + bytes_of(size, tensor.dtype)
    machine = current_machine()
    device = machine.open(tensor._index)
    machine.scheduler.synchronize_device(device.index)
    if machine.scheduler.defers:
        _resize_deferred(tensor, size, nbytes, device, kwargs or {})
        return tensor
    if nbytes > tensor._block.size:
        tensor._block.resize(nbytes)
    keywords = {name: value for name, value in (kwargs or {}).items() if value is not None}
    aten.resize_.default(tensor._data, list(size), **keywords)
    set_geometry(tensor, tensor._data)
    return tensor


def _resize_deferred(tensor: DeviceTensor, size: Any, nbytes: int, device: Device, keywords: dict[str, Any]) -> None:
    """A size that the block cannot hold moves the tensor to a new one; other tensors on the old one stay there."""
    old, itemsize = tensor._data, tensor.itemsize
    shape = aten.empty.memory_format(list(size), dtype=tensor.dtype, device="meta")
    aten.resize_.default(shape, list(size), **{name: value for name, value in keywords.items() if value is not None})
    block = tensor._block
    if nbytes > block.size:
        moved = allocate((nbytes,), (1,), torch.uint8, nbytes, device, current_machine().current_stream(device.index))
        kept = block_data(block, (block.size,), (1,), torch.uint8, block.size) if block.size else None
        if kept is not None:
            aten.copy_.default(moved._data[: block.size], kept)
        block = moved._block
    whole = block.size // itemsize * itemsize
    flat = block_data(block, (whole // itemsize,), (1,), tensor.dtype, whole)
    tensor._data = aten.as_strided.default(flat, shape.shape, shape.stride(), old.storage_offset())
    tensor._block = block
    set_geometry(tensor, tensor._data)


def _set(plan: OperatorPlan, args: Any, kwargs: Any) -> Any:  # noqa: ARG001
    tensor, source = args[0], (args[1] if len(args) > 1 else None)
    machine = current_machine()
    device = machine.open(tensor._index)
    if source is None:
        empty = aten.empty.memory_format([0], dtype=tensor.dtype, device=_CPU)
        new = wrap(empty, device, machine.current_stream(device.index))
    elif isinstance(source, DeviceTensor):
        if source._index != tensor._index:
            refuse_mixture(tensor._index, source.device)
        offset, size, stride = args[2:] or (source.storage_offset(), source.shape, source.stride())
        new = wrap_view(aten.as_strided.default(source._data, size, stride, offset), source)
    else:
        refuse_mixture(tensor._index, source.device)
    torch._functionalize_unsafe_set(tensor, new)
    tensor._data, tensor._block = new._data, new._block
    set_geometry(tensor, new._data)
    return tensor


def _set_storage(plan: OperatorPlan, args: Any, kwargs: Any) -> Any:  # noqa: ARG001
    tensor, storage = args[0], args[1]
    if not isinstance(storage, DeviceStorage) or storage.device.index != tensor._index:
        raise RuntimeError(
            f'Attempted to set the storage of a tensor on device "{tensor.device}" to a storage on different device '
            f'"{storage.device}". This is no longer allowed; the devices must match.'
        )
    data = aten.empty.memory_format([0], dtype=tensor.dtype, device=_CPU)
    plan.kernel(data, *args[1:])
    tensor._data, tensor._block = data, storage._block
    set_geometry(tensor, data)
    return tensor


def _pack_sequence(plan: OperatorPlan, args: Any, kwargs: Any) -> Any:
    """Lengths come from the host, and the sizes of the batches go back there."""
    host_args, host_kwargs, index, _ = unwrap(plan, args, kwargs)
    machine = current_machine()
    device, stream = machine.open(index), machine.current_stream(index)
    if machine.scheduler.defers:
        data, batch_sizes = deferral.read(plan, plan.kernel, host_args, host_kwargs, machine, stream)
        return deferral.place(data, plan, device, machine, stream), batch_sizes
    data, batch_sizes = machine.scheduler.launch(plan, plan.kernel, host_args, host_kwargs, stream)
    return wrap(data, device, stream), batch_sizes


def _record_stream(plan: OperatorPlan, args: Any, kwargs: Any) -> None:  # noqa: ARG001
    args[0].record_stream(args[1])


def _is_pinned(plan: OperatorPlan, args: Any, kwargs: Any) -> bool:  # noqa: ARG001
    return False


def _pin_memory(plan: OperatorPlan, args: Any, kwargs: Any) -> NoReturn:  # noqa: ARG001
    raise RuntimeError(f"cannot pin 'torch.{args[0].device.type}.Tensor' only dense CPU tensors can be pinned")


def _attention_choice(plan: OperatorPlan, args: Any, kwargs: Any) -> int:  # noqa: ARG001
    # The fused choices name other devices' kernels.
    return int(torch.nn.attention.SDPBackend.MATH.value)


SPECIAL: dict[Any, Callable[[OperatorPlan, Any, Any], Any]] = {
    aten.copy_.default: _copy,
    aten._local_scalar_dense.default: _read,
    aten.equal.default: _read,
    aten.resize_.default: _resize,
    aten.resize_as_.default: _resize,
    aten.set_.default: _set,
    aten.set_.source_Tensor: _set,
    aten.set_.source_Tensor_storage_offset: _set,
    aten.set_.source_Storage: _set_storage,
    aten.set_.source_Storage_storage_offset: _set_storage,
    aten._pack_padded_sequence.default: _pack_sequence,
    aten.record_stream.default: _record_stream,
    aten.is_pinned.default: _is_pinned,
    aten._pin_memory.default: _pin_memory,
    aten._fused_sdp_choice.default: _attention_choice,
}
"""How each of these runs."""
