"""Programs of PGL that watch the steps of destroy and reload: which rank is where, which keys are in the store, what grows.

For: PGL-3, PGL-6, PGL-8, PGL-10. Not for: ranks that fail (`process_group_failures.py`). Steps are watched by wrapping the reference's own
functions, which the program undoes.
"""

from __future__ import annotations

import gc
import logging
import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from conformance.rank_programs.reloadable_worlds import MOST_KEPT, reloadable_world, sum_of_ranks
from conformance.ranks.rank_main import RankContext
from harness.process_group import recipe, torch_world
from harness.process_group import reloader as reloader_module

_FILLING = 300
"""So many collectives fill what a transport keeps of the last ones."""
_PATIENCE = 0.3  # seconds in which a rank that does not wait for the late one would show


def nobody_is_early(context: RankContext, groups: list[list[int]], late: int, step: str) -> bool:
    """One rank is late at a step of a cycle; whether another one has gone on to where it must not be before that rank is there."""
    seen = context.new_store()
    with ExitStack() as patches, reloadable_world(context) as reloader:
        made = [*groups, list(range(context.size))]
        for ranks in made:
            reloader.new_group(ranks, timeout=context.timeout)
        is_late = context.rank == late
        found, has_waited = [False], [False]

        def wait_for_others() -> None:
            if is_late and not has_waited[0]:
                has_waited[0] = True
                context.operation(f"late {step}")
                deadline = time.monotonic() + _PATIENCE
                while not found[0] and time.monotonic() < deadline:
                    time.sleep(0.01)
                    found[0] = seen.check([step])

        def tell() -> None:
            if not is_late:
                seen.set(step, "1")

        if step == "leaving the agreement on destroy":
            patches.enter_context(_around(torch_world, "destroy_world", before=tell))
            patches.enter_context(_around(reloader_module, "agree", after=wait_for_others))
        reloader.destroy_process_groups()
        if step == "leaving the agreement on reload":
            patches.enter_context(_around(torch_world, "destroy_world", before=tell))
            patches.enter_context(_around(reloader_module, "agree", after=wait_for_others))
        if step == "after its last group":
            calls = [0]

            def after_the_last() -> None:
                calls[0] += 1
                if calls[0] == len(made) + 1:  # WORLD is the first
                    wait_for_others()

            patches.enter_context(_around(recipe.CallRecipe, "__call__", after=after_the_last))
        reloader.reload_process_groups()
        if step == "after its last group":
            tell()
        patches.close()
        context.operation("all_reduce on WORLD")
        sum_of_ranks(context, None)
    return found[0]


def _around(owner: Any, name: str, before: Callable[[], None] = lambda: None, after: Callable[[], None] = lambda: None) -> Any:
    """A patch that runs something before and after a function of the reference."""
    original = getattr(owner, name)

    def wrapper(*arguments: Any, **keywords: Any) -> Any:
        before()
        value = original(*arguments, **keywords)
        after()
        return value

    return mock.patch.object(owner, name, wrapper)


def keys_of_generations(context: RankContext, groups: list[list[int]], cycle_count: int) -> dict[str, Any]:
    """The generations, and on rank 0 the keys in the store while each stands; None where the store cannot list them."""
    store = context.new_store()
    generations, keys = [], []
    not_ours = set(_keys(store) or [])
    with reloadable_world(context, store=store) as reloader:
        for ranks in groups:
            reloader.new_group(ranks, timeout=context.timeout)
        for step in ["", *["destroy", "reload"] * cycle_count]:
            if step:
                context.operation(f"{step}_process_groups")
                getattr(reloader, f"{step}_process_groups")()
            generations.append(reloader.generation)
            context.operation("control traffic")
            sum_of_ranks(context, None, torch.device("cpu"))
            present = _keys(store) if context.rank == 0 else []
            keys.append(None if present is None else sorted(set(present) - not_ours))
            sum_of_ranks(context, None, torch.device("cpu"))  # nobody goes on while the keys are read
    return {"generations": generations, "keys": None if None in keys else keys}


