"""The transport of a simulated device: a backend of `torch.distributed` whose ranks are real processes.

For: registering the persona's transport (`mccl`, `hccl`, …), and the table from PyTorch's collective operators to what they do. Not for:
what collectives move (`collective_kernels.py`) or when (`collective_work.py`).

Underneath is gloo on the host. A group made with this transport alone has none for CPU tensors, which PyTorch then refuses, as with a
vendor's.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NoReturn

import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from fakes import collective_kernels as kernels
from fakes import collective_work
from fakes.collective_kernels import Collective
from fakes.machine import Machine
from fakes.operator_plan import OperatorPlan
from fakes.patching import Patches

_gloo_devices: dict[int, Any] = {}
"""By process: a forked child has the device of its parent, and not its thread."""
_REGISTRIES = ("_plugins", "backend_type_map", "backend_capability", "default_device_backend_map")


def apply(patches: Patches, machine: Machine) -> None:
    """Make the persona's transport known to PyTorch; undone with the other patches. Groups that exist by then are left alone."""
    persona = machine.persona
    patches.on_undo(_gloo_devices.clear)
    backend: Any = dist.Backend
    for name in _REGISTRIES:
        _restore(patches, getattr(backend, name))
    listed = list(backend.backend_list)
    patches.on_undo(lambda: backend.backend_list.__setitem__(slice(None), listed))
    if persona.transport == "gloo":
        # PyTorch's own transport learns of one more device, as `Backend.register_backend` does for a new one.
        backend.default_device_backend_map[persona.device_type] = "gloo"
        backend.backend_capability["gloo"] = [*backend.backend_capability["gloo"], persona.device_type]
        return
    name = persona.transport.upper()
    if not hasattr(backend, name):
        patches.set(backend, name, persona.transport)
    backend.register_backend(persona.transport, _create, extended_api=True, devices=[persona.device_type])
    _do_not_split(patches, persona.transport)


