"""Queued operators: results at once, contents when the scheduler runs the kernel.

For: turning an operator's call into a launch of a scheduler that defers. Not for: eager runs (`dispatch.py`), geometry
(`inference.py`), copies (`special_operators.py`).

Where the result's geometry cannot be told (it depends on values, or neither a trial nor `meta` knows the operator), the operator is
queued and the host waits for its stream, as for a data-dependent shape on hardware. Random operators take their numbers in the order
of issue: pure fills draw at the launch and are copied in when it runs; those that use values but always draw the same amount are tried
on stand-ins to move the generator on, and get its earlier state when they run; the few whose draws depend on values make the host wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from fakes.device import Device
from fakes.geometry import set_geometry
from fakes.inference import Layout, Outcome, _filled, _layouts, _replace, _tensors, outcome_of
from fakes.machine import Machine
from fakes.operator_plan import OperatorPlan
from fakes.random_numbers import DeviceGenerator, _TorchGenerator, with_generator_as_default
from fakes.scheduling.host_mode import HostMode
from fakes.scheduling.simulated_time import of_kernel
from fakes.stream_state import StreamState
from fakes.tensor import DeviceTensor, allocate

_Tensor = torch.Tensor
_copy_into: Any = torch.ops.aten.copy_.default._op
_PURE_FILLS = frozenset(
    {
        "aten::cauchy_",
        "aten::exponential_",
        "aten::geometric_",
        "aten::log_normal_",
        "aten::normal_",
        "aten::rand",
        "aten::rand_like",
        "aten::randint",
        "aten::randint_like",
        "aten::randn",
        "aten::randn_like",
        "aten::random_",
        "aten::randperm",
        "aten::uniform_",
    }
)
_ALLOCATIONS = frozenset({"aten::empty_like", "aten::new_empty", "aten::new_empty_strided"})
_FIXED_DRAWS = frozenset({"aten::native_dropout", "aten::bernoulli", "aten::bernoulli_", "aten::normal", "aten::rrelu_with_noise"})


def launch(
    plan: OperatorPlan, kernel: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], device: Device, machine: Machine,
    stream: StreamState, written: Sequence[DeviceTensor] = (),
) -> Any:  # fmt: skip
    """Queue an operator on host tensors; its new results as tensors of the device, in the structure that the schema says.

    `written` are the device tensors that it writes. What is written and returned comes back as None.
    """
    if plan.moves_view:
        return _move_view(kernel, args, kwargs, written)
    outcome = None if plan.waits and _is_sized_by_values(plan, args) else outcome_of(plan, kernel, args, kwargs)
    if outcome is None:
        return run_now(plan, kernel, args, kwargs, device, machine, stream, written)
    if outcome.resized:
        args, kwargs = _resize_written(args, kwargs, outcome, device, stream, written)
    return _queue(plan, kernel, args, kwargs, outcome, device, machine, stream, written)


def _is_sized_by_values(plan: OperatorPlan, args: Sequence[Any]) -> bool:
    """Of the operators that may be, whether this call is: an index is, where it is a mask."""
    return plan.name != "aten::index" or any(tensor.dtype in (torch.bool, torch.uint8) for tensor in _tensors(args[1]))


def _queue(
    plan: OperatorPlan, kernel: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], outcome: Outcome, device: Device,
    machine: Machine, stream: StreamState, written: Sequence[DeviceTensor],
) -> Any:  # fmt: skip
    scheduler = machine.scheduler
    places: list[torch.Tensor] = []
    results = _allocated(outcome.results, plan, device, stream, places)
    if plan.name in _ALLOCATIONS:
        return results
    # No closures: launches that are pending by the thousand are what the garbage collector has to go through.
    run: Callable[[], Any]
    if not places:
        run = partial(kernel, *args, **kwargs)
    elif type(outcome.results) is Layout:
        run = partial(_run_into, places[0], kernel, *args, **kwargs)
    else:
        run = partial(_run_and_store, plan, places, kernel, *args, **kwargs)
    if scheduler.tracks:
        reads = [] if plan.has_device and plan.name != "aten::_to_copy" else _tensors([*args, *kwargs.values()])
        writes = [*places, *[tensor._data for tensor in written]]
    else:
        reads, writes = (), ()  # type: ignore[assignment]
    scheduler.issue(run, reads, writes, stream, name=plan.name, duration=outcome.duration)
    return results


def _move_view(kernel: Any, args: Sequence[Any], kwargs: dict[str, Any], written: Sequence[DeviceTensor]) -> None:
    """A tensor is made another view of its memory: at once, on another host tensor, since launches hold the present one."""
    (tensor,) = written
    data = torch.ops.aten.alias.default(tensor._data)
    kernel(data, *args[1:], **kwargs)
    tensor._data = data


def _resize_written(
    args: Sequence[Any], kwargs: dict[str, Any], outcome: Outcome, device: Device, stream: StreamState, written: Sequence[DeviceTensor]
) -> tuple[Sequence[Any], dict[str, Any]]:  # fmt: skip
    """Give the tensors that an operator resizes (`out=`) memory of the size to come; the arguments with it."""
    args, kwargs = list(args), dict(kwargs)
    for where, layout in outcome.resized.items():
        before = kwargs[where] if isinstance(where, str) else args[where]
        tensor = next(one for one in written if one._data is before)
        new = allocate(layout.size, layout.stride, layout.dtype, layout.nbytes, device, stream)
        tensor._data, tensor._block = new._data, new._block
        set_geometry(tensor, new._data)
        if isinstance(where, str):
            kwargs[where] = new._data
        else:
            args[where] = new._data
    return args, kwargs


def _allocated(layout: Any, plan: OperatorPlan, device: Device, stream: StreamState, places: list[torch.Tensor]) -> Any:
    if type(layout) is Layout:
        tensor = allocate(layout.size, layout.stride, layout.dtype, layout.nbytes, device, stream)
        places.append(tensor._data)
        return tensor
    return _each_new(layout, plan, lambda item: _allocated(item, plan, device, stream, places))


def _each_new(results: Any, plan: OperatorPlan, make: Callable[[Any], Any]) -> Any:
    """The same structure with `make` of each result; None for one that is an argument which the operator wrote."""
    if not isinstance(results, list | tuple):
        return results
    one_each = len(results) == len(plan.returns) > 1
    return type(results)(
        [None if one_each and plan.returns[position] is not None else make(item) for position, item in enumerate(results)]
    )


def _run_into(place: torch.Tensor, kernel: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
    _copy_into(place, kernel(*args, **kwargs))


def _run_and_store(
    plan: OperatorPlan, places: Sequence[torch.Tensor], kernel: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> None:
    values = kernel(*args, **kwargs)
    if isinstance(values, list | tuple) and len(values) == len(plan.returns) > 1:
        values = [value for value, place in zip(values, plan.returns, strict=True) if place is None]
    found = _tensors([values])
    for place, value in zip(places, found, strict=True):
        if place.shape != value.shape:
            raise RuntimeError(f"{plan.name} gave sizes {tuple(value.shape)} where {tuple(place.shape)} were inferred")
        _copy_into(place, value)


def run_now(
    plan: OperatorPlan, kernel: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], device: Device, machine: Machine,
    stream: StreamState, written: Sequence[DeviceTensor],
) -> Any:  # fmt: skip
    """Run an operator after all earlier work of its stream, the host waiting."""
    return place(read(plan, kernel, args, kwargs, machine, stream, written), plan, device, machine, stream)


def read(
    plan: OperatorPlan, kernel: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], machine: Machine,
    stream: StreamState, written: Sequence[DeviceTensor] = (),
) -> Any:  # fmt: skip
    """What a kernel gives on the host, after all earlier work of its stream."""
    scheduler = machine.scheduler
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(kernel(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - the host is waiting, so it is raised there
            errors.append(error)

    reads, writes = _tensors([*args, *kwargs.values()]), [tensor._data for tensor in written]
    scheduler.issue(run, reads, writes, stream, name=plan.name)
    scheduler.synchronize_stream(stream)
    if errors:
        # No cycle through the traceback may keep the arguments' memory.
        raise errors.pop()
    return results[0]


def place(value: Any, plan: OperatorPlan, device: Device, machine: Machine, stream: StreamState) -> Any:
    """Put host results into memory of the device."""
    if isinstance(value, _Tensor):
        layout = Layout(value)
        tensor = allocate(layout.size, layout.stride, layout.dtype, layout.nbytes, device, stream)
        data = tensor._data
        # Queued, since the memory may be that of a block whose end is not in effect yet.
        machine.scheduler.issue(
            lambda: _copy_into(data, value), (), (data,), stream, name=plan.name, duration=of_kernel(layout.nbytes)
        )
        return tensor
    return _each_new(value, plan, lambda item: place(item, plan, device, machine, stream))


def launch_random(
    plan: OperatorPlan, args: Sequence[Any], kwargs: dict[str, Any], generator: DeviceGenerator, device: Device, machine: Machine,
    stream: StreamState, written: Sequence[DeviceTensor] = (),
) -> Any:  # fmt: skip
    """Queue an operator that draws from `generator`."""

    def drawing(source: Any) -> Callable[..., Any]:
        if plan.takes_generator:

            def kernel(*some: Any, **named: Any) -> Any:
                if any(isinstance(value, torch.Generator) for value in some):
                    return plan.kernel(*[source if isinstance(value, torch.Generator) else value for value in some], **named)
                return plan.kernel(*some, **{**named, "generator": source})

            return kernel
        return lambda *some, **named: with_generator_as_default(source, plan.kernel, some, named)

    if plan.waits:
        return run_now(plan, drawing(generator), args, kwargs, device, machine, stream, written)
    in_place = bool(plan.mutated) and len(written) == 1 and not plan.reshapes
    if plan.name in _PURE_FILLS and (in_place or not plan.mutated):
        with HostMode():
            values = drawing(generator)(*[_replace(value, _stand_in) for value in args], **kwargs)
        if not plan.mutated:
            return place(values, plan, device, machine, stream)
        data = written[0]._data
        machine.scheduler.issue(
            lambda: _copy_into(data, values), (), (data,), stream, name=plan.name, duration=of_kernel(data.nbytes)
        )
        return None
    if plan.name in _FIXED_DRAWS and (in_place or not plan.mutated):
        state = generator.get_state()
        with HostMode():
            values = drawing(generator)(*[_replace(value, _stand_in) for value in args], **kwargs)

        def later(*some: Any, **named: Any) -> Any:
            source = _TorchGenerator(device="cpu")
            source.set_state(state)
            return drawing(source)(*some, **named)

        nbytes = sum(tensor.nbytes for tensor in _tensors([*args, values]))
        results = None if plan.returns[0] is not None else _layouts(values)
        outcome = Outcome(results, {}, of_kernel(nbytes))
        return _queue(plan, later, args, kwargs, outcome, device, machine, stream, written)
    return run_now(plan, drawing(generator), args, kwargs, device, machine, stream, written)


def _stand_in(tensor: torch.Tensor) -> torch.Tensor:
    return _filled(tensor, 0.5 if tensor.dtype.is_floating_point else 0)