def _keys(store: Any) -> list[str] | None:
    return sorted(store.list_keys()) if hasattr(store, "list_keys") else None


class CountingPolicy:
    """A memory policy that only counts."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def before_collective(self, _accelerator: Any, operation: str) -> None:
        self.calls.append(operation)


def queries_of_one_rank(context: RankContext, groups: list[list[int]], asking: int) -> dict[str, Any]:
    """One rank asks everything of its groups while no other does; which memory checks that brought, and a sum afterwards."""
    policy = CountingPolicy()
    with reloadable_world(context, memory_policy=policy) as reloader:
        handles = [reloader.new_group(ranks, timeout=context.timeout) for ranks in groups]
        mine = [(ranks, handle) for ranks, handle in zip(groups, handles, strict=True) if context.rank in ranks]
        answers = []
        if context.rank == asking:
            for ranks, handle in mine:
                context.operation(f"queries on group {ranks}")
                answers.append([dist.get_rank(handle), dist.get_world_size(handle), dist.get_process_group_ranks(handle)])
                answers.append([handle.rank(), handle.size(), list(handle.ranks)])
                _ = (
                    handle.group_name,
                    handle.group_desc,
                    handle.name(),
                    handle.bound_device_id,
                    repr(handle),
                    dist.get_backend(handle),
                )
        checks = list(policy.calls)
        sums = []
        for ranks, handle in mine:
            context.operation(f"all_reduce on group {ranks}")
            sums.append(sum_of_ranks(context, handle))
    return {"answers": answers, "memory checks": checks, "sums": sums}


def growth(context: RankContext, groups: list[list[int]], warm_up: int, cycle_count: int) -> dict[str, Any]:
    """What a rank holds after a warm-up and after `cycle_count` more cycles, and what this library logged."""
    warnings: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("harness")
    logger.addHandler(handler)
    store = context.new_store()
    try:
        with reloadable_world(context, store=store) as reloader:
            handles = [reloader.new_group(ranks, timeout=context.timeout) for ranks in groups]
            mine = [handle for ranks, handle in zip(groups, handles, strict=True) if context.rank in ranks]

            def cycle(count: int) -> dict[str, int]:
                for number in range(count):
                    context.operation(f"cycle {number}")
                    reloader.destroy_process_groups()
                    reloader.reload_process_groups()
                    for handle in mine:  # a transport may hold more for a group that was used
                        sum_of_ranks(context, handle)
                return _held(context, store)

            for _ in range(_FILLING):
                sum_of_ranks(context, None)
            cycle(warm_up)  # Python caches what the first measurement asks of classes
            before = cycle(1)
            return {"before": before, "after": cycle(cycle_count), "warnings": warnings}
    finally:
        logger.removeHandler(handler)


def _held(context: RankContext, store: Any) -> dict[str, int]:
    """What this process holds now, by what it is."""
    for _ in range(MOST_KEPT):
        sum_of_ranks(context, None)  # what is kept of the last sums is then the same at every measurement
    gc.collect()
    kinds = Counter(map(type, gc.get_objects()))
    registry = dist.distributed_c10d._world
    sum_of_ranks(context, None, torch.device("cpu"))
    keys = _keys(store) if context.rank == 0 else None
    held = {
        "process groups in PyTorch's registry": len(registry.pg_map) + len(registry.pg_names) + len(registry.pg_group_ranks),
        "tags of process groups": sum(len(tagged) for tagged in registry.tags_to_pg.values()),
        "process group objects": sum(count for kind, count in kinds.items() if issubclass(kind, dist.ProcessGroup)),
        "Python objects": kinds.total(),
        "file descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "KiB of memory": _resident_kib(),
        "keys in the store": 0 if keys is None else len(keys),
    }
    if context.accelerator.supports("device_memory"):
        held["bytes allocated on the device"] = int(context.accelerator.memory_allocated())
    sum_of_ranks(context, None, torch.device("cpu"))  # nobody goes on while the keys are read
    return held


def _resident_kib() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
