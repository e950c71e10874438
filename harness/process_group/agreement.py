"""What all ranks check together before they destroy or rebuild anything.

For: finding out on every rank alike that the ranks differ, while a useful error is still possible: after the first group is gone, a
difference is a hang (PGL-4, PGL-8, PGL-9). Not for: the steps themselves (`reloader.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from harness.errors import ProcessGroupError


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


def agree(operation: str, mine: RankState, control_group: Any) -> frozenset[int]:
    """The places of the groups that any rank destroyed for good, once all ranks are found to agree on the rest.

    Raises:
        ProcessGroupError: on every rank, if the ranks differ or one of them has a problem; nothing has been changed then.
    """
    states: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(states, mine, group=control_group)
    problems = [f"rank {rank}: {state.problem}" for rank, state in enumerate(states) if state.problem]
    if problems:
        raise ProcessGroupError(f"{operation} changed nothing, because of {'; '.join(problems)}")
    _require_equal(operation, "the generation", [state.generation for state in states])
    _require_equal(operation, "the number of groups", [len(state.groups) for state in states])
    for place, identities in enumerate(zip(*(state.groups for state in states), strict=True)):
        _require_equal(operation, f"group {place} in the order of creation", list(identities))
    return frozenset().union(*(state.retired for state in states))


def _require_equal(operation: str, what: str, values: Iterable[Any]) -> None:
    values = list(values)
    different = next((rank for rank, value in enumerate(values) if value != values[0]), None)
    if different is not None:
        raise ProcessGroupError(
            f"{operation} changed nothing, because the ranks differ in {what}: rank 0 has {values[0]!r}, rank {different} has "
            f"{values[different]!r}. All ranks must create the same groups in the same order"
        )
