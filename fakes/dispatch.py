"""What each operator does on a simulated device.

For: `dispatch`, which PyTorch calls for every operator on a `DeviceTensor`; it decides once an operator, from its schema, and
remembers. Not for: factories without a tensor argument (`factories.py`), nor the order of execution (`launch.py`).

A view is computed at once and shares its base's memory. Everything else is a launch on the calling thread's current stream of the
device. Copies to the host and operators whose result's shape depends on values wait for the stream first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from fakes import composed_operators
from fakes.allocator import Block
from fakes.machine import Device, Machine, _current, current_machine
from fakes.random_numbers import DeviceGenerator, device_generator, with_generator_as_default
from fakes.storage import DeviceStorage
from fakes.tensor import DeviceTensor, wrap, wrap_view

aten = torch.ops.aten
_Tensor = torch.Tensor
_CPU = torch.device("cpu")
_LARGE_ELEMENTS = 1 << 16

_HOST_INDEX_OPERATORS = frozenset(
    {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::_unsafe_index"}
)
"""Operators that take CPU indices and masks (DEV-9)."""
_HOST_TENSOR_OPERATORS = frozenset({"aten::_pack_padded_sequence", "aten::_pad_packed_sequence", "aten::tensor_split"})
"""Operators with arguments that are documented as host tensors."""
_GROWING_OPERATORS = frozenset({"aten::repeat", "aten::constant_pad_nd", "aten::repeat_interleave", "aten::tile"})
"""Operators whose result may be far larger than their arguments, so that room is asked for first."""
_RESIZING_OPERATORS = frozenset({"aten::resize_", "aten::resize_as_", "aten::set_", "aten::_resize_output_", "aten::swap"})


class OperatorPlan:
    """What is known of an operator for good.

    `mutated` holds the positions and keywords of arguments that it writes; `waits` says that the host needs the contents of its
    arguments before it can go on; `random` that it draws numbers; `reshapes` that it may change its arguments' geometry.
    """

    __slots__ = (
        "has_device",
        "host_tensors_allowed",
        "kernel",
        "mutated",
        "name",
        "operator",
        "random",
        "reshapes",
        "returns",
        "run",
        "sizes_first",
        "takes_generator",
        "view_of",
        "waits",
    )

    def __init__(self, operator: Any) -> None:
        schema = operator._schema
        tags = operator.tags
        self.operator = operator
        self.kernel: Callable[..., Any] = composed_operators.KERNELS.get(operator, operator._op)
        self.name: str = schema.name
        written: list[int | str] = []
        self.view_of: int | None = None
        for position, argument in enumerate(schema.arguments):
            if argument.alias_info is None:
                continue
            if argument.alias_info.is_write:
                written.append(argument.name if argument.kwarg_only else position)
            elif self.view_of is None:
                self.view_of = position
        self.mutated = tuple(written)
        self.returns = tuple(self._aliased_argument(schema, result) for result in schema.returns)
        if all(result.alias_info is None for result in schema.returns):
            self.view_of = None
        keywords = {argument.name for argument in schema.arguments}
        self.has_device = "device" in keywords
        self.takes_generator = "generator" in keywords
        self.random = torch.Tag.nondeterministic_seeded in tags or self.takes_generator
        self.waits = torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags
        self.reshapes = (
            torch.Tag.inplace_view in tags
            or self.name in _RESIZING_OPERATORS
            or any(isinstance(name, str) for name in self.mutated)
        )
        self.host_tensors_allowed = self.name in _HOST_INDEX_OPERATORS or self.name in _HOST_TENSOR_OPERATORS
        self.sizes_first = self.name in _GROWING_OPERATORS
        self.run: Callable[[OperatorPlan, Any, Any], Any] = self._choose(operator)

    @staticmethod
    def _aliased_argument(schema: Any, result: Any) -> int | str | None:
        """The argument that a result is, where it is written through it; None where the result is new."""
        if result.alias_info is None or not result.alias_info.is_write:
            return None
        for position, argument in enumerate(schema.arguments):
            info = argument.alias_info
            if info is not None and info.before_set == result.alias_info.before_set:
                return argument.name if argument.kwarg_only else position
        return None

    def _choose(self, operator: Any) -> Callable[[OperatorPlan, Any, Any], Any]:
        special = SPECIAL.get(operator)
        if special is not None:
            return special
        if self.view_of is not None and not self.mutated:
            return _run_view
        if self.has_device:
            return _run_factory
        if self.mutated:
            return _run_mutating
        return _run_functional


_plans: dict[Any, OperatorPlan] = {}


def dispatch(operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Run an operator that has a `DeviceTensor` among its arguments."""
    del types
    plan = _plans.get(operator)
    if plan is None:
        plan = _plans.setdefault(operator, OperatorPlan(operator))
    return plan.run(plan, args, kwargs if kwargs is not None else {})


