"""Programs of PGL: groups that are destroyed and rebuilt, observed on every rank; the checks judge the values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from conformance.rank_programs.reloadable_worlds import reloadable_world, sum_of_ranks
from conformance.ranks.rank_main import RankContext


def cycles(
    context: RankContext, groups: list[list[int]], before: int, rounds: list[dict[str, int]], *, by_pytorch: bool
) -> list[dict[str, Any]]:
    """Make groups, the first `before` of them by PyTorch alone; then rounds of destroy and reload, each called as often as the round says,
    with a sum over every group after each reload and a further group where the round says so."""
    groups = [list(ranks) for ranks in groups]
    with reloadable_world(context, by_pytorch=by_pytorch) as reloader:
        context.operation("new_group by PyTorch, before registration")
        early = [dist.new_group(ranks, timeout=context.timeout, group_desc=f"group {ranks}") for ranks in groups[:before]]
        context.operation("register_group, new_group")
        handles = [
            reloader.register_group(group, ranks, timeout=context.timeout, group_desc=f"group {ranks}")
            for ranks, group in zip(groups[:before], early, strict=True)
        ]
        handles += [reloader.new_group(ranks, timeout=context.timeout, group_desc=f"group {ranks}") for ranks in groups[before:]]
        found = [_sums(context, groups, handles)]
        for number, wanted in enumerate(rounds, start=1):
            seen: dict[str, Any] = {"destroyed": [], "reloaded": []}
            for _ in range(wanted["destroys"]):
                context.operation(f"destroy_process_groups, round {number}")
                reloader.destroy_process_groups()
                seen["destroyed"].append(reloader.generation)
            context.operation(f"control traffic, round {number}")
            seen["control"] = sum_of_ranks(context, None, torch.device("cpu"))
            seen["control backend"] = str(dist.get_backend())
            for _ in range(wanted["reloads"]):
                context.operation(f"reload_process_groups, round {number}")
                reloader.reload_process_groups()
                seen["reloaded"].append(reloader.generation)
            if wanted["further"]:
                context.operation(f"new_group, round {number}")
                groups.append([0, context.size - 1])
                handles.append(reloader.new_group([0, context.size - 1], timeout=context.timeout))
            found.append(seen | _sums(context, groups, handles))
    return found


def _sums(context: RankContext, groups: list[list[int]], handles: list[Any]) -> dict[str, Any]:
    """The sum over each group that this rank is a member of, else None, and over WORLD."""
    sums = []
    for ranks, handle in zip(groups, handles, strict=True):
        context.operation(f"all_reduce on group {ranks}")
        sums.append(sum_of_ranks(context, handle) if context.rank in ranks else None)
    context.operation("all_reduce on WORLD")
    return {"sums": sums, "world": sum_of_ranks(context, None)}


def a_destroyed_group(context: RankContext, groups: list[list[int]], name: str) -> list[dict[str, Any]]:
    """What each handle of this rank says before, between and after; and what communicating on it raises in between."""
    found = []
    with reloadable_world(context) as reloader:
        context.operation("new_group")
        made = [
            reloader.new_group(ranks, timeout=context.timeout, group_desc=f"{name} {place}" if name else None)
            for place, ranks in enumerate(groups)
        ]
        mine = [(ranks, handle) for ranks, handle in zip(groups, made, strict=True) if context.rank in ranks]
        before = [_queries(handle) for _, handle in mine]
        context.operation("destroy_process_groups")
        reloader.destroy_process_groups()
        for (ranks, handle), asked in zip(mine, before, strict=True):
            context.operation(f"queries and collectives on the destroyed group {ranks}")
            found.append(
                {
                    "ranks": ranks,
                    "before": asked,
                    "between": _queries(handle),
                    "is destroyed": handle.is_destroyed,
                    "shown": repr(handle),
                    "errors": {what: _error(call) for what, call in _communication(context, handle).items()},
                }
            )
        new_group = _error(lambda: reloader.new_group([0]))
        context.operation("reload_process_groups")
        reloader.reload_process_groups()
        for (_, handle), seen in zip(mine, found, strict=True):
            seen |= {"after": _queries(handle), "is destroyed after": handle.is_destroyed, "new group": new_group}
    return found


def _queries(handle: Any) -> list[Any]:
    """Everything that needs no communicator, the name that PyTorch counts up left out."""
    return [
        handle.rank(),
        handle.size(),
        dist.get_rank(handle),
        dist.get_world_size(handle),
        dist.get_process_group_ranks(handle),
        [dist.get_global_rank(handle, place) for place in range(handle.size())],
        str(dist.get_backend(handle)),
        dist.get_backend_config(handle),
        handle.group_desc,
        handle.name(),
        list(handle.ranks),
        str(handle.bound_device_id),
        sorted(str(device) for device in handle._device_types),
    ]


def _communication(context: RankContext, handle: Any) -> dict[str, Callable[[], Any]]:
    ones = torch.ones(1, device=context.device)
    return {
        "all_reduce": lambda: dist.all_reduce(ones, group=handle),
        "broadcast": lambda: dist.broadcast(ones, group=handle, group_src=0),
        "all_gather": lambda: dist.all_gather([ones.clone() for _ in range(handle.size())], ones, group=handle),
        "barrier": lambda: dist.barrier(group=handle),
        "all_gather_object": lambda: dist.all_gather_object([None] * handle.size(), 1, group=handle),
        "asynchronous all_reduce": lambda: dist.all_reduce(ones, group=handle, async_op=True),
        "the communicator itself": lambda: handle.process_group,
    }


def _error(call: Callable[[], Any]) -> list[str]:
    """The classes and the text of what a call raises; empty where it raises nothing."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - the check judges it
        return [" ".join(kind.__name__ for kind in type(error).__mro__), str(error)]
    return []


