"""Checks of COL-1, COL-2, COL-4 and COL-5: each collective for itself, on real ranks.

Programs that mix collectives, groups and reloads are in `test_collective_programs.py`.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, not_checkable, require, unsupported
from conformance.collective_runs import abilities, against_model, both, host_abilities, require_model, run_on_ranks
from conformance.collective_strategies import orders, steps
from conformance.models.collectives import object_outputs
from conformance.programs.collective_program import MOVING, REDUCING, families
from conformance.rank_programs import collective_misuse as misuse_programs
from conformance.rank_programs import collectives as programs
from conformance.ranks.pool import STALLED
from conformance.text_strategies import some_text

_KNOWN_TO_PYTORCH = ("gloo", "nccl", "xccl", "ucc")
_MISMATCH_LIMIT = 8.0  # seconds: the group's timeout, and the grace that a watchdog may take
_OBJECTS = ("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list")


@clause("COL-1", examples=0.2)
@given(data=st.data())
def test_objects_arrive_where_they_are_due(backend: BackendUnderTest, data: st.DataObject) -> None:
    """Python objects of unequal sizes; the root is a rank of the job, not of the group."""
    groups = families(backend.ranks.size)
    ranks = data.draw(st.sampled_from(groups))
    values: st.SearchStrategy[Any] = st.one_of(st.integers(), some_text(40), st.lists(st.booleans(), max_size=3), st.none())

    def step(name: str) -> dict[str, Any]:
        one = st.lists(values, min_size=len(ranks), max_size=len(ranks)) if name == "scatter_object_list" else values
        given_values = data.draw(st.lists(one, min_size=len(ranks), max_size=len(ranks)))
        return {"name": name, "root": data.draw(st.integers(0, len(ranks) - 1)), "given": given_values}

    drawn = [step(name) for name in data.draw(st.lists(st.sampled_from(_OBJECTS), min_size=1, max_size=4))]
    alone = data.draw(st.booleans())

    def judge(found: list[Any]) -> None:
        for number, one in enumerate(drawn):
            right = object_outputs(one["name"], one["root"], one["given"])
            for own, rank in enumerate(ranks):
                came = found[rank][number]
                require(
                    came == right[own], f"{one['name']} on ranks {ranks}: rank {rank} has {came!r}; due was {right[own]!r}\n{one}"
                )

    run_on_ranks(backend, "objects", programs.objects, judge, ranks=ranks, steps=drawn, alone=alone)


@clause("COL-1", examples=0.1)
@given(data=st.data())
def test_nobody_leaves_a_barrier_before_the_last_has_come(backend: BackendUnderTest, data: st.DataObject) -> None:
    """One rank comes late, after it has seen all others at the barrier."""
    ranks = data.draw(st.sampled_from([group for group in families(backend.ranks.size) if len(group) > 1]))
    late = data.draw(st.integers(0, len(ranks) - 1))

    def judge(left: list[Any]) -> None:
        early = [rank for rank, was_right in enumerate(left) if not was_right]
        require(not early, f"ranks {early} left a barrier of ranks {ranks} before rank {ranks[late]} had come to it")

    asynchronous = data.draw(st.booleans())
    run_on_ranks(backend, "barrier", programs.barrier, judge, ranks=ranks, late=late, asynchronous=asynchronous)


@clause("COL-1", examples=0.08)
@pytest.mark.parametrize("name", [*REDUCING, *MOVING])
@given(data=st.data())
def test_a_collective_gives_the_models_result(backend: BackendUnderTest, name: str, data: st.DataObject) -> None:
    """Every declared dtype and reduction, every kind of group, every shape; some waited for at once, some later."""
    declared = abilities(backend)
    if name not in declared.names:
        unsupported(f"the transport's table has no {name}")
    groups = families(backend.ranks.size)
    drawn = data.draw(st.lists(steps(declared, groups, [name]), min_size=1, max_size=12))
    order = data.draw(orders(backend))
    run_on_ranks(backend, name, programs.run, against_model(groups, drawn), groups=groups, steps=drawn, order=order)


@clause("COL-2", tier="multi-rank", examples=0.2)
@given(data=st.data())
def test_an_asynchronous_collective_takes_its_place_on_streams(backend: BackendUnderTest, data: st.DataObject) -> None:
    """It starts behind the work of the stream that was current at issue, and the stream that waits sees its result."""
    stream = st.integers(0, 2)
    one = st.fixed_dictionaries({"issue": stream, "wait": stream, "additions": st.integers(1, 4)})
    rounds = data.draw(st.lists(one, min_size=1, max_size=4))
    order = data.draw(orders(backend))
    total = sum(rank + 1 for rank in range(backend.ranks.size))

    def judge(found: list[Any]) -> None:
        for number, drawn in enumerate(rounds):
            right = [drawn["additions"] * total]
            for rank, values in enumerate(found):
                what = f"rank {rank}: after wait() the stream read {values[number]}; due was {right}"
                require(values[number] == right, f"{what}\n{drawn}, {order}")

    run_on_ranks(backend, "order", programs.ordered, judge, rounds=rounds, order=order)


@clause("COL-4", examples=0.1)
@given(data=st.data())
def test_host_and_device_tensors_share_a_group(backend: BackendUnderTest, data: st.DataObject) -> None:
    """Each goes through a transport of its own, and comes out right."""
    kind = backend.accelerator.device_type
    if kind == "cpu":
        not_checkable("the backend's own tensors are the host's")
    declared = both(abilities(backend), host_abilities())
    ranks = data.draw(st.sampled_from(families(backend.ranks.size)))
    names = ["all_reduce", "broadcast", "all_gather", "all_to_all_single"]
    drawn = data.draw(st.lists(steps(declared, [ranks], names), min_size=1, max_size=6))
    host = data.draw(st.lists(st.booleans(), min_size=len(drawn), max_size=len(drawn)))
    right = {"cpu": "gloo", kind: backend.accelerator.communication_backend_name}

    def judge(found: list[Any]) -> None:
        for rank in ranks:
            answer = found[rank]
            config = dict(part.split(":") for part in answer["config"].split(","))
            chosen = {device: config.get(device) for device in right}
            require(chosen == right, f"a group made with {answer['backend']!r} uses {chosen}; due was {right}")
            require(
                answer["are_two"] or right[kind] == "gloo",
                f"a group made with {answer['backend']!r} has one transport for the CPU and for {kind}",
            )
        require_model([ranks], drawn, [answer["results"] for answer in found])

    run_on_ranks(backend, "mixed", programs.mixed, judge, ranks=ranks, steps=drawn, host=host)


@clause("COL-5")
def test_misuse_that_one_rank_can_see_raises(backend: BackendUnderTest) -> None:
    """And leaves the group as it was."""
    found = backend.ranks.run(misuse_programs.misuse, collectives=list(abilities(backend).names))
    for rank, answer in enumerate(found):
        accepted = [name for name, text in answer["answers"].items() if not text]
        require(not accepted, f"rank {rank}: these were accepted: {', '.join(accepted)}")
        require(answer["after"] == [float(len(found))] * 3, f"rank {rank}: a sum of ones afterwards gave {answer['after']}")


@clause("COL-5")
def test_a_mismatch_between_ranks_is_found_in_detail(backend: BackendUnderTest) -> None:
    """Under TORCH_DISTRIBUTED_DEBUG=DETAIL, which PyTorch implements for the transports that it knows."""
    transport = backend.accelerator.communication_backend_name
    if not backend.is_fake and transport not in _KNOWN_TO_PYTORCH:
        not_checkable(f"PyTorch compares ranks in detail for {', '.join(_KNOWN_TO_PYTORCH)}, not for {transport}")
    found = backend.ranks.run(misuse_programs.mismatch, in_detail=True, seconds=2.0)
    silent = [rank for rank, text in enumerate(found) if not text]
    require(not silent, f"ranks brought unequal shapes to all_reduce, and ranks {silent} raised nothing")


@clause("COL-5")
def test_a_mismatch_between_ranks_ends(backend: BackendUnderTest) -> None:
    """Whatever becomes of it, every rank goes on or ends within the timeout and a grace (PGL-9)."""
    ends = backend.ranks.attempt(misuse_programs.mismatch, timeout=_MISMATCH_LIMIT, in_detail=False, seconds=2.0)
    late = [end.described() for end in ends if end.how == STALLED]
    require(
        not late,
        f"ranks brought unequal shapes to all_reduce with a timeout of 2 s, and were not done after {_MISMATCH_LIMIT} s:\n"
        + "\n".join(late),
    )
