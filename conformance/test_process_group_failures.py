"""PGL-9: a rank dies, stalls or is slow during destroy, reload or a collective; real ranks, really killed.

The others must end within the timeout plus a grace, with an error that names the operation, and be able to start over. Not for: clean runs.
"""

from __future__ import annotations

import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, require
from conformance.models.process_groups import Topology, sum_over, topologies
from conformance.rank_programs import process_group_failures as programs
from conformance.ranks.pool import DIED, VALUE, RankEnd
from conformance.ranks.rank_main import FAILURE_TIMEOUT, GRACE, SLOW_TIMEOUT

_LIMIT = (FAILURE_TIMEOUT + GRACE + programs.SURVIVORS_TIMEOUT).total_seconds() + 10
"""Seconds for an example, so that whoever waits in vain says so itself."""
_hows = st.sampled_from(["killed", "stalled"])
_COLLECTIVE = "before a collective"


@clause("PGL-9", examples=0.05, long=True)
@given(step=st.sampled_from(sorted(set(programs.STEPS) - {_COLLECTIVE})), how=_hows, failing=st.integers(0, 7), topology=topologies)
def test_when_a_rank_fails_in_a_cycle_the_others_end_in_time(
    backend: BackendUnderTest, step: str, how: str, failing: int, topology: Topology
) -> None:
    _require_good_ends(backend, step, how, failing, topology)


@clause("PGL-9", examples=0.02, long=True)
@given(how=_hows, failing=st.integers(0, 7), topology=topologies)
def test_when_a_rank_fails_before_a_collective_the_others_end_in_time(
    backend: BackendUnderTest, how: str, failing: int, topology: Topology
) -> None:
    _require_good_ends(backend, _COLLECTIVE, how, failing, topology)


@clause("PGL-9", examples=0.06, long=True)
@given(step=st.sampled_from(sorted(programs.STEPS)), failing=st.integers(0, 7), topology=topologies)
def test_a_rank_that_is_slow_is_waited_for(backend: BackendUnderTest, step: str, failing: int, topology: Topology) -> None:
    _require_good_ends(backend, step, "slow", failing, topology)


def _require_good_ends(backend: BackendUnderTest, step: str, how: str, failing: int, topology: Topology) -> None:
    size = backend.ranks.size
    failing %= size
    ends = backend.ranks.attempt(
        programs.one_rank_fails,
        timeout=_LIMIT,
        grace=_LIMIT,
        groups=topology.groups(size)[:3],
        failing=failing,
        step=step,
        how=how,
        seconds=(SLOW_TIMEOUT if how == "slow" else FAILURE_TIMEOUT).total_seconds(),
    )
    event = f"rank {failing} was {how} {step}"
    _require_ends(ends, event, failing, how)
    for end in ends:
        if end.rank != failing or how == "slow":
            _require_good_end(end, event, failing, how, size)


def _require_ends(ends: list[RankEnd], event: str, failing: int, how: str) -> None:
    """Nobody but the failing rank stalled or raised out of its program; nor died, where nobody had to."""
    bad = [end for end in ends if end.how != VALUE and (how == "slow" or (end.rank != failing and end.how != DIED))]
    require(not bad, f"{event}, and {'; '.join(end.headline for end in bad)}\n" + "\n".join(end.described() for end in ends))


def _require_good_end(end: RankEnd, event: str, failing: int, how: str, size: int) -> None:
    what = f"{event}: rank {end.rank}"
    if end.how == DIED:  # a transport's own watchdog may end it
        require(end.log.strip(), f"{what} ended without a word ({end.text})")
        return
    answer = end.value
    if how == "slow":
        require(answer["error"] is None, f"{what} raised although nobody failed: {answer['error']}")
        require(answer["sum"] == sum_over(range(size)), f"{what} got the sum {answer['sum']}; due is {sum_over(range(size))}")
        return
    require(answer["error"] is not None, f"{what} noticed nothing, and got the sum {answer.get('sum')}")
    # torch 2.7 does not tell a handle that its caller waits, so that the wait's own error comes without a note.
    names_itself = answer["operation"] != "allreduce" or hasattr(dist.AllreduceOptions(), "asyncOp")
    require(
        not names_itself or answer["operation"] in answer["error"],
        f"{what} raised an error that does not name {answer['operation']}: {answer['error']}",
    )
    limit = (FAILURE_TIMEOUT + GRACE).total_seconds()
    require(
        answer["seconds"] <= limit,
        f"{what} raised from {answer['operation']} after {answer['seconds']:.1f} s; due is {limit:g} s at most",
    )
    due = sum_over([rank for rank in range(size) if rank != failing])
    require(answer["again"] == due, f"{what}: the sum over a new world of the survivors is {answer['again']}; due is {due}")
