"""Running operators on a simulated device.

For: `dispatch`, which PyTorch calls for every operator on a `DeviceTensor`. Not for: what an operator is (`operator_plan.py`),
operators of their own kind (`special_operators.py`), factories without a tensor argument (`factories.py`), nor the order of
execution (`launch.py`).

A view is computed at once and shares its base's memory. Everything else is a launch on the calling thread's current stream of the
device. Operators whose result's shape depends on values, and copies to the host, wait for the stream first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fakes import deferral
from fakes.arguments import (
    LARGE_ELEMENTS,
    bytes_of,
    reads_what_it_overwrites,
    refuse_dtype,
    refuse_mixture,
    require_room,
    tensors_in,
    unwrap,
)
from fakes.backward import record_uses
from fakes.copies import between_devices, read_to_host
from fakes.device import Device
from fakes.geometry import follow_geometry
from fakes.machine import Machine, _current, current_machine
from fakes.operator_plan import OperatorPlan, Place
from fakes.random_numbers import DeviceGenerator, device_generator, with_generator_as_default
from fakes.special_operators import SPECIAL
from fakes.tensor import DeviceTensor, wrap, wrap_view

_Tensor = torch.Tensor
_CPU = torch.device("cpu")
_plans: dict[Any, OperatorPlan] = {}


def dispatch(operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ARG001 - PyTorch's protocol
    """Run an operator that has a `DeviceTensor` among its arguments."""
    plan = _plans.get(operator)
    if plan is None:
        plan = plan_of(operator)
    machine = _current.machine
    if machine is not None and machine.threads_of_nodes.several:
        return machine.threads_of_nodes.run(plan, args, kwargs, machine.forward_streams)
    return plan.run(plan, args, kwargs)


def plan_of(operator: Any) -> OperatorPlan:
    """The plan of an operator, made once."""
    plan = OperatorPlan(operator)
    if operator in SPECIAL:
        plan.run = SPECIAL[operator]
    elif operator.namespace == "c10d":
        plan.run = _run_collective
    elif plan.view_of is not None and not plan.mutated:
        plan.run = _run_view
    elif plan.has_device:
        plan.run = _run_factory
    elif plan.mutated:
        plan.run = _run_mutating
    else:
        plan.run = _run_functional
    return _plans.setdefault(operator, plan)


def _run_collective(plan: OperatorPlan, args: Any, kwargs: Any) -> Any:
    from fakes import transport  # it imports torch.distributed, which a machine without ranks does not need

    return transport.run_collective(plan, args, kwargs)


def _run_functional(plan: OperatorPlan, args: Any, kwargs: Any) -> Any:
    host_args, host_kwargs, index, elements = unwrap(plan, args, kwargs)
    machine = _current.machine or current_machine()
    device = machine.open(index)
    stream = machine.current_stream(index)
    if elements > LARGE_ELEMENTS or plan.grows:
        require_room(plan, host_args, host_kwargs, device)
    if machine.scheduler.defers:
        if machine.in_backward:
            record_uses(args, stream)
        if plan.random:
            return _launch_random(plan, host_args, host_kwargs, machine, device)
        return deferral.launch(plan, plan.kernel, host_args, host_kwargs, device, machine, stream)
    if plan.waits:
        machine.scheduler.synchronize_stream(stream)
    if plan.random:
        result = _launch_random(plan, host_args, host_kwargs, machine, device)
    else:
        result = machine.scheduler.launch(plan, plan.kernel, host_args, host_kwargs, stream)
    if isinstance(result, _Tensor):
        return wrap(result, device, stream)
    return _wrap_all(result, device, stream)


def _wrap_all(result: Any, device: Device, stream: Any) -> Any:
    if isinstance(result, _Tensor):
        return wrap(result, device, stream)
    if isinstance(result, list | tuple):
        return type(result)([_wrap_all(item, device, stream) for item in result])
    return result


def _run_view(plan: OperatorPlan, args: Any, kwargs: Any) -> Any:
    host_args, host_kwargs, _, _ = unwrap(plan, args, kwargs)
    base = args[plan.view_of]
    result = plan.kernel(*host_args, **host_kwargs)
    if isinstance(result, _Tensor):
        return wrap_view(result, base)
    return type(result)([wrap_view(item, base) for item in result])


def _run_mutating(plan: OperatorPlan, args: Any, kwargs: Any) -> Any:
    host_args, host_kwargs, index, elements = unwrap(plan, args, kwargs)
    machine = _current.machine or current_machine()
    device = machine.open(index)
    written = [tensor for place in plan.mutated for tensor in tensors_in(_argument(place, args, kwargs))]
    for tensor in written:
        if not isinstance(tensor, DeviceTensor):
            refuse_mixture(index, tensor.device)
    stream = machine.current_stream(index)
    if plan.waits and not machine.scheduler.defers:
        machine.scheduler.synchronize_stream(stream)
    if plan.reshapes and elements > LARGE_ELEMENTS:
        held = sum(tensor._block.size for tensor in written)
        require_room(plan, host_args, host_kwargs, device, held)
    if machine.scheduler.defers and machine.in_backward:
        record_uses(args, stream)
    if plan.random:
        result = _launch_random(plan, host_args, host_kwargs, machine, device, written)
    elif machine.scheduler.defers:
        launch = deferral.run_now if len(written) == 1 and reads_what_it_overwrites(args, written[0]) else deferral.launch
        result = launch(plan, plan.kernel, host_args, host_kwargs, device, machine, stream, written)
    else:
        result = machine.scheduler.launch(plan, plan.kernel, host_args, host_kwargs, stream)
    if plan.reshapes:
        for tensor in written:
            follow_geometry(tensor)
    if len(plan.returns) == 1:
        return _result(plan.returns[0], result, args, kwargs, device, stream)
    if not plan.returns:
        return None
    return tuple(_result(place, one, args, kwargs, device, stream) for place, one in zip(plan.returns, result, strict=True))


def _result(place: Place | None, value: Any, args: Any, kwargs: Any, device: Device, stream: Any) -> Any:
    if place is not None:
        return _argument(place, args, kwargs)
    return value if type(value) is DeviceTensor else _wrap_all(value, device, stream)


def _argument(place: Place, args: Any, kwargs: Any) -> Any:
    if isinstance(place, str):
        return kwargs.get(place) if kwargs else None
    return args[place] if place < len(args) else None


def _run_factory(plan: OperatorPlan, args: Any, kwargs: Any) -> Any:
    """Operators with a `device` keyword: `empty_like`, `new_zeros`, `_to_copy`, …"""
    host_args, host_kwargs, index, elements = unwrap(plan, args, kwargs)
    machine = _current.machine or current_machine()
    target = host_kwargs.get("device")
    dtype = host_kwargs.get("dtype")
    host_kwargs.pop("pin_memory", None)
    if target is not None and target.type != machine.persona.device_type:
        if machine.scheduler.defers:
            return read_to_host(plan, host_args, host_kwargs, machine, machine.current_stream(machine.open(index).index))
        machine.scheduler.synchronize_stream(machine.current_stream(index))
        return plan.kernel(*host_args, **host_kwargs)
    host_kwargs["device"] = _CPU
    device = machine.open(index if target is None else machine.device_index(target))
    stream = machine.current_stream(device.index if index < 0 else index)
    refuse_dtype(machine, dtype)
    if plan.name.startswith("aten::new_"):
        device.allocator.require(bytes_of(args[1], dtype or args[0].dtype), machine.current_stream(device.index))
    elif elements > LARGE_ELEMENTS:
        require_room(plan, host_args, {**host_kwargs, "device": None}, device)
    if machine.scheduler.defers:
        stream = machine.current_stream(device.index)
        if machine.in_backward:
            record_uses(args, stream)
        if index not in (device.index, -1) and plan.name == "aten::_to_copy":
            return between_devices(plan, host_args, host_kwargs, machine, device, index)
        if plan.random:
            return _launch_random(plan, host_args, host_kwargs, machine, device)
        return deferral.launch(plan, plan.kernel, host_args, host_kwargs, device, machine, stream)
    if plan.random:
        result = _launch_random(plan, host_args, host_kwargs, machine, device)
    else:
        result = machine.scheduler.launch(plan, plan.kernel, host_args, host_kwargs, stream)
    return _wrap_all(result, device, machine.current_stream(device.index))


def _launch_random(
    plan: OperatorPlan, args: Sequence[Any], kwargs: dict[str, Any], machine: Machine, device: Device,
    written: Sequence[DeviceTensor] = (),
) -> Any:  # fmt: skip
    """A launch that draws from the generator that was given, else from the device's own."""
    stream = machine.current_stream(device.index)
    given = kwargs.get("generator")
    if given is None:
        given = next((value for value in args if isinstance(value, torch.Generator)), None)
    generator = device.generator if given is None else _checked_generator(given, device)
    if machine.scheduler.defers:
        return deferral.launch_random(plan, args, kwargs, generator, device, machine, stream, written)
    if plan.takes_generator:
        if given is None:
            kwargs = {**kwargs, "generator": generator}
        return machine.scheduler.launch(plan, plan.kernel, args, kwargs, stream)

    def kernel(*kernel_args: Any, **kernel_kwargs: Any) -> Any:
        return with_generator_as_default(generator, plan.kernel, kernel_args, kernel_kwargs)

    return machine.scheduler.launch(plan, kernel, args, kwargs, stream)


def _checked_generator(given: torch.Generator, device: Device) -> DeviceGenerator:
    generator = device_generator(given)
    if generator is None:
        kind = device.torch_device.type
        raise RuntimeError(f"Expected a '{kind}' device type for generator but found '{given.device.type}'")
    if generator.device != device.torch_device:
        raise RuntimeError(f"Expected a generator on {device.torch_device} but found one on {generator.device}")
    return generator
