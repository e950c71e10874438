"""Checks of COL-3: programs of collectives on many groups, with reloads between."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause
from conformance.collective_runs import abilities, against_model, run_on_ranks
from conformance.collective_strategies import orders, steps
from conformance.programs.collective_program import families
from conformance.rank_programs import collectives as programs


@clause("COL-3", examples=0.25)
@given(data=st.data())
def test_programs_of_collectives_give_the_models_result(backend: BackendUnderTest, data: st.DataObject) -> None:
    """Any collective on any group, some under way while others run, in any order of the devices' work."""
    groups = families(backend.ranks.size)
    drawn = data.draw(st.lists(steps(abilities(backend), groups), min_size=2, max_size=16))
    order = data.draw(orders(backend))
    run_on_ranks(backend, "programs", programs.run, against_model(groups, drawn), groups=groups, steps=drawn, order=order)


@clause("COL-3", examples=0.08, long=True)
@given(data=st.data())
def test_programs_with_reloads_give_the_models_result(backend: BackendUnderTest, data: st.DataObject) -> None:
    """As above on a few groups, all of which are destroyed and rebuilt between."""
    family = families(backend.ranks.size)
    chosen = data.draw(st.lists(st.sampled_from(family[1:]), max_size=3, unique_by=tuple))
    groups = [family[0], *chosen]
    one = steps(abilities(backend), groups)
    generations = data.draw(st.lists(st.lists(one, min_size=1, max_size=4), min_size=2, max_size=3))
    drawn = generations[0]
    for generation in generations[1:]:
        drawn = [*drawn, {"name": "reload"}, *generation]
    order = data.draw(orders(backend))
    judge = against_model(groups, drawn)
    run_on_ranks(backend, "reloads", programs.reloading, judge, patience=8, groups=groups, steps=drawn, order=order)
