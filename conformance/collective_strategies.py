"""What the checks of COL draw.

For: strategies of steps that the backend declares. Not for: what a step means (`conformance/programs/collective_program.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from conformance.backend_under_test import BackendUnderTest
from conformance.programs.collective_program import REDUCING, ROOTED, Abilities, Step


@st.composite
def shapes(draw: st.DrawFn) -> list[int]:
    """Up to three extents, zero among them; no extents is a scalar."""
    return draw(st.lists(st.sampled_from([1, 2, 3, 0, 5]), max_size=3).filter(lambda shape: math.prod(shape) <= 24))


@st.composite
def steps(draw: st.DrawFn, abilities: Abilities, groups: Sequence[list[int]], names: Sequence[str] = ()) -> Step:
    """One collective that the backend declares, on one of the groups."""
    legal = [name for name in names or abilities.names if name in abilities.names]
    name = draw(st.sampled_from(legal))
    point_to_point = name in ("send", "batch")
    wide = [index for index, ranks in enumerate(groups) if len(ranks) > 1]
    group = draw(st.sampled_from(wide if point_to_point else range(len(groups))))
    size = len(groups[group])
    step: Step = {"name": name, "group": group, "seed": draw(st.integers(0, 9999)), "shape": draw(shapes()), "is_truth": False}
    if name in REDUCING:
        step["reduction"] = draw(st.sampled_from(sorted(abilities.reduces)))
        step["dtype"] = draw(st.sampled_from(abilities.reduces[step["reduction"]]))
        step["is_truth"] = step["dtype"] == "bool"
    else:
        step["dtype"] = draw(st.sampled_from(abilities.moves))
    if name in ROOTED:
        step["root"] = draw(st.integers(0, size - 1))
    if name == "all_to_all_single":
        step["says_splits"] = draw(st.booleans())
        step["rows"] = draw(_split_sizes(size)) if step["says_splits"] else [[1] * size] * size
    if point_to_point:
        step["messages"] = draw(_messages(size, 1 if name == "send" else 4))
    step["asynchronous"] = draw(st.booleans())
    step["hold"] = draw(st.integers(0, 2)) if step["asynchronous"] else 0
    return step


def orders(backend: BackendUnderTest) -> st.SearchStrategy[dict[str, Any]]:
    """An `order` of `conformance.rank_programs.simulated_order`: a real device has its own, and so has a run that was given one."""
    if not backend.is_fake or backend.given_schedule:
        return st.just({})
    from fakes.settings import SCHEDULES

    return st.fixed_dictionaries({"schedule": st.sampled_from(list(SCHEDULES)), "seed": st.integers(0, 999)})


@st.composite
def _split_sizes(draw: st.DrawFn, size: int) -> list[list[int]]:
    """How many rows each rank sends to each; often such that all send and receive as many, which equal splits would do as well."""
    one = st.lists(st.integers(0, 3), min_size=size, max_size=size)
    if draw(st.booleans()):
        return draw(st.lists(one, min_size=size, max_size=size))
    first, *others = draw(one)
    turned = [first + -(first + sum(others)) % size, *others]
    return [[turned[(receiver - sender) % size] for receiver in range(size)] for sender in range(size)]


@st.composite
def _messages(draw: st.DrawFn, size: int, most: int) -> list[list[int]]:
    pairs = [[sender, receiver] for sender in range(size) for receiver in range(size) if sender != receiver]
    return draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=most))
