"""What all ranks check together before they destroy or rebuild anything.

For: finding out on every rank alike that the ranks differ, while a useful error is still possible: after the first group is gone, a
difference is a hang (PGL-4, PGL-8, PGL-9). Not for: the steps themselves (`reloader.py`).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from harness.errors import ProcessGroupError
from harness.process_group import torch_world


@dataclass(frozen=True)
class RankState:
    """What one rank brings to a destroy or reload.

    `generation` counts the WORLDs so far. `groups` is the identity of each group call that all ranks make, in order. `retired` are the
    places in that order of groups that this rank destroyed for good. `problem` is why this rank cannot go on, empty where it can.
    """

    generation: int
    groups: tuple[str, ...]
    retired: frozenset[int]
    problem: str


@dataclass(frozen=True)
class Agreement:
    """`retired` are the places of the groups that any rank destroyed for good.

    `tensors` were communicated last, and must live until the group that did so is gone: where C++ would hold the last reference to one,
    gloo's thread needs Python's lock to drop it, while torch 2.7 holds that lock as it ends the thread, and both wait for ever.
    """

    retired: frozenset[int]
    tensors: tuple[torch.Tensor, ...]


def agree(operation: str, mine: RankState, control_group: Any) -> Agreement:
    """Find all ranks to agree on everything but the groups that are gone. `control_group` is None for WORLD.

    Raises:
        ProcessGroupError: on every rank, if the ranks differ or one of them has a problem; nothing has been changed then.
    """
    states, tensors = gather(mine, control_group)
    problems = [f"rank {rank}: {state.problem}" for rank, state in enumerate(states) if state.problem]
    if problems:
        raise ProcessGroupError(f"{operation} changed nothing, because of {'; '.join(problems)}")
    _require_equal(operation, "the generation", [state.generation for state in states])
    _require_equal(operation, "the number of groups", [len(state.groups) for state in states])
    for place, identities in enumerate(zip(*(state.groups for state in states), strict=True)):
        _require_equal(operation, f"group {place} in the order of creation", list(identities))
    return Agreement(frozenset().union(*(state.retired for state in states)), tensors)


def gather(mine: RankState, control_group: Any) -> tuple[list[RankState], tuple[torch.Tensor, ...]]:
    """The states of all ranks in order, and every tensor that was communicated."""
    data = torch.frombuffer(bytearray(pickle.dumps(mine)), dtype=torch.uint8)
    ranks = range(dist.get_world_size())
    length = torch.tensor([data.numel()])
    lengths = [torch.zeros_like(length) for _ in ranks]
    communicated = [length, *lengths]
    try:
        dist.all_gather(lengths, length, group=control_group)
        padded = torch.zeros(int(max(lengths)), dtype=torch.uint8)
        padded[: data.numel()] = data
        parts = [torch.zeros_like(padded) for _ in ranks]
        communicated += [padded, *parts]
        dist.all_gather(parts, padded, group=control_group)
    except BaseException:
        torch_world.keep_forever(*communicated)  # nobody knows when the group will be gone
        raise
    # What arrives was pickled by this function on another rank of the same program.
    states = [pickle.loads(bytes(part[: int(size)].tolist())) for part, size in zip(parts, lengths, strict=True)]
    return states, tuple(communicated)


def wait_for_all(operation: str, store: Any, size: int, timeout: timedelta | None) -> None:
    """Return after all `size` ranks have called this for `operation`; once in a store. `timeout` is the store's own where it is None.

    It goes through the store because a barrier of a group says nothing about that group's connections: a rank is out of it as soon as it
    has heard of the others, and may end connections on which they still wait to be heard.

    Raises:
        RuntimeError: some did not come in time.
    """
    here, all_are_here = f"reloader/{operation}/here", f"reloader/{operation}/all are here"
    if store.add(here, 1) == size:
        store.set(all_are_here, "1")
    store.wait([all_are_here], *(() if timeout is None else (timeout,)))


def _require_equal(operation: str, what: str, values: Iterable[Any]) -> None:
    values = list(values)
    different = next((rank for rank, value in enumerate(values) if value != values[0]), None)
    if different is not None:
        raise ProcessGroupError(
            f"{operation} changed nothing, because the ranks differ in {what}: rank 0 has {values[0]!r}, rank {different} has "
            f"{values[different]!r}. All ranks must create the same groups in the same order"
        )
