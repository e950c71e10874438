"""One rank's part of a program of collectives.

For: running the steps of `conformance/programs/collective_program.py` and handing back what this rank's tensors then hold. Not for: judging
it; the checks do, with the model.

WORLD and the groups are kept from one program to the next, since making them costs more than using them. Every rank runs the same programs,
so all keep the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from conformance.programs import collective_cells as cells
from conformance.programs.collective_program import Step, inputs
from conformance.rank_programs.simulated_order import order_of_work
from conformance.ranks.rank_main import RankContext
from harness.process_group import normalizer
from harness.process_group.reloader import ProcessGroupReloader

_all_gather_single: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter_single: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

Reading = Callable[[], list[list[Any]]]


class _Kept:
    """WORLD and its groups, as long as WORLD is the same one."""

    world: Any = None
    groups: dict[tuple[str, tuple[int, ...]], Any]

    def group(self, context: RankContext, ranks: Sequence[int], backend: str = "") -> Any:
        """The group of these ranks; None is WORLD's own."""
        context.world()
        if self.world is not dist.group.WORLD:
            self.world, self.groups = dist.group.WORLD, {}
        key = (backend, tuple(ranks))
        if key not in self.groups:
            context.operation(f"new_group({list(ranks)})")
            self.groups[key] = dist.new_group(list(ranks), backend=backend or None, timeout=context.timeout)
        return self.groups[key]


KEPT = _Kept()


def transport_alone(context: RankContext) -> str:
    """The backend of a group that has the transport under test and none for the CPU beside it."""
    kind = context.device.type
    if kind == "cpu":
        return ""
    transport = str(context.accelerator.communication_backend_name)
    return f"{kind}:gloo" if transport == "gloo" else transport


def run(context: RankContext, groups: list[list[int]], steps: list[Step], order: dict[str, Any]) -> list[Any]:
    """Each step's outputs on this rank, None where it is not in the group; `order` is one of `order_of_work`."""
    made = [KEPT.group(context, ranks) for ranks in groups]
    with order_of_work(context, order):
        return run_steps(context, list(zip(groups, made, strict=True)), steps)


def run_steps(context: RankContext, groups: Sequence[tuple[list[int], Any]], steps: Sequence[Step]) -> list[Any]:
    """Run steps on groups that exist; asynchronous ones are waited for as many steps later as they say."""
    found: list[Any] = [None] * len(steps)
    held: list[tuple[int, int, list[Any], Reading]] = []
    for number, step in enumerate(steps):
        ranks, group = groups[step["group"]]
        held = _finish(context, held, number, steps, found)
        if context.rank in ranks:
            context.operation(f"step {number}: {step['name']} on ranks {ranks}")
            works, read = issue(step, ranks, ranks.index(context.rank), group, context.device)
            if step["asynchronous"]:
                held.append((number + step["hold"], number, works, read))
            else:
                found[number] = read()
    _finish(context, held, len(steps) + 9, steps, found)
    return found


def _finish(context: RankContext, held: list[Any], number: int, steps: Sequence[Step], found: list[Any]) -> list[Any]:
    for due, index, works, read in held:
        if due < number:
            context.operation(f"wait for step {index}: {steps[index]['name']}")
            for work in works:
                work.wait()
            found[index] = read()
    return [one for one in held if one[0] >= number]