class _Arguments:
    """Arguments with device tensors replaced by the host tensors that carry their bytes."""

    __slots__ = ("host", "index")

    def __init__(self) -> None:
        self.index = -1
        self.host: torch.Tensor | None = None

    def unwrap(self, value: Any) -> Any:
        kind = type(value)
        if kind is DeviceTensor:
            if self.index < 0:
                self.index = value._index
            elif self.index != value._index:
                _refuse_mixture(self.index, f"{value.device}")
            return value._data
        if kind is list or kind is tuple:
            return [self.unwrap(item) for item in value]
        if isinstance(value, _Tensor):
            if value.dim() > 0 and self.host is None:
                self.host = value
        elif isinstance(value, dict):
            return {key: self.unwrap(item) for key, item in value.items()}
        return value


def _unwrap(plan: OperatorPlan, args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any], int]:
    arguments = _Arguments()
    unwrap = arguments.unwrap
    host_args = [unwrap(value) for value in args]
    host_kwargs = {name: unwrap(value) for name, value in kwargs.items()} if kwargs else {}
    if arguments.host is not None and not plan.host_tensors_allowed:
        _refuse_mixture(arguments.index, f"{arguments.host.device}")
    return host_args, host_kwargs, arguments.index


def _refuse_mixture(index: int, other: str) -> NoReturn:
    kind = current_machine().persona.device_type
    raise RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {kind}:{index} and {other}!"
    )


def _launch(plan: OperatorPlan, args: Sequence[Any], kwargs: dict[str, Any], machine: Machine, device: Device) -> Any:
    stream = machine.current_stream(device.index)
    if plan.random:
        return _launch_random(plan, args, kwargs, machine, device, stream)
    return machine.scheduler.launch(plan, plan.kernel, args, kwargs, stream)


def _launch_random(  # noqa: PLR0917
    plan: OperatorPlan, args: Sequence[Any], kwargs: dict[str, Any], machine: Machine, device: Device, stream: Any
) -> Any:
    given = kwargs.get("generator") or next((value for value in args if isinstance(value, torch.Generator)), None)
    if given is None:
        generator: DeviceGenerator | None = device.generator
    else:
        generator = device_generator(given)
        kind = machine.persona.device_type
        if generator is None:
            raise RuntimeError(f"Expected a '{kind}' device type for generator but found '{given.device.type}'")
        if generator.device != device.torch_device:
            raise RuntimeError(f"Expected a generator on {device.torch_device} but found one on {generator.device}")
    if plan.takes_generator and given is None:
        return machine.scheduler.launch(plan, plan.kernel, args, {**kwargs, "generator": generator}, stream)
    if plan.takes_generator:
        return machine.scheduler.launch(plan, plan.kernel, args, kwargs, stream)

    def kernel(*kernel_args: Any, **kernel_kwargs: Any) -> Any:
        return with_generator_as_default(generator, plan.kernel, kernel_args, kernel_kwargs)

    return machine.scheduler.launch(plan, kernel, args, kwargs, stream)


def _run_functional(plan: OperatorPlan, args: Any, kwargs: Any) -> Any:
    host_args, host_kwargs, index = _unwrap(plan, args, kwargs)
    machine = _current.machine or current_machine()
    device = machine.open(index)
    if plan.sizes_first or _is_large(host_args):
        _require_room(plan, host_args, host_kwargs, device)
    if plan.waits:
        machine.scheduler.synchronize_stream(machine.current_stream(index))
    return _wrap_results(_launch(plan, host_args, host_kwargs, machine, device), device, machine)


