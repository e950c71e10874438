"""Programs of PGL-11: which device barriers and object collectives use, and on which devices a rank has a context afterwards.

For: transports that carry device tensors. Not for: groups on the host alone.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch.distributed as dist

from conformance.contexts import open_contexts
from conformance.rank_programs.reloadable_worlds import reloadable_world
from conformance.ranks.rank_main import RankContext
from harness.process_group import handle


def barriers_and_objects(context: RankContext, groups: list[list[int]]) -> dict[str, Any] | None:
    """The devices that barriers of groups asked for, the objects that came, and the contexts before and after; None on the host alone."""
    if context.device.type == "cpu":
        return None
    count = context.accelerator.device_count()
    asked: list[str] = []
    original = handle.ReloadableProcessGroup.barrier

    def watched(self: Any, *arguments: Any, **keywords: Any) -> Any:
        options = [value for value in (*arguments, *keywords.values()) if isinstance(value, dist.BarrierOptions)]
        asked.extend(str(given.device) for given in options)
        return original(self, *arguments, **keywords)

    before = open_contexts(context.device.type, count)
    objects: list[Any] = []
    with (
        mock.patch.object(handle.ReloadableProcessGroup, "barrier", watched),
        reloadable_world(context, device_id=context.own_device) as reloader,
    ):
        handles = [reloader.new_group(ranks, timeout=context.timeout) for ranks in groups]
        mine = [(ranks, group) for ranks, group in zip(groups, handles, strict=True) if context.rank in ranks]
        for again in (False, True):
            if again:
                context.operation("a cycle")
                reloader.destroy_process_groups()
                reloader.reload_process_groups()
            for ranks, group in mine:
                context.operation(f"barrier and object collectives on group {ranks}")
                dist.barrier(group=group)
                gathered: list[Any] = [None] * len(ranks)
                dist.all_gather_object(gathered, {"rank": context.rank}, group=group)
                sent = [context.rank]
                dist.broadcast_object_list(sent, src=min(ranks), group=group)
                objects.append([[got["rank"] for got in gathered], sent[0]])
            context.operation("barrier on WORLD")
            dist.barrier()
        bound = sorted({str(group.bound_device_id) for _, group in mine})
    after = open_contexts(context.device.type, count)
    return {
        "own": str(context.own_device),
        "bound": bound,
        "barriers": asked,
        "objects": objects,
        "contexts": None if before is None or after is None else [sorted(before), sorted(after)],
    }