def issue(step: Step, ranks: list[int], own: int, group: Any, device: torch.device) -> tuple[list[Any], Reading]:
    """Issue a step as the `own`-th rank of its group; its works, and what reads its results."""
    given = inputs(step, len(ranks))[own]
    shape = step["shape"]
    flat = shape or [1]
    dtype, asynchronous, name = step["dtype"], step["asynchronous"], step["name"]
    moved = "reduction" not in step

    def tensor(values: list[Any], extents: list[int]) -> torch.Tensor:
        return cells.tensor_of(values, extents, dtype, device)

    def empty(extents: list[int]) -> torch.Tensor:
        return torch.zeros(extents, dtype=cells.DTYPES[dtype], device=device)

    def reading(tensors: Sequence[torch.Tensor]) -> Reading:
        return lambda: [cells.cells_of(one, moved) for one in tensors]

    keywords: dict[str, Any] = {"group": group, "async_op": asynchronous}
    if not moved:
        keywords["op"] = getattr(dist.ReduceOp, step["reduction"])
    root = ranks[step["root"]] if "root" in step else -1
    work: Any
    if name in ("send", "batch"):
        return _exchange(step, ranks, own, group, [tensor(values, shape) for values in given], empty, reading)
    if name in ("all_reduce", "broadcast", "reduce"):
        out = [tensor(given[0], shape)]
        where = {} if name == "all_reduce" else {"src": root} if name == "broadcast" else {"dst": root}
        work = getattr(dist, name)(out[0], **where, **keywords)
    elif name == "all_gather":
        out = [empty(shape) for _ in ranks]
        work = dist.all_gather(out, tensor(given[0], shape), **keywords)
    elif name == "all_gather_into_tensor":
        out = [empty([len(ranks) * flat[0], *flat[1:]])]
        work = _all_gather_single(out[0], tensor(given[0], flat), **keywords)
    elif name == "reduce_scatter":
        out = [empty(shape)]
        work = dist.reduce_scatter(out[0], [tensor(values, shape) for values in given], **keywords)
    elif name == "reduce_scatter_tensor":
        out = [empty(flat)]
        work = _reduce_scatter_single(out[0], tensor(given[0], [len(ranks) * flat[0], *flat[1:]]), **keywords)
    elif name == "all_to_all":
        out = [empty(shape) for _ in ranks]
        work = dist.all_to_all(out, [tensor(values, shape) for values in given], **keywords)
    elif name == "all_to_all_single":
        sent, received = step["rows"][own], [row[own] for row in step["rows"]]
        out = [empty([sum(received), *flat])]
        splits: list[Any] = [received, sent] if step["says_splits"] else []
        work = dist.all_to_all_single(out[0], tensor(given[0], [sum(sent), *flat]), *splits, **keywords)
    elif name == "gather":
        out = [empty(shape) for _ in ranks] if step["root"] == own else []
        work = dist.gather(tensor(given[0], shape), out or None, dst=root, **keywords)
    else:
        out = [empty(shape)]
        values = [tensor(one, shape) for one in given] if step["root"] == own else None
        work = dist.scatter(out[0], values, src=root, **keywords)
    return [] if work is None else [work], reading(out)


def _exchange(
    step: Step, ranks: list[int], own: int, group: Any, sent: list[torch.Tensor], empty: Any, reading: Any
) -> tuple[list[Any], Reading]:
    """The messages of a point-to-point step, in order."""
    received, operations = [], []
    outgoing = iter(sent)
    for sender, receiver in step["messages"]:
        if own == sender:
            operations.append(dist.P2POp(dist.isend, next(outgoing), ranks[receiver], group=group))
        elif own == receiver:
            received.append(empty(step["shape"]))
            operations.append(dist.P2POp(dist.irecv, received[-1], ranks[sender], group=group))
    works: list[Any] = []
    if step["name"] == "batch" and operations:
        works = dist.batch_isend_irecv(operations)
    for operation in operations if step["name"] == "send" else ():
        if step["asynchronous"]:
            works.append(operation.op(operation.tensor, operation.peer, group=group))
        else:
            blocking = dist.send if operation.op is dist.isend else dist.recv
            blocking(operation.tensor, operation.peer, group=group)
    if step["asynchronous"]:
        return works, reading(received)
    for work in works:
        work.wait()
    return [], reading(received)


def objects(context: RankContext, ranks: list[int], steps: list[dict[str, Any]], alone: bool) -> list[Any]:
    """What each collective of objects leaves with this rank; `alone` keeps them off the CPU's transport."""
    group = KEPT.group(context, ranks, transport_alone(context) if alone else "")
    if context.rank not in ranks:
        return []
    return [_objects(step, ranks, ranks.index(context.rank), group) for step in steps]


def _objects(step: dict[str, Any], ranks: list[int], own: int, group: Any) -> Any:
    given, root = step["given"][own], ranks[step["root"]]
    everything: list[Any] = [None] * len(ranks)
    if step["name"] == "all_gather_object":
        dist.all_gather_object(everything, given, group=group)
        return everything
    if step["name"] == "gather_object":
        dist.gather_object(given, everything if own == step["root"] else None, dst=root, group=group)
        return everything if own == step["root"] else None
    if step["name"] == "broadcast_object_list":
        carried = [given]
        dist.broadcast_object_list(carried, src=root, group=group)
        return carried[0]
    received: list[Any] = [None]
    dist.scatter_object_list(received, given if own == step["root"] else None, src=root, group=group)
    return received[0]


def barrier(context: RankContext, ranks: list[int], late: int, asynchronous: bool) -> bool:
    """Whether this rank left the barrier only after the late one had come to it, which waited for all others to be there first."""
    group = KEPT.group(context, ranks, transport_alone(context))
    store = context.new_store()
    if context.rank not in ranks:
        return True
    own = ranks.index(context.rank)
    if own == late:
        for other in range(len(ranks)):
            if other != late:
                store.wait([f"at the barrier: {other}"], context.timeout)
        store.set("the late one comes", "")
        store.get("the late one comes")  # `set` returns before the server has it
    else:
        store.set(f"at the barrier: {own}", "")
    work = dist.barrier(group=group, async_op=asynchronous)
    if work is not None:
        work.wait()
    return bool(store.check(["the late one comes"]))


