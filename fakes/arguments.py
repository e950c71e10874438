"""Arguments of an operator, turned into host tensors.

For: replacing device tensors by the host tensors that carry their bytes, refusing a mixture of devices (DEV-9), and asking for
room. Not for: running the operator (`dispatch.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch

from fakes.device import Device
from fakes.machine import Machine, current_machine
from fakes.operator_plan import OperatorPlan
from fakes.tensor import DeviceTensor, host_tensor

_Tensor = torch.Tensor
_PLAIN = frozenset({int, float, bool, type(None), torch.dtype, torch.layout, torch.device, torch.memory_format, str, complex})
LARGE_ELEMENTS = 1 << 16
"""From so many elements in its arguments on, an operator is asked for its result's size before it runs."""


class _Gathering:
    """What was seen in nested arguments."""

    __slots__ = ("elements", "host", "index")

    def __init__(self, index: int, host: torch.Tensor | None, elements: int) -> None:
        self.index = index
        self.host = host
        self.elements = elements

    def unwrap(self, value: Any) -> Any:
        kind = type(value)
        if kind is DeviceTensor:
            if self.index < 0:
                self.index = value._index
            elif self.index != value._index:
                refuse_mixture(self.index, value.device)
            data = host_tensor(value)
            self.elements += data.numel()
            return data
        if kind in _PLAIN:
            return value
        if isinstance(value, list | tuple):
            return [self.unwrap(item) for item in value]
        if isinstance(value, _Tensor) and self.host is None and value.dim() > 0:
            self.host = value
        return value


def unwrap(plan: OperatorPlan, args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any], int, int]:
    """(arguments, keywords, local index of the device, number of elements in all), device tensors replaced by host tensors.

    Raises:
        RuntimeError: tensors on two devices, with PyTorch's wording. CPU scalars go with any device.
    """
    index, host, elements = -1, None, 0
    host_args: list[Any] = []
    for value in args:
        kind = type(value)
        if kind is DeviceTensor:
            if index < 0:
                index = value._index
            elif index != value._index:
                refuse_mixture(index, value.device)
            data = host_tensor(value) if value._may_be_lazy else value._data
            elements += data.numel()
            host_args.append(data)
        elif kind in _PLAIN:
            host_args.append(value)
        else:
            nested = _Gathering(index, host, elements)
            host_args.append(nested.unwrap(value))
            index, host, elements = nested.index, nested.host, nested.elements
    host_kwargs: dict[str, Any] = {}
    if kwargs:
        nested = _Gathering(index, host, elements)
        host_kwargs = {name: nested.unwrap(value) for name, value in kwargs.items()}
        index, host, elements = nested.index, nested.host, nested.elements
    if host is not None and not plan.takes_host_tensors:
        refuse_mixture(index, host.device)
    return host_args, host_kwargs, index, elements


def refuse_mixture(index: int, other: torch.device) -> NoReturn:
    """Refuse tensors on two devices, with PyTorch's wording."""
    kind = current_machine().persona.device_type
    raise RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {kind}:{index} and {other}!"
    )


def refuse_dtype(machine: Machine, dtype: torch.dtype | None) -> None:
    """Refuse a dtype that the device does not have.

    Raises:
        TypeError: the persona's `dtypes` lack it.
    """
    if dtype is not None and dtype not in machine.persona.dtypes:
        kind = machine.persona.device_type
        raise TypeError(f"Cannot convert a tensor to {dtype}: the {kind} device does not support {dtype}")


def tensors_in(value: Any) -> Sequence[Any]:
    """The tensors of an argument that is a tensor, a list of them, or something else."""
    if isinstance(value, _Tensor):
        return (value,)
    if isinstance(value, list | tuple):
        return [item for item in value if isinstance(item, _Tensor)]
    return ()


def reads_what_it_overwrites(args: Any, written: DeviceTensor) -> bool:
    """Whether another argument shares some of its bytes, but not all: PyTorch refuses most such calls, which geometry cannot tell."""
    for value in args:
        if type(value) is DeviceTensor and value is not written and value._block is written._block:
            if value.numel() == 0 or written.numel() == 0:
                continue
            one, other = value._data, written._data
            if one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride():
                continue
            if one.data_ptr() < _end(other) and other.data_ptr() < _end(one):
                return True
    return False


def _end(data: torch.Tensor) -> int:
    """The address after a tensor's last element."""
    last = sum((extent - 1) * step for extent, step in zip(data.shape, data.stride(), strict=True))
    return data.data_ptr() + (last + 1) * data.itemsize


def bytes_of(size: Sequence[int], dtype: torch.dtype) -> int:
    """The bytes of a dense tensor."""
    count = 1
    for extent in size:
        count *= extent
    return count * dtype.itemsize


def require_room(plan: OperatorPlan, host_args: Sequence[Any], host_kwargs: dict[str, Any], device: Device, held: int = 0) -> None:
    """Ask for a result's memory before the host has to provide it, where its size can be told from shapes.

    `held` is how many bytes of it exist already.

    Raises:
        torch.OutOfMemoryError: the device has no room.
    """
    if plan.waits:
        return
    try:
        result = plan.kernel(
            *[_to_meta(value) for value in host_args], **{name: _to_meta(value) for name, value in host_kwargs.items()}
        )
    except (NotImplementedError, RuntimeError, IndexError, ValueError, TypeError):
        # No shape function, or a wrong call, which the kernel itself will refuse in its own words.
        return
    size = sum(tensor.numel() * tensor.itemsize for tensor in tensors_in(result)) - held
    if size > 0:
        device.allocator.require(size, current_machine().current_stream(device.index))


def _to_meta(value: Any) -> Any:
    if isinstance(value, _Tensor):
        return value.to("meta")
    if isinstance(value, list):
        return [_to_meta(item) for item in value]
    return value