def _wrap_results(result: Any, device: Device, machine: Machine) -> Any:
    if isinstance(result, _Tensor):
        return wrap(result, device, machine.current_stream(device.index))
    if isinstance(result, list | tuple):
        return type(result)([_wrap_results(item, device, machine) for item in result])
    return result


def _run_view(plan: OperatorPlan, args: Any, kwargs: Any) -> Any:
    host_args, host_kwargs, _ = _unwrap(plan, args, kwargs)
    assert_position = plan.view_of
    base = args[assert_position]
    result = plan.kernel(*host_args, **host_kwargs)
    if isinstance(result, _Tensor):
        return wrap_view(result, base)
    return type(result)([wrap_view(item, base) for item in result])


def _run_mutating(plan: OperatorPlan, args: Any, kwargs: Any) -> Any:
    host_args, host_kwargs, index = _unwrap(plan, args, kwargs)
    machine = _current.machine or current_machine()
    device = machine.open(index)
    for place in plan.mutated:
        _refuse_host_output(kwargs.get(place) if isinstance(place, str) else args[place] if place < len(args) else None, device)
    if plan.waits:
        machine.scheduler.synchronize_stream(machine.current_stream(index))
    if plan.reshapes and _is_large(host_args):
        _require_room(plan, host_args, host_kwargs, device, kwargs)
    result = _launch(plan, host_args, host_kwargs, machine, device)
    if plan.reshapes:
        for place in plan.mutated:
            for tensor in _tensors(kwargs.get(place) if isinstance(place, str) else args[place]):
                follow_geometry(tensor)
    if not plan.returns:
        return None
    results = result if len(plan.returns) > 1 else (result,)
    wrapped = [
        _wrap_results(value, device, machine) if place is None else kwargs[place] if isinstance(place, str) else args[place]
        for place, value in zip(plan.returns, results, strict=True)
    ]
    return wrapped[0] if len(wrapped) == 1 else tuple(wrapped)


def _run_factory(plan: OperatorPlan, args: Any, kwargs: Any) -> Any:
    """Operators with a `device` keyword: `empty_like`, `new_zeros`, `_to_copy`, …"""
    host_args, host_kwargs, index = _unwrap(plan, args, kwargs)
    machine = _current.machine or current_machine()
    target = kwargs.get("device")
    host_kwargs.pop("pin_memory", None)
    kind = machine.persona.device_type
    source = machine.open(index)
    if target is not None and target.type != kind:
        machine.scheduler.synchronize_stream(machine.current_stream(index))
        host_kwargs["device"] = target
        return plan.kernel(*host_args, **host_kwargs)
    device = source if target is None else machine.open(machine.device_index(target))
    host_kwargs["device"] = _CPU
    require_dtype(machine, kwargs.get("dtype"))
    if plan.name.startswith("aten::new_"):
        device.allocator.require(_bytes_of(host_args[1], kwargs.get("dtype") or args[0].dtype))
    elif _is_large(host_args):
        _require_room(plan, host_args, {**host_kwargs, "device": None}, device)
    return _wrap_results(_launch(plan, host_args, host_kwargs, machine, device), device, machine)


def require_dtype(machine: Machine, dtype: torch.dtype | None) -> None:
    """Refuse a dtype that the device does not have.

    Raises:
        TypeError: as PyTorch's devices without float64 do.
    """
    if dtype is not None and dtype not in machine.persona.dtypes:
        raise TypeError(
            f"Cannot convert a tensor to {dtype} on {machine.persona.display_name}: the {machine.persona.device_type} device "
            "does not "
            f"support {dtype}"
        )


def _refuse_host_output(value: Any, device: Device) -> None:
    for tensor in _tensors(value):
        if not isinstance(tensor, DeviceTensor):
            _refuse_mixture(device.index, f"{tensor.device}")


def _tensors(value: Any) -> Sequence[Any]:
    if isinstance(value, _Tensor):
        return (value,)
    if isinstance(value, list | tuple):
        return [item for item in value if isinstance(item, _Tensor)]
    return ()


def _is_large(host_args: Sequence[Any]) -> bool:
    for value in host_args:
        if isinstance(value, _Tensor):
            if value.numel() > _LARGE_ELEMENTS:
                return True
        elif isinstance(value, list) and value and isinstance(value[0], _Tensor) and _is_large(value):
            return True
    return False


