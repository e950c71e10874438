"""What single ranks do in the tests of the simulated transport."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from conformance.rank_programs.simulated_order import order_of_work
from conformance.ranks.rank_main import RankContext


def _tensor(context: RankContext, *values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32, device=context.own_device)


def data_parallel(context: RankContext) -> Any:
    """The gradient after a backward with another input on each rank."""
    context.world()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1, bias=False).to(context.own_device))
    for _ in range(2):
        model.zero_grad()
        model(torch.full((1, 2), float(context.rank), device=context.own_device)).sum().backward()
    return model.module.weight.grad.tolist()


def coalesced(context: RankContext) -> Any:
    """Two sums in one call, and a gathering in one call."""
    context.world()
    first, second = _tensor(context, context.rank), _tensor(context, 2 * context.rank)
    with dist._coalescing_manager(async_ops=True) as works:
        dist.all_reduce(first)
        dist.all_reduce(second)
    works.wait()
    gathered = torch.zeros(3, device=context.own_device)
    with dist._coalescing_manager():
        dist.distributed_c10d.all_gather_into_tensor(gathered, _tensor(context, context.rank))
    return [first.tolist(), second.tolist(), gathered.tolist()]


def crossing(context: RankContext) -> Any:
    """Each sends to the next before anyone receives."""
    context.world()
    received = _tensor(context, -1)
    works = [
        dist.isend(_tensor(context, context.rank), (context.rank + 1) % 3),
        dist.irecv(received, (context.rank - 1) % 3),
    ]
    for work in reversed(works):
        assert work is not None
        work.wait()
    return received.tolist()


def disagreement(context: RankContext, schedule: str) -> list[Any]:
    """The error of a collective for which ranks bring different shapes, and what the device computes afterwards."""
    context.world()
    before = c10d.get_debug_level()
    c10d.set_debug_level(c10d.DebugLevel.DETAIL)
    text = "nothing was raised"
    try:
        with order_of_work(context, {"schedule": schedule, "seed": 0}):
            group = dist.new_group([0, 1, 2], backend="mccl", timeout=timedelta(seconds=3))
            try:
                dist.all_reduce(torch.ones(2 + context.rank, device=context.own_device), group=group)
            except RuntimeError as error:
                text = str(error)
            return [text, (_tensor(context, 1) + 1).tolist()]
    finally:
        c10d.set_debug_level(before)


def absent(context: RankContext) -> str:
    """How waiting for a rank that does not come ends."""
    context.world()
    group = dist.new_group([0, 1, 2], backend="mccl", timeout=timedelta(seconds=1))
    if context.rank == 2:
        return "stayed away"
    try:
        dist.all_reduce(_tensor(context, 1), group=group)
    except RuntimeError as error:
        return type(error).__name__
    return "nothing was raised"


def chained(context: RankContext) -> Any:
    """Three sums of one tensor, waited for last first."""
    context.world()
    tensor = _tensor(context, 1)
    works: list[Any] = [dist.all_reduce(tensor, async_op=True) for _ in range(3)]
    works[-1].wait()
    return tensor.tolist()


def any_source(context: RankContext) -> Any:
    """Who sent a message that may come from anyone, and what it was."""
    context.world()
    if context.rank == 2:
        dist.send(_tensor(context, 7), 1)
    if context.rank != 1:
        return None
    received = _tensor(context, 0)
    return [dist.recv(received), *received.tolist()]


def unequal_parts(context: RankContext, schedule: str, asynchronous: bool) -> Any:
    """Gathered parts of one, none and three elements, and the own part of their sums."""
    context.world()
    sizes = [1, 0, 3]
    with order_of_work(context, {"schedule": schedule, "seed": 0}):
        gathered = [torch.full((size,), -1.0, device=context.own_device) for size in sizes]
        own = torch.full((sizes[context.rank],), float(context.rank), device=context.own_device)
        summed = torch.zeros_like(own)
        parts = [torch.arange(float(size), device=context.own_device) for size in sizes]
        works: list[Any] = [
            dist.all_gather(gathered, own, async_op=asynchronous),
            dist.reduce_scatter(summed, parts, async_op=asynchronous),
        ]
        for work in works:
            if work is not None:
                work.wait()
        return [[part.tolist() for part in gathered], summed.tolist()]
