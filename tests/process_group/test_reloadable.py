"""Groups that are destroyed and rebuilt, on real ranks over gloo: what the suite's own checks (PGL) do not ask of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rank_worlds import RankEnd, run_ranks, values

from conformance.children import ChildProcesses


@pytest.fixture
def ranks(children: ChildProcesses) -> Callable[..., list[RankEnd]]:
    """Runs a program of `reload_programs` on some ranks."""

    def run(program: str, size: int = 2, **arguments: Any) -> list[RankEnd]:
        return run_ranks(children, f"reload_programs:{program}", size, **arguments)

    return run


def test_a_world_of_one_is_right_after_every_cycle(ranks: Callable[..., list[RankEnd]]) -> None:
    assert values(ranks("cycles_alone", 1)) == [{"generations": [0, 1, 2, 3, 4, 5, 6], "wrong": []}]


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


def test_a_group_that_pytorch_makes_while_the_others_are_destroyed_has_a_name_of_its_own(
    ranks: Callable[..., list[RankEnd]],
) -> None:
    for rank, found in enumerate(values(ranks("made_between", 3))):
        assert found[0] == (101 if rank != 1 else None)
        assert found[1] == [0, 1, 2]
        assert "the groups of ranks [0, 2] (gloo) were not made by the reloader" in found[2]
        assert found[3] == 111


def test_a_rank_that_nobody_answers_is_told_what_it_can_do(ranks: Callable[..., list[RankEnd]]) -> None:
    assert "abandon_process_groups() lets the others start over" in values(ranks("called_by_one"))[0]


def test_groups_that_only_their_members_make_are_rebuilt(ranks: Callable[..., list[RankEnd]]) -> None:
    assert values(ranks("local_groups", 4)) == [11, 11, 1100, 1100]


def test_ranks_that_disagree_all_raise_and_nothing_has_changed(ranks: Callable[..., list[RankEnd]]) -> None:
    for error, after in values(ranks("different_groups")):
        assert "the ranks differ in group 0" in error
        assert "of rank 0" in error
        assert after == 11


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
        assert first == [[[], rank, 7, 20.0], [[0, 1], rank, 3, 10.0]]
        assert after == 11
        assert backend == "strangeccl"