def _require_room(
    plan: OperatorPlan, host_args: Sequence[Any], host_kwargs: dict[str, Any], device: Device, kwargs: dict[str, Any] | None = None
) -> None:
    """Ask for the result's memory before the host has to provide it; only where the result's size can be told from shapes."""
    if plan.waits:
        return
    try:
        result = plan.kernel(
            *[_to_meta(value) for value in host_args], **{key: _to_meta(value) for key, value in host_kwargs.items()}
        )
    except (NotImplementedError, RuntimeError, IndexError, ValueError, TypeError):
        # No shape function, or a wrong call, which the kernel itself will refuse in its own words.
        return
    size = sum(tensor.numel() * tensor.itemsize for tensor in _tensors(result))
    for place in plan.mutated:
        held = (kwargs or {}).get(place) if isinstance(place, str) else host_args[place] if place < len(host_args) else None
        size -= sum(tensor.untyped_storage().nbytes() for tensor in _tensors(held) if not isinstance(tensor, DeviceTensor))
        size -= sum(tensor._block.size for tensor in _tensors(held) if isinstance(tensor, DeviceTensor))
    if size > 0:
        device.allocator.require(size)


def _to_meta(value: Any) -> Any:
    if isinstance(value, _Tensor):
        return value.to("meta")
    if isinstance(value, list):
        return [_to_meta(item) for item in value]
    return value


def _bytes_of(size: Sequence[int], dtype: torch.dtype) -> int:
    count = 1
    for extent in size:
        count *= extent
    return count * dtype.itemsize


def follow_geometry(tensor: Any) -> None:
    """Make a tensor's metadata and its accounting follow its host tensor, whose geometry an operator changed.

    Raises:
        torch.OutOfMemoryError: the device has no room.
    """
    if not isinstance(tensor, DeviceTensor):
        return
    data = tensor._data
    nbytes = data.untyped_storage().nbytes()
    if nbytes > tensor._block.size:
        tensor._block.resize(nbytes)
    set_geometry(tensor, data)


def set_geometry(tensor: DeviceTensor, data: torch.Tensor) -> None:
    """Give a tensor the sizes, strides and offset of `data`."""
    if tensor.shape == data.shape and tensor.stride() == data.stride() and tensor.storage_offset() == data.storage_offset():
        return
    from torch.utils._mode_utils import no_dispatch

    with no_dispatch():
        previous = torch._C._meta_in_tls_dispatch_include()
        torch._C._set_meta_in_tls_dispatch_include(True)
        try:
            aten.set_.source_Storage_storage_offset(
                tensor, torch.Tensor.untyped_storage(tensor), data.storage_offset(), data.shape, data.stride()
            )
        finally:
            torch._C._set_meta_in_tls_dispatch_include(previous)


# Operators of their own kind -----------------------------------------------------------------------------------------------------


def _copy(plan: OperatorPlan, args: Any, kwargs: Any) -> Any:
    destination, source = args[0], args[1]
    machine = _current.machine or current_machine()
    to_device = isinstance(destination, DeviceTensor)
    from_device = isinstance(source, DeviceTensor)
    data = destination._data if to_device else destination
    contents = source._data if from_device else source
    index = destination._index if to_device else source._index
    if from_device:
        machine.open(source._index)
    machine.open(index)
    non_blocking = bool(args[2]) if len(args) > 2 else bool(kwargs.get("non_blocking", False))
    if not to_device and not data.is_pinned():
        non_blocking = False
    stream = machine.current_stream(index)
    machine.scheduler.launch(plan, plan.kernel, (data, contents), {}, stream)
    if not non_blocking and not (to_device and from_device):
        machine.scheduler.synchronize_stream(stream)
    return destination


def _local_scalar(plan: OperatorPlan, args: Any, kwargs: Any) -> Any:  # noqa: ARG001
    tensor = args[0]
    machine = current_machine()
    machine.open(tensor._index)
    machine.scheduler.synchronize_stream(machine.current_stream(tensor._index))
    return plan.kernel(tensor._data)


