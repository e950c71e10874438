"""Which groups a program makes, and what collectives on them must give.

For: topologies as plain data, with their meaning for any number of ranks, and the model of a sum. Not for: running anything.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from hypothesis import strategies as st

MOST_GROUPS = 6


@dataclass(frozen=True)
class Family:
    """Groups of one kind, as a framework makes them. `number` is a parallel size, or for `ranks` a bit for each rank."""

    kind: str
    number: int

    def groups(self, size: int) -> list[list[int]]:
        """The global ranks of each group in a world of `size`."""
        return _KINDS[self.kind](size, self.number)


def _divisor(size: int, wanted: int) -> int:
    return max(number for number in range(1, size + 1) if size % number == 0 and number <= max(1, wanted))


def _blocks(size: int, number: int) -> list[list[int]]:
    length = _divisor(size, number)
    return [list(range(first, first + length)) for first in range(0, size, length)]


def _strided(size: int, number: int) -> list[list[int]]:
    length = _divisor(size, number)
    step = size // length
    return [list(range(first, size, step)) for first in range(step)]


def _ends(size: int, number: int) -> list[list[int]]:
    return [sorted({ranks[0], ranks[-1]}) for ranks in _strided(size, number)]


def _chosen(size: int, number: int) -> list[list[int]]:
    ranks = [rank for rank in range(size) if number >> rank & 1] or [number % size]
    return [ranks[::-1] if number % 3 == 0 else ranks]


_KINDS: Mapping[str, Callable[[int, int], list[list[int]]]] = {
    "tensor": _blocks,
    "pipeline": _strided,
    "data": lambda size, number: _strided(size, size // _divisor(size, number)),
    "expert": lambda size, number: _blocks(size, number)[::-1],
    "embedding": _ends,
    "singletons": lambda size, _number: [[rank] for rank in range(size)],
    "world": lambda size, _number: [list(range(size))],
    "ranks": _chosen,
}

families = st.builds(Family, st.sampled_from(sorted(_KINDS)), st.integers(1, 15))


@dataclass(frozen=True)
class Topology:
    """Families of groups, made in an order that all ranks share: as listed where `order` is 0, else shuffled by it."""

    families: tuple[Family, ...]
    order: int = 0

    def groups(self, size: int) -> list[list[int]]:
        """The global ranks of each group in the order of creation."""
        groups = [ranks for family in self.families for ranks in family.groups(size)]
        if self.order:
            random.Random(self.order).shuffle(groups)
        return groups[:MOST_GROUPS]


topologies = st.builds(Topology, st.lists(families, max_size=3).map(tuple), st.integers(0, 99))
"""Overlapping, nested and singleton groups, and none at all."""
some_groups = st.builds(Topology, st.lists(families, min_size=1, max_size=2).map(tuple), st.integers(0, 99))
"""At least one group."""


def sum_over(ranks: Collection[int]) -> int:
    """What `all_reduce` gives where rank r brings 2 to the power of r."""
    return sum(2**rank for rank in ranks)
