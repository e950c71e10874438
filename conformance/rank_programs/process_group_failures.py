"""Programs of PGL-9: one rank dies, stalls or is slow at a step of destroy, reload or a collective; what the others do then.

For: real ranks that really fail. Not for: judging. A step is reached by wrapping the function of the reference that begins it, in the
rank that is to fail alone.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any
from unittest import mock

import torch.distributed as dist

from conformance.rank_programs.reloadable_worlds import reloadable_world, sum_of_ranks
from conformance.ranks.rank_main import SLOW_TIMEOUT, RankContext
from harness.process_group import recipe, reloader, torch_world
from harness.process_group.agreement import wait_for_all

SLOWNESS = 0.5  # seconds that a slow rank is late, well below any timeout here
SURVIVORS_TIMEOUT = SLOW_TIMEOUT
"""They come to their new world one after the other: each as late as PGL-9 lets it notice the failure."""
_RELEASE_LIMIT = 60.0  # seconds after which a stalled rank ends, whatever the others do

STEPS: dict[str, tuple[str, Any, str, int]] = {
    "before destroy": ("destroy_process_groups", None, "", 0),
    "while the ranks agree on destroy": ("destroy_process_groups", reloader, "agree", 1),
    "before the others know that it agreed": ("destroy_process_groups", reloader, "wait_for_all", 1),
    "before it destroys WORLD": ("destroy_process_groups", torch_world, "destroy_world", 1),
    "before it starts the CPU WORLD": ("destroy_process_groups", reloader.ProcessGroupReloader, "_start_world", 1),
    "before the barrier of destroy": ("destroy_process_groups", dist, "barrier", 1),
    "before reload": ("reload_process_groups", None, "", 0),
    "while the ranks agree on reload": ("reload_process_groups", reloader, "agree", 2),
    "before the others know that it agreed on reload": ("reload_process_groups", reloader, "wait_for_all", 2),
    "before it destroys the CPU WORLD": ("reload_process_groups", torch_world, "destroy_world", 2),
    "before it starts WORLD": ("reload_process_groups", reloader.ProcessGroupReloader, "_start_world", 2),
    "before it builds its groups": ("reload_process_groups", recipe, "_copies", 3),
    "before the barrier of reload": ("reload_process_groups", dist, "barrier", 2),
    "before a collective": ("allreduce", None, "", 0),
}
"""By what a person calls it: the operation that fails on the others, and the call of which function begins the step, counted from 1."""


def one_rank_fails(
    context: RankContext, groups: list[list[int]], failing: int, step: str, how: str, seconds: float
) -> dict[str, Any]:
    """A cycle and a sum, with a WORLD whose timeout is `seconds`; `how` is killed, stalled or slow. What each rank met, how long the
    operation took that failed, and, where a rank failed, the sum over a world of the others that has been through a cycle."""
    done, second = context.new_store(), context.new_store()
    _meet(context, done, "run")  # new ranks start one after the other; the timeout is not for that
    with reloadable_world(context, timeout=timedelta(seconds=seconds)) as made:
        handles = [made.new_group(ranks, timeout=timedelta(seconds=seconds)) for ranks in [*groups, list(range(context.size))]]
        _meet(context, done, "have their groups")  # a rank can have them while others still connect to it, for which it must live
        with _failing_at(step, lambda: _fail(context, how, done)) if context.rank == failing else nullcontext() as before:
            answer = _cycle_and_sum(context, made, handles[-1], before)
        if how != "slow" and answer["error"] is not None:  # else the check reports that nobody noticed
            answer["again"] = _start_over(context, made, second, [rank for rank in range(context.size) if rank != failing])
    done.set(f"done {context.rank}", "1")
    return answer


def _meet(context: RankContext, store: Any, what: str) -> None:
    context.operation(f"waiting for all ranks to {what}")
    wait_for_all(what, store, context.size, None)


def _cycle_and_sum(context: RankContext, made: Any, group: Any, before: Callable[[str], None] | None) -> dict[str, Any]:
    """The sum, or the error and the operation that raised it. `before` is called before each operation."""
    calls: dict[str, Callable[[], Any]] = {
        "destroy_process_groups": made.destroy_process_groups,
        "reload_process_groups": made.reload_process_groups,
        "allreduce": lambda: sum_of_ranks(context, group),
    }
    value = None
    for operation, call in calls.items():
        context.operation(operation)
        if before is not None:
            before(operation)
        started = time.monotonic()
        try:
            value = call()
        except Exception as error:  # noqa: BLE001 - the check judges it
            text = f"{type(error).__name__}: {error} {' '.join(getattr(error, '__notes__', []))}"
            return {"error": text, "operation": operation, "seconds": time.monotonic() - started}
    return {"error": None, "sum": value}


def _start_over(context: RankContext, broken: Any, store: Any, survivors: list[int]) -> float:
    """Give the old world up and have one of the survivors, with a cycle; the sum over it."""
    context.operation("abandon_process_groups")
    broken.abandon_process_groups()
    context.operation("a new world of the survivors")
    fresh = reloader.ProcessGroupReloader()
    rank = survivors.index(context.rank)
    fresh.init_process_group(context.backend, store=store, rank=rank, world_size=len(survivors), timeout=SURVIVORS_TIMEOUT)
    group = fresh.new_group(list(range(len(survivors))), timeout=SURVIVORS_TIMEOUT)
    fresh.destroy_process_groups()
    fresh.reload_process_groups()
    total = sum_of_ranks(context, group)
    fresh.abandon_process_groups()
    return total


@contextmanager
def _failing_at(step: str, fail: Callable[[], None]) -> Iterator[Callable[[str], None]]:
    """A context in which this rank fails at a step; what it yields is to be called before each operation, by name."""
    operation, owner, name, count = STEPS[step]
    if owner is None:
        yield lambda now: fail() if now == operation else None
        return
    original = getattr(owner, name)
    calls = [0]

    def wrapper(*arguments: Any, **keywords: Any) -> Any:
        calls[0] += 1
        if calls[0] == count:
            fail()
        return original(*arguments, **keywords)

    with mock.patch.object(owner, name, wrapper):
        yield lambda _now: None


def _fail(context: RankContext, how: str, done: Any) -> None:
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "slow":
        time.sleep(SLOWNESS)
        return
    deadline = time.monotonic() + _RELEASE_LIMIT
    others = [f"done {rank}" for rank in range(context.size) if rank != context.rank]
    while not done.check(others) and time.monotonic() < deadline:  # stalled until nobody needs it any more
        time.sleep(0.05)
    os._exit(0)
