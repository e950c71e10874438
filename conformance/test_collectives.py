"""Checks of COL-1, COL-2, COL-4 and COL-5: each collective for itself, on real ranks.

Programs that mix collectives, groups and reloads are in `test_collective_programs.py`.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, require, unsupported
from conformance.collective_runs import abilities, require_model, run_on_ranks
from conformance.collective_strategies import steps
from conformance.models.collectives import object_outputs
from conformance.programs.collective_program import MOVING, REDUCING, families
from conformance.rank_programs import collectives as programs

_OBJECTS = ("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list")


@clause("COL-1", examples=0.12)
@pytest.mark.parametrize("name", [*REDUCING, *MOVING])
@given(data=st.data())
def test_a_collective_gives_the_models_result(backend: BackendUnderTest, name: str, data: st.DataObject) -> None:
    """Every declared dtype and reduction, every kind of group, every shape; some waited for at once, some later."""
    declared = abilities(backend)
    if name not in declared.names:
        unsupported(f"the transport's table has no {name}")
    groups = families(backend.ranks.size)
    drawn = data.draw(st.lists(steps(declared, groups, [name]), min_size=1, max_size=8))
    require_model(groups, drawn, run_on_ranks(backend, name, programs.run, groups=groups, steps=drawn))


@clause("COL-1", examples=0.2)
@given(data=st.data())
def test_objects_arrive_where_they_are_due(backend: BackendUnderTest, data: st.DataObject) -> None:
    """Python objects of unequal sizes; the root is a rank of the job, not of the group."""
    groups = families(backend.ranks.size)
    ranks = data.draw(st.sampled_from(groups))
    values: st.SearchStrategy[Any] = st.one_of(st.integers(), st.text(max_size=40), st.lists(st.booleans(), max_size=3), st.none())

    def step(name: str) -> dict[str, Any]:
        one = st.lists(values, min_size=len(ranks), max_size=len(ranks)) if name == "scatter_object_list" else values
        given_values = data.draw(st.lists(one, min_size=len(ranks), max_size=len(ranks)))
        return {"name": name, "root": data.draw(st.integers(0, len(ranks) - 1)), "given": given_values}

    drawn = [step(name) for name in data.draw(st.lists(st.sampled_from(_OBJECTS), min_size=1, max_size=4))]
    alone = data.draw(st.booleans())
    found = run_on_ranks(backend, "objects", programs.objects, ranks=ranks, steps=drawn, alone=alone)
    for number, one in enumerate(drawn):
        right = object_outputs(one["name"], one["root"], one["given"])
        for own, rank in enumerate(ranks):
            came = found[rank][number]
            require(came == right[own], f"{one['name']} on ranks {ranks}: rank {rank} has {came!r}; due was {right[own]!r}\n{one}")


@clause("COL-1", examples=0.1)
@given(data=st.data())
def test_nobody_leaves_a_barrier_before_the_last_has_come(backend: BackendUnderTest, data: st.DataObject) -> None:
    """One rank comes late, after it has seen all others at the barrier."""
    ranks = data.draw(st.sampled_from([group for group in families(backend.ranks.size) if len(group) > 1]))
    late = data.draw(st.integers(0, len(ranks) - 1))
    left = run_on_ranks(backend, "barrier", programs.barrier, ranks=ranks, late=late, asynchronous=data.draw(st.booleans()))
    early = [rank for rank, was_right in enumerate(left) if not was_right]
    require(not early, f"ranks {early} left a barrier of ranks {ranks} before rank {ranks[late]} had come to it")