def _do_not_split(patches: Patches, transport: str) -> None:
    """Have the groups of a WORLD that is bound to a device made anew: PyTorch takes gloo, underneath, for a transport that splits."""
    original = dist.distributed_c10d._get_split_source

    def split_source(group: Any) -> Any:
        source = original(group)
        return source if hasattr(source, "perform_nocolor_split") else None

    def split_group(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise RuntimeError(f"split_group: {transport} does not split groups, which few transports do; use new_group(ranks)")

    patches.set(dist.distributed_c10d, "_get_split_source", split_source)
    for owner in (dist, dist.distributed_c10d):
        patches.set(owner, "split_group", split_group)


def _restore(patches: Patches, mapping: dict[str, Any]) -> None:
    before = dict(mapping)

    def undo() -> None:
        mapping.clear()
        mapping.update(before)

    patches.on_undo(undo)


def _gloo_device() -> Any:
    """What gloo calls a device, one for all groups of this process: each has a thread that wakes a hundred times a second."""
    if os.getpid() not in _gloo_devices:
        _gloo_devices[os.getpid()] = c10d.ProcessGroupGloo.create_default_device()
    return _gloo_devices[os.getpid()]


def _create(group: Any, options: Any) -> Any:
    return create_transport(group, options)  # looked up now, so that a fault in it takes effect


def create_transport(group: Any, options: Any) -> Any:
    """One group's transport; PyTorch calls this for every group that names it.

    `options` are the vendor's; a simulated device has none to heed.
    """
    del options
    gloo: Any = c10d.ProcessGroupGloo
    chosen = gloo._Options()
    chosen._timeout = group.timeout
    chosen._devices = [_gloo_device()]
    chosen._threads = 2
    transport = gloo(group.store, group.group_rank, group.group_size, chosen)
    transport.options.global_ranks_in_group = group.global_ranks_in_group
    transport.options.group_name = group.group_id
    if c10d.get_debug_level() is not c10d.DebugLevel.DETAIL:
        return transport
    wrapped: Any = dist.distributed_c10d._create_process_group_wrapper(
        wrapped_pg=transport,
        store_prefix=group.group_id,
        store=group.store,
        rank=group.group_rank,
        world_size=group.group_size,
        timeout=group.timeout,
    )
    return wrapped


def run_collective(plan: OperatorPlan, args: Any, kwargs: Any) -> Any:
    """Run a `c10d` operator that has device tensors among its arguments.

    Raises:
        ValueError, TypeError: misuse that this rank can see; nothing was moved.
        NotImplementedError: a simulated transport does not have the operator.
    """
    named = _named_arguments(plan, args, kwargs)
    group = dist.ProcessGroup.unbox(named["process_group"])
    operation = OPERATIONS.get(plan.name)
    if operation is None:
        raise NotImplementedError(f"a simulated transport has no {plan.name}")
    work = collective_work.issue_collective(operation(group, named), group)
    results = [named[argument] for argument in _RETURNED.get(plan.name, ())]
    return (*results, work.boxed()) if results else work.boxed()


def _named_arguments(plan: OperatorPlan, args: Any, kwargs: Any) -> dict[str, Any]:
    named = {}
    for position, argument in enumerate(plan.operator._schema.arguments):
        if position < len(args):
            named[argument.name] = args[position]
        elif kwargs and argument.name in kwargs:
            named[argument.name] = kwargs[argument.name]
        else:
            named[argument.name] = argument.default_value
    return named


def _timeout(named: dict[str, Any]) -> int:
    return int(named.get("timeout", -1))


OPERATIONS: dict[str, Callable[[Any, dict[str, Any]], Collective]] = {
    "c10d::broadcast_": lambda g, a: kernels.broadcast(g, a["tensors"], a["root_rank"], a["root_tensor"], _timeout(a)),
    "c10d::allreduce_": lambda g, a: kernels.all_reduce(g, a["tensors"], a["reduce_op"], _timeout(a)),
    "c10d::allreduce_coalesced_": lambda g, a: kernels.all_reduce(g, a["tensors"], a["reduce_op"], _timeout(a)),
    "c10d::reduce_": lambda g, a: kernels.reduce(g, a["tensors"], a["reduce_op"], a["root_rank"], a["root_tensor"], _timeout(a)),
    "c10d::allgather_": lambda g, a: kernels.all_gather(g, a["output_tensors"], a["input_tensors"], _timeout(a)),
    "c10d::allgather_coalesced_": lambda g, a: kernels.all_gather_coalesced(g, a["output_lists"], a["input_list"], _timeout(a)),
    "c10d::_allgather_base_": lambda g, a: kernels.all_gather_into(g, [a["output_tensor"]], [a["input_tensor"]], _timeout(a)),
    "c10d::allgather_into_tensor_coalesced_": lambda g, a: kernels.all_gather_into(g, a["outputs"], a["inputs"], _timeout(a)),
    "c10d::reduce_scatter_": lambda g, a: kernels.reduce_scatter(
        g, a["output_tensors"], a["input_tensors"], a["reduce_op"], _timeout(a)
    ),
    "c10d::_reduce_scatter_base_": lambda g, a: kernels.reduce_scatter_tensor(
        g, [a["output_tensor"]], [a["input_tensor"]], a["reduce_op"], _timeout(a)
    ),
    "c10d::reduce_scatter_tensor_coalesced_": lambda g, a: kernels.reduce_scatter_tensor(
        g, a["outputs"], a["inputs"], a["reduce_op"], _timeout(a)
    ),
    "c10d::alltoall_base_": lambda g, a: kernels.all_to_all_single(
        g, a["output"], a["input"], a["output_split_sizes"], a["input_split_sizes"], _timeout(a)
    ),
    "c10d::alltoall_": lambda g, a: kernels.all_to_all(g, a["output_tensors"], a["input_tensors"], _timeout(a)),
    "c10d::gather_": lambda g, a: kernels.gather(g, a["output_tensors"], a["input_tensors"], a["root_rank"], _timeout(a)),
    "c10d::scatter_": lambda g, a: kernels.scatter(g, a["output_tensors"], a["input_tensors"], a["root_rank"], _timeout(a)),
    "c10d::send": lambda g, a: kernels.send(g, a["tensors"], a["dst"], a["tag"]),
    "c10d::recv_": lambda g, a: kernels.receive(g, a["tensors"], a["src"], a["tag"]),
    "c10d::recv_any_source_": lambda g, a: kernels.receive(g, a["tensors"], None, a["tag"]),
    "c10d::barrier": lambda g, a: kernels.barrier(g, a["tensor"], a["device_ids"], _timeout(a)),
}
"""What each of PyTorch's collective operators does, from its arguments by name."""
_RETURNED: dict[str, tuple[str, ...]] = {
    "c10d::broadcast_": ("tensors",),
    "c10d::allreduce_": ("tensors",),
    "c10d::allgather_": ("output_tensors",),
    "c10d::_allgather_base_": ("output_tensor",),
    "c10d::reduce_scatter_": ("output_tensors",),
    "c10d::_reduce_scatter_base_": ("output_tensor",),
    "c10d::alltoall_": ("output_tensors",),
    "c10d::scatter_": ("output_tensors",),
}
"""The arguments that an operator returns, before its work."""
