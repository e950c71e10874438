"""Groups that are destroyed and rebuilt, on real ranks over gloo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch.distributed as dist
from rank_worlds import RankEnd, run_ranks, values

from conformance.children import ChildProcesses


@pytest.fixture
def ranks(children: ChildProcesses) -> Callable[..., list[RankEnd]]:
    """Runs a program of `reload_programs` on some ranks."""

    def run(program: str, size: int = 2, **arguments: Any) -> list[RankEnd]:
        return run_ranks(children, f"reload_programs:{program}", size, **arguments)

    return run


@pytest.mark.parametrize("size", [1, 2, 4])
def test_every_topology_is_right_after_every_cycle(ranks: Callable[..., list[RankEnd]], size: int) -> None:
    for found in values(ranks("cycles", size) if size > 1 else ranks("cycles_alone", 1)):
        assert found == {"generations": [0, 1, 2, 3, 4, 5, 6], "wrong": [], "warnings": []}


def test_a_destroyed_handle_answers_queries_and_refuses_the_rest(ranks: Callable[..., list[RankEnd]]) -> None:
    for rank, found in enumerate(values(ranks("queries"))):
        assert found["before"] == found["between"] == found["after"]
        assert found["before"][:5] == [rank, 2, rank, 2, [0, 1]]
        assert found["state"] == [True, False]
        assert found["shown"] == [
            f"<ReloadableProcessGroup 'pair', rank {rank} of 2, destroyed>",
            f"<ReloadableProcessGroup 'pair', rank {rank} of 2>",
        ]
        assert len(found["errors"]) == 6
        for error in found["errors"][:5]:
            assert error.startswith("ProcessGroupDestroyedError")
            assert "'pair'" in error
            assert "reload_process_groups()" in error
        assert "reload_process_groups()" in found["errors"][5]


@pytest.mark.parametrize("size", [1, 2])
def test_destroy_and_reload_are_idempotent(ranks: Callable[..., list[RankEnd]], size: int) -> None:
    assert values(ranks("idempotent", size)) == [[0, 1, 1, 2, 2, int("1" * size)]] * size


def test_groups_made_before_are_refused_until_they_are_registered(ranks: Callable[..., list[RankEnd]]) -> None:
    for rank, found in enumerate(values(ranks("foreign_world", 3))):
        assert "were not made by the reloader" in found[0]
        sums = [11] * (rank < 2) + [101] * (rank in (0, 2)) + [111]
        assert found[1:-1] == sums * 2


def test_a_group_destroyed_for_good_stays_so_on_all_ranks(ranks: Callable[..., list[RankEnd]]) -> None:
    found = values(ranks("one_group_gone", 3))
    assert [answer[0] for answer in found] == [1, 0, 1]
    assert [answer[1] for answer in found] == [101, None, 101]
    assert "create it again" in found[0][2]
    assert values(ranks("destroyed_between", 2)) == [[11, 1], [11, 1]]


def test_groups_that_only_their_members_make_are_rebuilt(ranks: Callable[..., list[RankEnd]]) -> None:
    assert values(ranks("local_groups", 4)) == [11, 11, 1100, 1100]


def test_ranks_that_disagree_all_raise_and_nothing_has_changed(ranks: Callable[..., list[RankEnd]]) -> None:
    for error, after in values(ranks("different_groups")):
        assert "the ranks differ in group 0" in error
        assert "of rank 0" in error
        assert after == 11


def test_fifty_cycles_leak_nothing(ranks: Callable[..., list[RankEnd]]) -> None:
    for found in values(ranks("leaks", 2, count=50)):
        assert found["after"] == found["before"]


@pytest.mark.parametrize("where", ["agree", "destroy", "start", "reload", "collective"])
def test_when_a_rank_dies_the_others_raise_and_can_start_over(ranks: Callable[..., list[RankEnd]], where: str) -> None:
    ends = ranks("killed", 3, where=where)
    assert ends[2].signal == "SIGKILL"
    operation = {"collective": "allreduce", "reload": "reload_process_groups"}.get(where, "destroy_process_groups")
    for said in values(ends[:2]):
        # torch 2.7 does not tell a handle that its caller waits, so that the wait's own error comes without a note.
        if where != "collective" or hasattr(dist.AllreduceOptions(), "asyncOp"):
            assert operation in said.split("|")[0], said
        if where in ("destroy", "start"):
            assert "abandon_process_groups()" in said.split("|")[1]


def test_a_forked_child_leaves_its_parents_groups_alone(ranks: Callable[..., list[RankEnd]]) -> None:
    for said, after in values(ranks("forked")):
        assert "was forked from it" in said[0]
        assert "abandon_process_groups()" in said[1]
        assert said[2:] == ["1"]
        assert after == 11


def test_pytorch_takes_a_handle_wherever_it_takes_a_group(ranks: Callable[..., list[RankEnd]]) -> None:
    assert values(ranks("everything_else_works")) == [[], []]


def test_a_transport_for_one_device_gets_every_argument_again(ranks: Callable[..., list[RankEnd]]) -> None:
    for rank, (first, after, backend) in enumerate(values(ranks("other_transport"))):
        assert first == [[[], rank, 7, 3.0], [[0, 1], rank, 3, 2.0]]
        assert after == 11
        assert backend == "strangeccl"
