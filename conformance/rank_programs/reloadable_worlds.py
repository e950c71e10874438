"""What the programs about reloadable groups share: a WORLD of their own, and a collective with a known result.

For: the other modules here. Not for: judging.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from conformance.ranks.rank_main import RankContext
from harness.process_group import reloader
from harness.process_group.agreement import wait_for_all

_POWERS = 16  # of two, in one element
_LEAVING_LIMIT = timedelta(seconds=10)
MOST_KEPT = 32
_communicated: deque[torch.Tensor] = deque(maxlen=MOST_KEPT)
"""The tensors of the last collectives, kept until their group is gone: see `harness.process_group.agreement.Agreement`."""


@contextmanager
def reloadable_world(
    context: RankContext, *, by_pytorch: bool = False, timeout: timedelta | None = None, **keywords: Any
) -> Iterator[reloader.ProcessGroupReloader]:
    """A reloader and a WORLD of all ranks over the backend under test; with `by_pytorch` the reloader finds the WORLD made already.

    `timeout` is the WORLD's, else the context's. The WORLD is destroyed at the end; after an exception it is left to the pool, which ends
    the ranks.
    """
    if dist.is_initialized():  # the one that other programs keep
        dist.destroy_process_group()
    accelerator = None if context.device.type == "cpu" else context.accelerator
    made = reloader.ProcessGroupReloader(accelerator, keywords.pop("memory_policy", None))
    arguments = {
        "backend": context.backend,
        "store": keywords.pop("store", None) or context.new_store(),
        "rank": context.rank,
        "world_size": context.size,
        "timeout": timeout or context.timeout,
        **keywords,
    }
    context.operation("init_process_group")
    if by_pytorch:
        dist.init_process_group(**arguments)
    else:
        made.init_process_group(**arguments)
    yield made
    context.operation("the end of the program")
    if dist.is_initialized():
        # A rank that ends its connections at once would break the last collective of one that is still in it.
        with suppress(RuntimeError):  # one that has failed says so itself, and does not come here
            wait_for_all("the end of the program", arguments["store"], context.size, _LEAVING_LIMIT)
        dist.destroy_process_group()


def sum_of_ranks(context: RankContext, group: Any, device: torch.device | None = None) -> float:
    """The sum over a group of 2 to the power of each rank, on the device of the backend under test unless another is given.

    It is exact for any number of ranks: each element has some of the powers, no more than float32 can add up.
    """
    powers = torch.zeros(1 + (context.size - 1) // _POWERS)
    powers[context.rank // _POWERS] = 2.0 ** (context.rank % _POWERS)
    tensor = powers.to(device or context.device)
    _communicated.append(tensor)
    dist.all_reduce(tensor, group=group)
    parts = [int(part) if part.is_integer() else part for part in tensor.tolist()]
    return sum(part * (1 << _POWERS * place) for place, part in enumerate(parts))
