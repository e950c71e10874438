"""The reloader in a world of one, in the test's own process: every branch that needs no second rank."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
import torch.distributed as dist
from world_of_one import TIMEOUT, init, total

from harness.errors import ProcessGroupDestroyedError, ProcessGroupError
from harness.process_group import (
    ProcessGroupReloader,
    ReloadableProcessGroup,
    abandon_process_groups,
    destroy_process_groups,
    new_reloadable_group,
    patched_torch_distributed,
    reload_process_groups,
    reloader,
    torch_world,
)
from harness.process_group.reloadable import RELOADER

pytestmark = pytest.mark.usefixtures("nothing_is_left")


def test_the_public_functions_share_one_reloader() -> None:
    init()
    group = new_reloadable_group([0], group_desc="alone")
    assert isinstance(group, ReloadableProcessGroup)
    destroy_process_groups()
    assert RELOADER.generation == 1
    assert group.is_destroyed
    reload_process_groups()
    assert RELOADER.groups == (group,)
    assert total(group) == 2.0


def test_without_a_world_both_do_nothing() -> None:
    destroy_process_groups()
    reload_process_groups()
    assert RELOADER.generation == 0
    assert not RELOADER.is_live


@pytest.mark.parametrize("before", [False, True])
def test_nothing_comes_back_of_a_world_that_the_program_destroyed(before: bool) -> None:
    init()
    group = new_reloadable_group([0])
    if before:
        destroy_process_groups()
        with pytest.raises(ProcessGroupDestroyedError, match="call reload_process_groups"):
            total(group)
    dist.destroy_process_group()
    with pytest.raises(ProcessGroupDestroyedError, match="create it again"):
        total(group)


def test_a_group_without_a_world_is_refused_by_pytorch() -> None:
    with pytest.raises(ValueError, match="not been initialized"):
        new_reloadable_group([0])


def test_no_group_is_made_while_all_are_destroyed() -> None:
    init()
    destroy_process_groups()
    with pytest.raises(ProcessGroupError, match="reload_process_groups"):
        new_reloadable_group([0])
    with pytest.raises(ProcessGroupError, match="reload_process_groups"):
        RELOADER.register_group(dist.new_group([0]), [0])


def test_a_stranger_in_the_temporary_world_is_refused_before_it_is_lost() -> None:
    init()
    destroy_process_groups()
    group = dist.new_group([0])
    with pytest.raises(ProcessGroupError, match=r"ranks \[0\] \(gloo\) were not made by the reloader"):
        reload_process_groups()
    dist.destroy_process_group(group)
    reload_process_groups()
    assert RELOADER.is_live


def test_a_handle_is_registered_once() -> None:
    init()
    group = RELOADER.register_group(dist.new_group([0], group_desc="mine"), [0], group_desc="mine")
    assert RELOADER.register_group(group) is group
    assert group.description == "mine"


def test_a_rank_that_is_no_member_gets_what_pytorch_answered() -> None:
    init()
    assert RELOADER.register_group(dist.GroupMember.NON_GROUP_MEMBER, [0]) is dist.GroupMember.NON_GROUP_MEMBER
    assert RELOADER.register_group(None, [0], use_local_synchronization=True) is None
    assert RELOADER.groups == ()


def test_a_world_that_the_program_replaced_is_followed() -> None:
    init()
    old = new_reloadable_group([0])
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=TIMEOUT)
    new = new_reloadable_group([0])
    assert RELOADER.groups == (new,)
    with pytest.raises(ProcessGroupDestroyedError, match="create it again"):
        old.allreduce([torch.ones(1)])
    assert "abandoned" in repr(old)


def test_a_failing_step_names_itself_and_only_abandoning_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    init()
    group = new_reloadable_group([0])
    destroy_process_groups()
    monkeypatch.setattr(ProcessGroupReloader, "_start_world", lambda *_: 1 / 0)
    with pytest.raises(
        ProcessGroupError, match=r"reload_process_groups failed on rank 0 of 1 while starting WORLD: ZeroDivisionError"
    ):
        reload_process_groups()
    monkeypatch.undo()
    for call in (reload_process_groups, destroy_process_groups, lambda: new_reloadable_group([0])):
        with pytest.raises(ProcessGroupError, match="abandon_process_groups"):
            call()
    assert group.is_destroyed
    abandon_process_groups()
    init()
    destroy_process_groups()
    reload_process_groups()


def test_an_interrupt_passes_and_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    init()

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(torch_world, "destroy_world", interrupt)
    with pytest.raises(KeyboardInterrupt):
        destroy_process_groups()
    monkeypatch.undo()
    with pytest.raises(ProcessGroupError, match="destroying WORLD"):
        destroy_process_groups()


def test_pytorchs_exception_hook_is_not_wrapped_again_in_each_generation() -> None:
    init()
    hook = sys.excepthook
    destroy_process_groups()
    reload_process_groups()
    assert sys.excepthook is hook


def test_the_keys_of_the_generation_before_are_gone() -> None:
    store = dist.HashStore()
    store.set("of the user", "1")
    init(store=store)
    if not hasattr(store, "list_keys"):
        pytest.skip("this PyTorch cannot list keys")
    new_reloadable_group([0])
    counts = []
    for _ in range(3):
        destroy_process_groups()
        reload_process_groups()
        counts.append(store.num_keys())
        assert all("reload/" in key or key == "of the user" for key in store.list_keys())
    assert len(set(counts)) == 1


def test_only_the_first_rank_deletes_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    init()
    monkeypatch.setattr(RELOADER, "_rank", 1)
    monkeypatch.setattr(RELOADER, "_first_store", None)
    RELOADER._delete_old_keys()


def test_under_the_patch_pytorchs_own_functions_are_replayed() -> None:
    with patched_torch_distributed():
        init()
        group = new_reloadable_group(ranks=[0])
        destroy_process_groups()
        reload_process_groups()
        assert total(group) == 2.0
    assert all(member.recipe.create is dist.new_group for member in RELOADER._members)


def test_under_the_patch_a_programs_own_groups_can_be_rebuilt() -> None:
    with patched_torch_distributed(reloader=RELOADER):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=TIMEOUT)
        group = dist.new_group([0], group_desc="of the program")
        subgroup, _ = dist.new_subgroups(1)
        assert isinstance(group, ReloadableProcessGroup)
        assert isinstance(subgroup, ReloadableProcessGroup)
        destroy_process_groups()
        reload_process_groups()
        assert RELOADER.groups == (group, subgroup)
        assert total(group) == total(subgroup) == 2.0


def test_what_an_inherited_world_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    init()
    group = new_reloadable_group([0])
    reloader._after_fork()
    destroy_process_groups()
    reload_process_groups()
    with pytest.raises(ProcessGroupError, match="was forked"):
        new_reloadable_group([0])
    with pytest.raises(ProcessGroupDestroyedError):
        group.allreduce([torch.ones(1)])
    monkeypatch.setattr(group, "_process_id", 1)
    with pytest.raises(ProcessGroupDestroyedError, match="process 1 made it"):
        group.allreduce([torch.ones(1)])
    group.shutdown()
    abandon_process_groups()
    init()


def test_aborting_goes_on_where_a_transport_raises(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    init()
    new_reloadable_group([0])
    monkeypatch.setattr(dist.distributed_c10d, "_abort_process_group", lambda: 1 / 0)
    abandon_process_groups()
    assert "ZeroDivisionError" in caplog.text
    assert not dist.is_initialized()


def test_a_transport_that_raises_at_shutdown_leaves_no_world(monkeypatch: pytest.MonkeyPatch) -> None:
    init()
    group = new_reloadable_group([0])
    monkeypatch.setattr(group, "_group", _RaisesAtShutdown())
    with pytest.raises(ProcessGroupError, match="while destroying WORLD: RuntimeError: busy"):
        destroy_process_groups()
    assert not dist.is_initialized()
    assert group.is_destroyed


class _RaisesAtShutdown:
    def shutdown(self) -> None:
        raise RuntimeError("busy")


def test_another_pytorch_is_refused_with_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(dist.distributed_c10d, "_world", object())
        with pytest.raises(ProcessGroupError, match="no pg_map"):
            torch_world.groups()


def test_a_bound_device_is_kept_for_the_next_generation_and_put_aside_for_control(monkeypatch: pytest.MonkeyPatch) -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=TIMEOUT)
    world: Any = torch_world.world()
    world.bound_device_id = torch.device("cuda", 0)
    with torch_world.unbound_world():
        assert world.bound_device_id is None
    assert world.bound_device_id == torch.device("cuda", 0)
    RELOADER._adopt_if_unknown()
    assert RELOADER._world_recipe is not None
    assert RELOADER._world_recipe.arguments["device_id"] == torch.device("cuda", 0)
    monkeypatch.setattr(torch_world, "device_backends", lambda _group: {"cuda": "nccl"})
    control = RELOADER._control_group()
    assert RELOADER._control_group() is control
    assert control.group_desc == "reload control"


def test_a_store_without_a_prefix_is_its_own_base() -> None:
    store = dist.HashStore()
    assert torch_world.store_below(store) is store


def test_pytorchs_own_group_can_be_reached_while_there_is_one() -> None:
    init()
    group = new_reloadable_group([0])
    assert type(group.process_group) is dist.ProcessGroup
    assert group._get_backend(torch.device("cpu")).name() == "gloo"


def test_a_transport_that_tells_no_timeout() -> None:
    init()
    assert torch_world.timeout_of(torch_world.world()) == TIMEOUT

    class Silent:
        _device_types = (torch.device("cpu"),)

        def _get_backend(self, _device: torch.device) -> Any:
            raise RuntimeError("none")

    assert torch_world.timeout_of(Silent()) is None


def test_a_whole_group_can_be_aborted() -> None:
    init()
    group = new_reloadable_group([0])
    group.abort()
    assert group.is_destroyed
    group.abort()