def _equal(plan: OperatorPlan, args: Any, kwargs: Any) -> Any:
    host_args, _, index = _unwrap(plan, args, kwargs)
    machine = current_machine()
    machine.open(index)
    machine.scheduler.synchronize_stream(machine.current_stream(index))
    return plan.kernel(*host_args)


def _resize(plan: OperatorPlan, args: Any, kwargs: Any) -> Any:
    tensor = args[0]
    size = args[1] if plan.name == "aten::resize_" else args[1].shape
    nbytes = tensor.storage_offset() * tensor.itemsize + _bytes_of(size, tensor.dtype)
    if nbytes > tensor._block.size:
        tensor._block.resize(nbytes)
    aten.resize_.default(tensor._data, list(size), **{key: value for key, value in kwargs.items() if value is not None})
    set_geometry(tensor, tensor._data)
    return tensor


def _set(plan: OperatorPlan, args: Any, kwargs: Any) -> Any:
    del kwargs
    tensor, source = args[0], (args[1] if len(args) > 1 else None)
    machine = current_machine()
    device = machine.open(tensor._index)
    if source is None:
        new = wrap(aten.empty.memory_format([0], dtype=tensor.dtype, device=_CPU), device, machine.current_stream(device.index))
    elif isinstance(source, DeviceTensor):
        if source._index != tensor._index:
            _refuse_mixture(tensor._index, f"{source.device}")
        geometry = args[2:] or (source.storage_offset(), source.shape, source.stride())
        new = wrap_view(torch.as_strided(source._data, geometry[1], geometry[2], geometry[0]), source)
    else:
        return _set_storage(plan, args)
    torch._functionalize_unsafe_set(tensor, new)  # type: ignore[attr-defined]
    tensor._data, tensor._block = new._data, new._block
    set_geometry(tensor, new._data)
    return tensor


def _set_storage(plan: OperatorPlan, args: Any) -> Any:
    tensor, storage = args[0], args[1]
    if not isinstance(storage, DeviceStorage) or storage.device.index != tensor._index:
        raise RuntimeError(
            f'Attempted to set the storage of a tensor on device "{tensor.device}" to a storage on different device '
            f'"{storage.device}". This is no longer allowed; the devices must match.'
        )
    data = aten.empty.memory_format([0], dtype=tensor.dtype, device=_CPU)
    plan.kernel(data, storage, *args[2:])
    tensor._data, tensor._block = data, storage._block
    set_geometry(tensor, data)
    return tensor


def _record_stream(plan: OperatorPlan, args: Any, kwargs: Any) -> None:
    del plan, kwargs
    args[0].record_stream(args[1])


def _is_pinned(plan: OperatorPlan, args: Any, kwargs: Any) -> bool:
    del plan, args, kwargs
    return False


def _pin_memory(plan: OperatorPlan, args: Any, kwargs: Any) -> NoReturn:
    del plan, kwargs
    kind = type(args[0]).__name__ if not isinstance(args[0], DeviceTensor) else f"torch.{args[0].device.type}.Tensor"
    raise RuntimeError(f"cannot pin '{kind}' only dense CPU tensors can be pinned")


def _attention_choice(plan: OperatorPlan, args: Any, kwargs: Any) -> int:
    # The fused choices name other devices' kernels.
    del plan, args, kwargs
    return int(torch.nn.attention.SDPBackend.MATH.value)


SPECIAL: dict[Any, Callable[[OperatorPlan, Any, Any], Any]] = {
    aten.copy_.default: _copy,
    aten._local_scalar_dense.default: _local_scalar,
    aten.equal.default: _equal,
    aten.resize_.default: _resize,
    aten.resize_as_.default: _resize,
    aten.set_.source_Tensor: _set,
    aten.set_.source_Tensor_storage_offset: _set,
    aten.set_.source_Storage: _set,
    aten.set_.source_Storage_storage_offset: _set,
    aten.set_.default: _set,
    aten.record_stream.default: _record_stream,
    aten._fused_sdp_choice.default: _attention_choice,
    aten.is_pinned.default: _is_pinned,
    aten._pin_memory.default: _pin_memory,
}

__all__ = ["Block", "OperatorPlan", "dispatch", "follow_geometry", "require_dtype"]
