"""Calls that are remembered in full, and what the ranks agree on."""

from __future__ import annotations

from typing import Any

import pytest
import torch.distributed as dist

from harness.errors import ProcessGroupError
from harness.process_group import agreement
from harness.process_group.agreement import RankState
from harness.process_group.handle import COLLECTIVES, ReloadableProcessGroup
from harness.process_group.recipe import CallRecipe, copy_options


class Options:
    def __init__(self) -> None:
        self.level = 1
        self.names = ["a"]


class WithoutCopy:
    """As C++ options are: no copying, some attributes read-only, some methods."""

    def __init__(self) -> None:
        self.level = 1

    def __deepcopy__(self, _memo: Any) -> Any:
        raise TypeError("cannot pickle")

    @property
    def backend(self) -> str:
        return "strangeccl"

    def method(self) -> None: ...


class WithArguments(WithoutCopy):
    def __init__(self, level: int) -> None:
        self.level = level


def test_each_call_gets_all_arguments_and_copies_of_its_own() -> None:
    calls: list[dict[str, Any]] = []

    def create(ranks: Any = None, timeout: Any = None, backend: Any = None, pg_options: Any = None) -> None:
        calls.append({"ranks": list(ranks), "timeout": timeout, "backend": backend, "level": pg_options.level})
        ranks.append(9)
        pg_options.level = 5
        pg_options.names.clear()

    ranks, options = [3, 1], Options()
    recipe = CallRecipe.of(create, (ranks, 7), {"backend": "gloo", "pg_options": options})
    ranks.append(4)
    options.level = 8
    recipe()
    recipe()
    assert calls == [{"ranks": [3, 1], "timeout": 7, "backend": "gloo", "level": 1}] * 2
    assert recipe.identity == "ranks=[3, 1], backend=gloo, timeout=7"
    assert not recipe.is_local


def test_changes_apply_to_one_call() -> None:
    recipe = CallRecipe.of(lambda store=None, rank=0: (store, rank), (), {"rank": 2})
    assert recipe(store="s") == ("s", 2)
    assert recipe() == (None, 2)


def test_arguments_that_do_not_fit_are_refused_as_python_does() -> None:
    with pytest.raises(TypeError, match="unexpected"):
        CallRecipe.of(lambda ranks=None: None, (), {"nonsense": 1})


def test_options_without_a_copy_are_made_anew() -> None:
    options = WithoutCopy()
    options.level = 4
    copied = copy_options(options)
    assert copied is not options
    assert copied.level == 4


def test_options_that_cannot_be_copied_are_refused() -> None:
    with pytest.raises(ProcessGroupError, match="WithArguments"):
        copy_options(WithArguments(2))


def state(**changes: Any) -> RankState:
    return RankState(**{"generation": 0, "groups": ("a", "b"), "retired": frozenset(), "problem": "", **changes})


def agreed(monkeypatch: pytest.MonkeyPatch, *states: RankState) -> frozenset[int]:
    def gather(mine: Any, group: Any) -> Any:
        assert mine is states[0]
        assert group == "control"
        return list(states), ()

    monkeypatch.setattr(agreement, "gather", gather)
    return agreement.agree("destroy", states[0], "control").retired


def test_ranks_that_agree_learn_which_groups_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert agreed(monkeypatch, state(), state(retired=frozenset({1}))) == {1}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"problem": "a stranger"}, "because of rank 1: a stranger"),
        ({"generation": 2}, "the generation: rank 0 has 0, rank 1 has 2"),
        ({"groups": ("a",)}, "the number of groups: rank 0 has 2, rank 1 has 1"),
        ({"groups": ("a", "c")}, "group 1 in the order of creation: rank 0 has 'b', rank 1 has 'c'"),
    ],
)
def test_ranks_that_differ_say_in_what(monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], text: str) -> None:
    with pytest.raises(ProcessGroupError, match="destroy changed nothing") as refusal:
        agreed(monkeypatch, state(), state(**change))
    assert text in str(refusal.value)


def test_the_handle_has_every_member_of_this_pytorchs_groups() -> None:
    own = set(vars(ReloadableProcessGroup))
    skipped = {"rank", "size", "unbox", "_pybind11_conduit_v1_", "BackendType", *dist.ProcessGroup.BackendType.__members__}
    assert {name for name in dir(dist.ProcessGroup) if not name.startswith("__")} - own - skipped == set()


def test_every_method_that_takes_tensors_counts_as_communication() -> None:
    takes_tensors = {
        name
        for name in dir(dist.ProcessGroup)
        if not name.startswith("__") and "Tensor" in str(getattr(dist.ProcessGroup, name).__doc__)
    }
    assert takes_tensors - COLLECTIVES == set()
