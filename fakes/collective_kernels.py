"""What each collective moves between ranks, over gloo on host buffers.

For: one function a `c10d` operator, which checks its arguments as a vendor's transport does and returns a `Collective`. Not for: when it
runs (`collective_work.py`) or which transports exist (`transport.py`).

Everything is staged: at its start a collective takes a copy of what it reads and hands that to gloo; its results wait in buffers of
their own until they are delivered to the tensors. So what a program sees before that never depends on how fast other ranks are. What is
not reduced travels as bytes, so that every dtype of the persona can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d

from fakes.collective_checks import checked, refuse_reduction, require_count, require_elements, require_equal_dtypes, split_bytes
from fakes.collective_reductions import finished, gloo_reduction, reduction_name, values_to_reduce
from fakes.tensor import DeviceTensor, host_tensor

_UNSET = -1
Delivery = Callable[[], None]


@dataclass(frozen=True)
class Collective:
    """One call. `start(transport)` takes the inputs, begins the transfer and returns (gloo's works, what delivers the results).

    `reads` and `writes` are the device tensors that it touches. `is_point_to_point`: it does not wait its turn among the group's
    collectives. `blocks_host`: the caller's wait lasts until the device has come so far.
    """

    name: str
    reads: tuple[DeviceTensor, ...]
    writes: tuple[DeviceTensor, ...]
    start: Callable[[Any], tuple[list[Any], Delivery]]
    is_point_to_point: bool = False
    blocks_host: bool = False

    @property
    def tensors(self) -> tuple[DeviceTensor, ...]:
        """Everything that it touches."""
        return (*self.reads, *self.writes)


def options(kind: Any, timeout: int, **values: Any) -> Any:
    """Options of a transport's call; `timeout` in milliseconds, -1 for the group's own."""
    made = kind()
    for name, value in values.items():
        setattr(made, name, value)
    if timeout != _UNSET:
        made.timeout = timedelta(milliseconds=timeout)
    return made


# Host buffers -----------------------------------------------------------------------------------------------------------------


def taken(tensor: DeviceTensor) -> torch.Tensor:
    """A copy of a tensor's bytes, `[nbytes]` uint8."""
    return host_tensor(tensor).reshape(-1).view(torch.uint8).clone()


def room(tensor: DeviceTensor) -> torch.Tensor:
    """Where a tensor's result arrives, `[nbytes]` uint8."""
    return torch.empty(tensor.numel() * tensor.dtype.itemsize, dtype=torch.uint8)


def deliver(tensor: DeviceTensor, staged: torch.Tensor) -> None:
    """Write a result, bytes or values of the tensor's dtype, to a contiguous tensor."""
    target = host_tensor(tensor).view(-1)
    target.view(torch.uint8).copy_(staged.view(torch.uint8).view(-1))


def _delivering(pairs: Sequence[tuple[DeviceTensor, torch.Tensor]]) -> Delivery:
    def delivery() -> None:
        for tensor, staged in pairs:
            deliver(tensor, staged)

    return delivery


def _nothing() -> None:
    pass


# Collectives ------------------------------------------------------------------------------------------------------------------


def broadcast(group: Any, tensors: Any, root: int, root_tensor: int, timeout: int) -> Collective:
    """`c10d::broadcast_`"""
    del root_tensor
    (tensor,) = checked("broadcast", tensors)
    is_root = group.rank() == root

    def start(transport: Any) -> tuple[list[Any], Delivery]:
        staged = taken(tensor) if is_root else room(tensor)
        work = transport.broadcast([staged], options(c10d.BroadcastOptions, timeout, rootRank=root, rootTensor=0))
        return [work], _nothing if is_root else _delivering([(tensor, staged)])

    return Collective("broadcast", (tensor,) if is_root else (), () if is_root else (tensor,), start)


def all_reduce(group: Any, tensors: Any, reduce_op: Any, timeout: int) -> Collective:
    """`c10d::allreduce_` and `c10d::allreduce_coalesced_`"""
    name = reduction_name(reduce_op)
    all_tensors = checked("all_reduce", tensors, dtypes=refuse_reduction(name))

    def start(transport: Any) -> tuple[list[Any], Delivery]:
        works, staged = [], [values_to_reduce(tensor) for tensor in all_tensors]
        for tensor, values in zip(all_tensors, staged, strict=True):
            operation = gloo_reduction(name, tensor.dtype)
            works.append(transport.allreduce([values], options(c10d.AllreduceOptions, timeout, reduceOp=operation)))

        def delivery() -> None:
            for tensor, values in zip(all_tensors, staged, strict=True):
                deliver(tensor, finished(values, name, group.size()).to(values.dtype))

        return works, delivery

    return Collective("all_reduce", all_tensors, all_tensors, start)


def reduce(group: Any, tensors: Any, reduce_op: Any, root: int, root_tensor: int, timeout: int) -> Collective:
    """`c10d::reduce_`"""
    del root_tensor
    name = reduction_name(reduce_op)
    (tensor,) = checked("reduce", tensors, dtypes=refuse_reduction(name))
    is_root = group.rank() == root

    def start(transport: Any) -> tuple[list[Any], Delivery]:
        values = values_to_reduce(tensor)
        operation = gloo_reduction(name, tensor.dtype)
        work = transport.reduce([values], options(c10d.ReduceOptions, timeout, reduceOp=operation, rootRank=root, rootTensor=0))

        def delivery() -> None:
            deliver(tensor, finished(values, name, group.size()).to(values.dtype))

        return [work], delivery if is_root else _nothing

    return Collective("reduce", (tensor,), (tensor,) if is_root else (), start)


def all_gather(group: Any, outputs: Any, inputs: Any, timeout: int) -> Collective:
    """`c10d::allgather_` (lists) and its coalesced form: one list of outputs an input."""
    sources = checked("all_gather", inputs)
    targets = [checked("all_gather", listed) for listed in outputs]
    require_count("all_gather", "lists of outputs", len(targets), len(sources))
    for source, listed in zip(sources, targets, strict=True):
        require_count("all_gather", "outputs", len(listed), group.size())
        require_equal_dtypes("all_gather", (source, *listed))
        require_elements("all_gather", listed[group.rank()], source.numel())

    def start(transport: Any) -> tuple[list[Any], Delivery]:
        works, pairs = [], []
        for source, listed in zip(sources, targets, strict=True):
            parts = [room(target) for target in listed]
            works += gather_parts(transport, parts, taken(source), group.rank(), timeout)
            pairs += list(zip(listed, parts, strict=True))
        return works, _delivering(pairs)

    return Collective("all_gather", sources, tuple(one for listed in targets for one in listed), start)


def gather_parts(transport: Any, parts: list[torch.Tensor], own: torch.Tensor, rank: int, timeout: int) -> list[Any]:
    """Fill the parts of all ranks; one broadcast a rank where they differ in size, as NCCL does, which gloo's gathering cannot."""
    if len({part.numel() for part in parts}) == 1:
        return [transport.allgather([parts], [own], options(c10d.AllgatherOptions, timeout))]
    parts[rank].copy_(own)
    return [
        transport.broadcast([part], options(c10d.BroadcastOptions, timeout, rootRank=root, rootTensor=0))
        for root, part in enumerate(parts)
    ]


def all_gather_coalesced(group: Any, outputs: Any, inputs: Any, timeout: int) -> Collective:
    """`c10d::allgather_coalesced_`: one list of outputs a rank."""
    require_count("all_gather_coalesced", "lists of outputs", len(outputs), group.size())
    return all_gather(group, [list(listed) for listed in zip(*outputs, strict=True)], inputs, timeout)


def all_gather_into(group: Any, outputs: Any, inputs: Any, timeout: int) -> Collective:
    """`c10d::_allgather_base_` and `c10d::allgather_into_tensor_coalesced_`"""
    sources, targets = checked("all_gather_into_tensor", inputs), checked("all_gather_into_tensor", outputs)
    require_count("all_gather_into_tensor", "outputs", len(targets), len(sources))
    for source, target in zip(sources, targets, strict=True):
        require_equal_dtypes("all_gather_into_tensor", (source, target))
        require_elements("all_gather_into_tensor", target, source.numel() * group.size())

    def start(transport: Any) -> tuple[list[Any], Delivery]:
        works, pairs = [], []
        for source, target in zip(sources, targets, strict=True):
            own = taken(source)
            whole = own.new_empty(group.size(), own.numel())
            works.append(transport.allgather([list(whole)], [own], options(c10d.AllgatherOptions, timeout)))
            pairs.append((target, whole))
        return works, _delivering(pairs)

    return Collective("all_gather_into_tensor", sources, targets, start)


def reduce_scatter(group: Any, outputs: Any, inputs: Any, reduce_op: Any, timeout: int) -> Collective:
    """`c10d::reduce_scatter_`: one list of inputs an output."""
    name = reduction_name(reduce_op)
    dtypes = refuse_reduction(name)
    targets = checked("reduce_scatter", outputs, dtypes=dtypes)
    sources = [checked("reduce_scatter", listed, dtypes=dtypes) for listed in inputs]
    require_count("reduce_scatter", "lists of inputs", len(sources), len(targets))
    for target, listed in zip(targets, sources, strict=True):
        require_count("reduce_scatter", "inputs", len(listed), group.size())
        require_equal_dtypes("reduce_scatter", (target, *listed))
        require_elements("reduce_scatter", target, listed[group.rank()].numel())
    sizes = [[source.numel() for source in listed] for listed in sources]
    return _reducing_and_cutting("reduce_scatter", group, targets, sources, sizes, name, timeout)


def reduce_scatter_tensor(group: Any, outputs: Any, inputs: Any, reduce_op: Any, timeout: int) -> Collective:
    """`c10d::_reduce_scatter_base_` and `c10d::reduce_scatter_tensor_coalesced_`"""
    name = reduction_name(reduce_op)
    dtypes = refuse_reduction(name)
    targets = checked("reduce_scatter_tensor", outputs, dtypes=dtypes)
    sources = checked("reduce_scatter_tensor", inputs, dtypes=dtypes)
    require_count("reduce_scatter_tensor", "inputs", len(sources), len(targets))
    for target, source in zip(targets, sources, strict=True):
        require_equal_dtypes("reduce_scatter_tensor", (target, source))
        require_elements("reduce_scatter_tensor", source, target.numel() * group.size())
    sizes = [[target.numel()] * group.size() for target in targets]
    return _reducing_and_cutting("reduce_scatter_tensor", group, targets, [(source,) for source in sources], sizes, name, timeout)


def slice_of_rank(values: torch.Tensor, sizes: Sequence[int], rank: int) -> torch.Tensor:
    """A rank's part of a flat tensor; `sizes` are the numbers of elements of all parts."""
    start = sum(sizes[:rank])
    return values[start : start + sizes[rank]]


def _reducing_and_cutting(
    label: str,
    group: Any,
    targets: tuple[DeviceTensor, ...],
    sources: Sequence[tuple[DeviceTensor, ...]],
    all_sizes: Sequence[list[int]],
    name: str,
    timeout: int,
) -> Collective:
    """`all_sizes` are the numbers of elements that each rank gets, for every target."""

    def start(transport: Any) -> tuple[list[Any], Delivery]:
        works, staged = [], []
        for target, listed in zip(targets, sources, strict=True):
            values = torch.cat([values_to_reduce(source) for source in listed])
            operation = gloo_reduction(name, target.dtype)
            works.append(transport.allreduce([values], options(c10d.AllreduceOptions, timeout, reduceOp=operation)))
            staged.append(values)

        def delivery() -> None:
            for target, values, sizes in zip(targets, staged, all_sizes, strict=True):
                own = slice_of_rank(values, sizes, group.rank())
                deliver(target, finished(own, name, group.size()).to(values.dtype).contiguous())

        return works, delivery

    return Collective(label, tuple(one for listed in sources for one in listed), targets, start)


def all_to_all_single(
    group: Any, output: Any, source: Any, output_splits: Sequence[int], input_splits: Sequence[int], timeout: int
) -> Collective:
    """`c10d::alltoall_base_`; splits count rows, none means equal ones."""
    (target,), (source,) = checked("all_to_all_single", [output]), checked("all_to_all_single", [source])
    require_equal_dtypes("all_to_all_single", (target, source))
    sent = split_bytes("all_to_all_single", source, input_splits, group.size())
    received = split_bytes("all_to_all_single", target, output_splits, group.size())

    def start(transport: Any) -> tuple[list[Any], Delivery]:
        whole = room(target)
        return [exchange(transport, whole, taken(source), received, sent, timeout)], _delivering([(target, whole)])

    return Collective("all_to_all_single", (source,), (target,), start)


def exchange(transport: Any, output: torch.Tensor, source: torch.Tensor, received: list[int], sent: list[int], timeout: int) -> Any:
    """Send each rank its bytes."""
    return transport.alltoall_base(output, source, received, sent, options(c10d.AllToAllOptions, timeout))


def all_to_all(group: Any, outputs: Any, inputs: Any, timeout: int) -> Collective:
    """`c10d::alltoall_`"""
    targets, sources = checked("all_to_all", outputs), checked("all_to_all", inputs)
    for what, listed in (("outputs", targets), ("inputs", sources)):
        require_count("all_to_all", what, len(listed), group.size())
    require_equal_dtypes("all_to_all", (*targets, *sources))

    def start(transport: Any) -> tuple[list[Any], Delivery]:
        parts = [room(target) for target in targets]
        sent = [taken(source) for source in sources]
        whole = torch.cat(parts)
        received = [part.numel() for part in parts]
        work = exchange(transport, whole, torch.cat(sent), received, [part.numel() for part in sent], timeout)
        return [work], _delivering(list(zip(targets, torch.split(whole, received), strict=True)))

    return Collective("all_to_all", sources, targets, start)


def gather(group: Any, outputs: Any, inputs: Any, root: int, timeout: int) -> Collective:
    """`c10d::gather_`; only the root has outputs."""
    (source,) = checked("gather", inputs)
    is_root = group.rank() == root
    targets = checked("gather", outputs[0]) if is_root and outputs else ()
    if is_root:
        require_count("gather", "outputs", len(targets), group.size())
        require_equal_dtypes("gather", (source, *targets))
        for target in targets:
            require_elements("gather", target, source.numel())

    def start(transport: Any) -> tuple[list[Any], Delivery]:
        parts = [room(target) for target in targets]
        work = transport.gather([parts] if is_root else [], [taken(source)], options(c10d.GatherOptions, timeout, rootRank=root))
        return [work], _delivering(list(zip(targets, parts, strict=True)))

    return Collective("gather", (source,), targets, start)


def scatter(group: Any, outputs: Any, inputs: Any, root: int, timeout: int) -> Collective:
    """`c10d::scatter_`; only the root has inputs."""
    (target,) = checked("scatter", outputs)
    is_root = group.rank() == root
    sources = checked("scatter", inputs[0]) if is_root and inputs else ()
    if is_root:
        require_count("scatter", "inputs", len(sources), group.size())
        require_equal_dtypes("scatter", (target, *sources))
        for source in sources:
            require_elements("scatter", source, target.numel())

    def start(transport: Any) -> tuple[list[Any], Delivery]:
        part = room(target)
        parts = [taken(source) for source in sources]
        work = transport.scatter([part], [parts] if is_root else [], options(c10d.ScatterOptions, timeout, rootRank=root))
        return [work], _delivering([(target, part)])

    return Collective("scatter", sources, (target,), start)


def send(group: Any, tensors: Any, destination: int, tag: int) -> Collective:
    """`c10d::send`"""
    del group
    (tensor,) = checked("send", tensors)

    def start(transport: Any) -> tuple[list[Any], Delivery]:
        return [transport.send([taken(tensor)], destination, tag)], _nothing

    return Collective(f"send to {destination}", (tensor,), (), start, is_point_to_point=True)


def receive(group: Any, tensors: Any, source: int | None, tag: int) -> Collective:
    """`c10d::recv_`, and `c10d::recv_any_source_` where the source is None."""
    del group
    (tensor,) = checked("recv", tensors)

    def start(transport: Any) -> tuple[list[Any], Delivery]:
        staged = room(tensor)
        work = transport.recv_anysource([staged], tag) if source is None else transport.recv([staged], source, tag)
        return [work], _delivering([(tensor, staged)])

    return Collective(f"recv from {source}", (), (tensor,), start, is_point_to_point=True)


def barrier(group: Any, tensor: Any, device_ids: Any, timeout: int) -> Collective:
    """`c10d::barrier`; the tensor only says which device waits."""
    del group, device_ids

    def start(transport: Any) -> tuple[list[Any], Delivery]:
        return [transport.barrier(options(c10d.BarrierOptions, timeout))], _nothing

    return Collective("barrier", (tensor,), (tensor,), start, blocks_host=True)
