"""Collectives called wrongly: what one rank can see, and what only all of them together can.

For: COL-5. Not for: ranks that die or stay away (`process_group_failures.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from conformance.rank_programs.collectives import KEPT, _all_gather_single, _reduce_scatter_single, transport_alone
from conformance.ranks.rank_main import RankContext

_REFUSALS = (ValueError, RuntimeError, TypeError)


def cases(context: RankContext, group: Any, has: Callable[[str], bool]) -> dict[str, Callable[[], Any]]:
    """What to refuse, by name. Where only the root calls, nobody else could notice."""
    size, device = context.size, context.device

    def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.ones(shape, dtype=dtype, device=device)

    found: dict[str, Callable[[], Any]] = {
        "all_gather_into_tensor with too large an output": lambda: _all_gather_single(ones(size + 1), ones(1), group=group),
        "all_gather_into_tensor with another dtype": lambda: _all_gather_single(
            ones(size, dtype=torch.int32), ones(1), group=group
        ),
        "all_gather with too few outputs": lambda: dist.all_gather([ones(2)] * (size - 1), ones(2), group=group),
        "all_gather with another dtype": lambda: dist.all_gather([ones(2, dtype=torch.int32)] * size, ones(2), group=group),
        "all_to_all_single with splits that do not add up": lambda: dist.all_to_all_single(
            ones(size), ones(size), [1] * size, [2] * size, group=group
        ),
        "broadcast from a rank that does not exist": lambda: dist.broadcast(ones(2), src=size, group=group),
    }
    if has("reduce_scatter_tensor"):
        found["reduce_scatter_tensor with an input that cannot be cut"] = lambda: _reduce_scatter_single(
            ones(2), ones(2 * size + 1), group=group
        )
    if context.rank == 0:
        found["scatter of too few parts"] = lambda: dist.scatter(ones(1), [ones(1)] * (size - 1), src=0, group=group)
        found["gather into too few parts"] = lambda: dist.gather(ones(1), [ones(1)] * (size - 1), dst=0, group=group)
    if device.type != "cpu":
        found["a host tensor where only the device has a transport"] = lambda: dist.all_reduce(torch.ones(2), group=group)
        found["host tensors among the device's"] = lambda: dist.all_gather([torch.ones(2)] * size, ones(2), group=group)
    return found


def misuse(context: RankContext, collectives: list[str]) -> dict[str, Any]:
    """What became of each wrong call, and of a right one afterwards."""
    group = KEPT.group(context, list(range(context.size)), transport_alone(context))
    found: dict[str, Any] = {}
    for name, call in cases(context, group, collectives.__contains__).items():
        context.operation(name)
        try:
            call()
        except _REFUSALS as error:
            found[name] = f"{type(error).__name__}: {error}"[:300]
        else:
            found[name] = ""
    context.operation("a right call afterwards")
    after = torch.ones(3, device=context.device)
    dist.all_reduce(after, group=group)
    return {"answers": found, "after": after.cpu().tolist()}


def mismatch(context: RankContext, in_detail: bool, seconds: float) -> str:
    """The error of a sum for which ranks bring different shapes, empty without one."""
    context.world()
    level = c10d.get_debug_level()
    c10d.set_debug_level(c10d.DebugLevel.DETAIL if in_detail else c10d.DebugLevel.OFF)
    try:
        group = dist.new_group(backend=transport_alone(context) or None, timeout=timedelta(seconds=seconds))
        context.operation("an all_reduce of unequal shapes")
        values = torch.ones(2 + 3 * (context.rank % 2), device=context.device)
        dist.all_reduce(values, group=group)
        values.cpu()
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}"[:300]
    finally:
        c10d.set_debug_level(level)
    return ""