def reloading(context: RankContext, groups: list[list[int]], steps: list[Step], order: dict[str, Any]) -> list[Any]:
    """As `run`, with groups that a step named `reload` destroys and rebuilds."""
    if dist.is_initialized():
        dist.destroy_process_group()
    with order_of_work(context, order):
        return _reloading(context, groups, steps)


def _reloading(context: RankContext, groups: list[list[int]], steps: list[Step]) -> list[Any]:
    reloader = ProcessGroupReloader(None if context.device.type == "cpu" else context.accelerator)
    context.operation("init_process_group")
    reloader.init_process_group(
        context.backend, store=context.new_store(), rank=context.rank, world_size=context.size, timeout=context.timeout
    )
    handles = [reloader.new_group(ranks, timeout=context.timeout) for ranks in groups]
    found: list[Any] = []
    for number, generation in enumerate(_generations(steps)):
        if number:
            context.operation("destroy")
            reloader.destroy_process_groups()
            context.operation("reload")
            reloader.reload_process_groups()
            found.append(None)
        found += run_steps(context, list(zip(groups, handles, strict=True)), generation)
    context.operation("the end of the program")
    dist.barrier()  # before PyTorch 2.13 destroying gloo waits for its threads, which may not have let go of the last tensors yet
    dist.destroy_process_group()
    return found


def _generations(steps: Sequence[Step]) -> list[list[Step]]:
    found: list[list[Step]] = [[]]
    for step in steps:
        if step["name"] == "reload":
            found.append([])
        else:
            found[-1].append(step)
    return found


def mixed(context: RankContext, ranks: list[int], steps: list[Step], host: list[bool]) -> dict[str, Any]:
    """Steps on one group that has a transport for the host's tensors and one for the device's; the transports and the results."""
    kind, transport = context.device.type, context.accelerator.communication_backend_name
    backend = normalizer.weight_update_backend(accelerator=context.accelerator)
    if backend == transport:  # of the device alone: a mixed group is asked for by name
        backend = f"cpu:gloo,{kind}:{transport}"
    group = KEPT.group(context, ranks, backend)
    if context.rank not in ranks:
        return {"results": [None] * len(steps)}
    used = {name: group._get_backend(torch.device(name)) for name in ("cpu", kind)}
    found = []
    for number, (step, on_host) in enumerate(zip(steps, host, strict=True)):
        context.operation(f"step {number}: {step['name']} of {'host' if on_host else 'device'} tensors")
        where = torch.device("cpu") if on_host else context.device
        works, read = issue(step, ranks, ranks.index(context.rank), group, where)
        for work in works:
            work.wait()
        found.append(read())
    config = dist.get_backend_config(group)
    return {"results": found, "config": config, "backend": backend, "are_two": used["cpu"] is not used[kind]}


def ordered(context: RankContext, rounds: list[dict[str, Any]], order: dict[str, Any]) -> list[Any]:
    """Asynchronous sums issued behind work of one stream, and waited for on another; what that stream then reads.

    On a simulated device work runs in the `order`, one of `order_of_work`. On a real one a long kernel comes first.
    """
    group = KEPT.group(context, list(range(context.size)), transport_alone(context))
    with order_of_work(context, order) as is_simulated:
        streams = [context.accelerator.new_stream(context.own_device.index) for _ in range(3)]
        return [_sum_between_streams(context, group, streams, one, busy=not is_simulated) for one in rounds]


def _sum_between_streams(context: RankContext, group: Any, streams: list[Any], drawn: dict[str, Any], *, busy: bool) -> list[int]:
    accelerator = context.accelerator
    index = context.own_device.index
    context.operation(f"a sum issued on stream {drawn['issue']} and waited for on stream {drawn['wait']}")
    values = torch.zeros(64, dtype=torch.int64, device=context.device)
    accelerator.synchronize(index)
    with accelerator.stream(streams[drawn["issue"]]):
        if busy:
            _keep_busy(context.device)
        for _ in range(drawn["additions"]):
            values += context.rank + 1
        work: Any = dist.all_reduce(values, group=group, async_op=True)
    with accelerator.stream(streams[drawn["wait"]]):
        work.wait()
        copy = values * 1
        values.zero_()
        found = sorted({int(value) for value in copy.cpu().tolist()})
    accelerator.synchronize(index)
    return found


def _keep_busy(device: torch.device) -> None:
    busy = torch.ones(512, 512, device=device)
    for _ in range(20):
        busy = busy @ busy * 0.0
