"""Queued copies: within a device, between two, to and from the host.

For: what runs when, and what the host waits for. Not for: eager copies (`special_operators.py`).

As on CUDA: a copy between devices runs on the source's current stream, which waits for the destination's before and is waited for by it
after. A copy to or from the host makes the host wait unless it is non-blocking and the host memory is pinned; then it reads or writes
that memory when it runs, whatever the host has done to it meanwhile. `.to("cpu", non_blocking=True)` gives pinned memory.
"""

from __future__ import annotations

from typing import Any

import torch

from fakes import deferral
from fakes.backward import follow
from fakes.device import Device
from fakes.inference import Layout, outcome_of
from fakes.machine import Machine
from fakes.operator_plan import OperatorPlan
from fakes.pinned_memory import empty_pinned, is_pinned, used_by_copy
from fakes.scheduling.simulated_time import of_copy
from fakes.stream_state import StreamState
from fakes.tensor import DeviceTensor, allocate, host_tensor

_copy_into: Any = torch.ops.aten.copy_.default._op
_CPU = torch.device("cpu")


def copy(plan: OperatorPlan, destination: Any, source: Any, non_blocking: bool, machine: Machine) -> None:
    """Queue `destination.copy_(source)`; at least one of them is on a device."""
    scheduler = machine.scheduler
    if isinstance(destination, DeviceTensor) and isinstance(source, DeviceTensor):
        data, contents = host_tensor(destination), host_tensor(source)
        target = machine.open(destination._index)
        stream = machine.current_stream(source._index)
        if source._index == destination._index:
            deferral.launch(plan, plan.kernel, [data, contents], {}, target, machine, stream, [destination])
            return
        _require(plan, data, contents)
        to = machine.current_stream(destination._index)
        follow(machine.scheduler, stream, to)
        duration = of_copy(data.nbytes)
        scheduler.issue(lambda: _copy_into(data, contents), (contents,), (data,), stream, name=plan.name, duration=duration)
        follow(machine.scheduler, to, stream)
        return
    to_device = isinstance(destination, DeviceTensor)
    data = host_tensor(destination) if to_device else destination
    contents = source if to_device else host_tensor(source)
    host = source if to_device else destination
    stream = machine.current_stream(destination._index if to_device else source._index)
    _require(plan, data, contents)
    pinned = is_pinned(host)
    if pinned and non_blocking:
        if to_device:
            contents = used_by_copy(contents, stream)
        else:
            data = used_by_copy(data, stream)
    reads, writes = ([contents] if not to_device or pinned else []), ([data] if to_device or pinned else [])
    duration = of_copy(max(data.nbytes, contents.nbytes))
    scheduler.issue(lambda: _copy_into(data, contents), reads, writes, stream, name=plan.name, duration=duration)
    if not (non_blocking and pinned):
        scheduler.synchronize_stream(stream)


def _require(plan: OperatorPlan, data: torch.Tensor, contents: torch.Tensor) -> None:
    """Refuse now, in the kernel's own words, what it would refuse."""
    if data.is_meta or contents.is_meta:
        plan.kernel(data if data.is_meta else torch.empty_like(data), contents)
    if data.size() != contents.size() and outcome_of(plan, plan.kernel, [data, contents], {}) is None:
        plan.kernel(torch.empty_like(data), torch.empty_like(contents))


def read_to_host(plan: OperatorPlan, args: Any, kwargs: dict[str, Any], machine: Machine, stream: StreamState) -> Any:
    """`_to_copy` to the host, and its like."""
    if kwargs.get("non_blocking") and "pinned_memory" in machine.persona.features:
        outcome = outcome_of(plan, plan.kernel, args, kwargs)
        layout = None if outcome is None else outcome.results
        if outcome is not None and type(layout) is Layout:
            result = empty_pinned(layout.size, layout.stride, layout.dtype)
            data = used_by_copy(result, stream)
            _issue(plan, args, kwargs, data, layout, machine, stream)
            return result
    return deferral.read(plan, plan.kernel, args, kwargs, machine, stream)


def between_devices(plan: OperatorPlan, args: Any, kwargs: dict[str, Any], machine: Machine, device: Device, source: int) -> Any:
    """`_to_copy` from the device of index `source` to `device`."""
    outcome = outcome_of(plan, plan.kernel, args, kwargs)
    to, stream = machine.current_stream(device.index), machine.current_stream(machine.open(source).index)
    if outcome is None or type(outcome.results) is not Layout:
        return deferral.launch(plan, plan.kernel, args, kwargs, device, machine, to)
    layout = outcome.results
    result = allocate(layout.size, layout.stride, layout.dtype, layout.nbytes, device, to)
    data = result._data
    follow(machine.scheduler, stream, to)
    _issue(plan, args, kwargs, data, layout, machine, stream)
    follow(machine.scheduler, to, stream)
    return result


def _issue(
    plan: OperatorPlan, args: Any, kwargs: dict[str, Any], data: torch.Tensor, layout: Layout, machine: Machine, stream: StreamState
) -> None:
    """Queue a `_to_copy` into `data`, which has the geometry `layout`."""
    machine.scheduler.issue(
        lambda: _copy_into(data, plan.kernel(*args, **kwargs)),
        (args[0],),
        (data,),
        stream,
        name=plan.name,
        duration=of_copy(layout.nbytes),
    )