class Options:
    """Options of a transport, which PyTorch and transports change."""

    def __init__(self, level: int) -> None:
        self.level = level
        self.seen = 0


TRANSPORT = "reloadccl"
"""A transport over gloo that writes down what it is made with."""
_made: list[list[Any]] = []


def _create(given: Any, options: Any) -> Any:
    _made.append(
        [
            list(given.global_ranks_in_group),
            given.group_rank,
            given.group_size,
            given.timeout.total_seconds(),
            None if options is None else [options.level, options.seen],
        ]
    )
    if options is not None:
        options.level, options.seen = -1, options.seen + 1
    return dist.ProcessGroupGloo(given.store, given.group_rank, given.group_size, timeout=given.timeout)


def replays(context: RankContext, groups: list[dict[str, Any]], world: dict[str, Any], cycle_count: int) -> dict[str, Any]:
    """What the transport of WORLD and of each group is made with, at first and at each reload, and what the handles then say.

    A group is `{"ranks", "timeout" (seconds, or None), "level" (of its options, or None), "description", "backend"}`.
    """
    if not hasattr(dist.Backend, TRANSPORT.upper()):
        dist.Backend.register_backend(TRANSPORT, _create, extended_api=True, devices=["cpu"])
    _made.clear()
    options = [Options(group["level"]) if group["level"] is not None else None for group in groups]
    world_options = None if world["level"] is None else Options(world["level"])
    with reloadable_world(
        context, backend=TRANSPORT, pg_options=world_options, timeout=timedelta(seconds=world["timeout"])
    ) as reloader:
        context.operation("new_group")
        handles = [
            reloader.new_group(
                group["ranks"],
                timedelta(seconds=group["timeout"]) if group["timeout"] is not None else None,
                group["backend"],
                pg_options=given,
                group_desc=group["description"],
            )
            for group, given in zip(groups, options, strict=True)
        ]
        generations = [_said(context, groups, handles)]
        for given in (*options, world_options):
            if given is not None:
                given.level = 99  # the caller's own object, which is theirs to change
        for _ in range(cycle_count):
            context.operation("destroy_process_groups")
            reloader.destroy_process_groups()
            _made.clear()
            context.operation("reload_process_groups")
            reloader.reload_process_groups()
            generations.append(_said(context, groups, handles))
    return {"generations": generations}


def _said(context: RankContext, groups: list[dict[str, Any]], handles: list[Any]) -> list[Any]:
    mine = [handle for group, handle in zip(groups, handles, strict=True) if context.rank in group["ranks"]]
    return [list(_made), [[*_queries(handle)[:5], handle.group_desc, str(dist.get_backend(handle))] for handle in mine]]
