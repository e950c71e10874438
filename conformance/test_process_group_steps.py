"""PGL: the steps of destroy and reload, watched from inside every rank: who waits for whom, which keys are used, what grows.

Not for: what collectives give afterwards (`test_process_group_reload.py`).
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, require
from conformance.models.process_groups import Topology, some_groups, sum_over, topologies
from conformance.rank_programs import process_group_watch as programs

_LIMIT = 60.0  # seconds for an example
_WARM_UP = 3  # cycles
_CYCLES = 50
_CYCLES_LIMIT = 240  # seconds; less than a check has, so that the stacks of ranks that stall are shown
_SLACK = {"KiB of memory": 64 * _CYCLES, "Python objects": _CYCLES // 2}
"""What may grow by chance: caches and arenas fill up, but not by a group's worth each cycle. Everything else stays as it is."""


@clause("PGL-6", long=True)
def test_fifty_cycles_leak_nothing(backend: BackendUnderTest) -> None:
    size = backend.ranks.size
    groups = [[0, size - 1]]  # WORLD is the other one
    answers = backend.ranks.run(programs.growth, timeout=_CYCLES_LIMIT, groups=groups, warm_up=_WARM_UP, cycle_count=_CYCLES)
    for rank, answer in enumerate(answers):
        require(not answer["warnings"], f"rank {rank}: {_CYCLES} clean cycles logged {answer['warnings'][:3]}")
        for what, before in answer["before"].items():
            after = answer["after"][what]
            require(after <= before + _SLACK.get(what, 0), f"rank {rank}: {_CYCLES} cycles took {what} from {before} to {after}")


@pytest.mark.parametrize("step", ["leaving the agreement on destroy", "leaving the agreement on reload", "after its last group"])
@clause("PGL-3", examples=0.03)
@given(topology=topologies, late=st.integers(0, 7))
def test_nobody_goes_on_before_all_are_there(backend: BackendUnderTest, topology: Topology, step: str, late: int) -> None:
    size = backend.ranks.size
    late %= size
    answers = backend.ranks.run(programs.nobody_is_early, timeout=_LIMIT, groups=topology.groups(size), late=late, step=step)
    what = "returned from reload" if step == "after its last group" else "destroyed WORLD"
    require(not answers[late], f"another rank {what} while rank {late} was still {step}")


@clause("PGL-8", examples=0.06, long=True)
@given(topology=topologies, cycle_count=st.integers(1, 3))
def test_each_generation_meets_under_keys_of_its_own(backend: BackendUnderTest, topology: Topology, cycle_count: int) -> None:
    groups = topology.groups(backend.ranks.size)
    answers = backend.ranks.run(programs.keys_of_generations, timeout=_LIMIT, groups=groups, cycle_count=cycle_count)
    due = list(range(2 * cycle_count + 1))
    for rank, answer in enumerate(answers):
        require(
            answer["generations"] == due,
            f"rank {rank}: {cycle_count} cycles left the generations {answer['generations']}; due are {due}",
        )
    keys = answers[0]["keys"]
    for generation, now in enumerate(keys or []):
        for earlier, then in enumerate(keys[:generation]):
            shared = sorted(set(now) & set(then))
            require(not shared, f"generation {generation} has keys in the store that generation {earlier} used: {shared[:3]}")


@clause("PGL-10", examples=0.08)
@given(topology=some_groups, asking=st.integers(0, 7))
def test_queries_take_no_communication_path(backend: BackendUnderTest, topology: Topology, asking: int) -> None:
    size = backend.ranks.size
    asking %= size
    groups = topology.groups(size)
    answers = backend.ranks.run(programs.queries_of_one_rank, timeout=_LIMIT, groups=groups, asking=asking)
    for rank, answer in enumerate(answers):
        mine = [sorted(ranks) for ranks in groups if rank in ranks]
        require(not answer["memory checks"], f"rank {rank}: queries made the memory checks {answer['memory checks']}")
        due: list[Any] = [[ranks.index(rank), len(ranks), ranks] for ranks in mine for _ in range(2)] if rank == asking else []
        require(
            answer["answers"] == due, f"rank {rank}: queries of rank, size and ranks answered {answer['answers']}; due are {due}"
        )
        require(
            answer["sums"] == [sum_over(ranks) for ranks in mine], f"rank {rank}: the sums after the queries are {answer['sums']}"
        )
