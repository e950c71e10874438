"""What a reloader does about device memory before a collective and in its errors, in a world of one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from world_of_one import TIMEOUT, init, total

from harness.accelerator import default
from harness.errors import NoAcceleratorError
from harness.process_group import (
    FreeMemoryThreshold,
    ProcessGroupReloader,
    new_reloadable_group,
)

pytestmark = pytest.mark.usefixtures("nothing_is_left")


class _Device:
    """An accelerator for notes and policies."""

    device_type = "cuda"

    def __init__(self, free: int = 1 << 30) -> None:
        self.free = free
        self.asked = 0

    def mem_get_info(self) -> tuple[int, int]:
        self.asked += 1
        return self.free, 8 << 30

    def memory_reserved(self) -> int:
        return 3 << 30

    def memory_allocated(self) -> int:
        return 1 << 30

    def device_name(self) -> str:
        return "cuda:0"

    def empty_cache(self) -> None:
        self.free = 4 << 30


def device_reloader(device: Any, policy: Any = None) -> tuple[ProcessGroupReloader, Any]:
    """A reloader with one group that says it is on the device."""
    made = ProcessGroupReloader(accelerator=device, memory_policy=policy)
    made.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=TIMEOUT)
    return made, made.new_group([0], group_desc="on a device")


def test_the_policy_makes_room_before_collectives_and_not_before_queries() -> None:
    device = _Device()
    _, group = device_reloader(device, FreeMemoryThreshold(2 << 30))
    dist.get_rank(group), group.size(), group.name(), dist.get_process_group_ranks(group), group.group_desc
    assert device.asked == 0
    assert total(group) == 2.0
    assert device.free == 4 << 30
    total(group)
    assert device.asked == 2


def test_a_policy_can_refuse_and_the_error_has_the_memory() -> None:
    def refuse(_accelerator: Any) -> None:
        raise MemoryError("no room")

    _, group = device_reloader(_Device(), FreeMemoryThreshold(2 << 30, refuse))
    with pytest.raises(MemoryError) as error:
        group.allreduce([torch.ones(1)])
    assert error.value.__notes__ == [
        "in allreduce on process group 'on a device', rank 0 of 1; device memory of cuda:0: 1024 MiB free of 8192 MiB; the allocator "
        "holds 3072 MiB, of which tensors use 1024 MiB"
    ]


def test_an_error_of_the_transport_has_the_note_too() -> None:
    _, group = device_reloader(_Device())
    with pytest.raises(RuntimeError) as error:
        group.allreduce([torch.ones(1), torch.ones(2)])
    assert "in allreduce on process group 'on a device'" in error.value.__notes__[0]


def test_an_error_of_a_wait_that_follows_at_once_has_the_note_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Work:
        def wait(self) -> None:
            raise RuntimeError("reset by peer")

    class Inner:
        def allreduce(self, _tensors: Any, _options: Any) -> Work:
            return Work()

    _, group = device_reloader(_Device())
    inner = group._group
    monkeypatch.setattr(group, "_group", Inner())
    options: Any = SimpleNamespace(asyncOp=False)
    with pytest.raises(RuntimeError, match="reset by peer") as error:
        group.allreduce([torch.ones(1)], options)
    assert "in allreduce on process group 'on a device'" in error.value.__notes__[0]
    options.asyncOp = True
    assert isinstance(group.allreduce([torch.ones(1)], options), Work)
    group._group = inner


def test_a_note_never_hides_the_error() -> None:
    class Broken(_Device):
        def mem_get_info(self) -> tuple[int, int]:
            raise OSError("gone")

    _, group = device_reloader(Broken())
    with pytest.raises(RuntimeError) as error:
        group.allreduce([torch.ones(1), torch.ones(2)])
    assert "device memory: unknown (OSError: gone)" in error.value.__notes__[0]


def test_a_threshold_is_positive() -> None:
    with pytest.raises(ValueError, match="minimum_free_bytes=0"):
        FreeMemoryThreshold(0)


def test_the_accelerator_of_a_group_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    device, asked = _Device(), []

    def initialize() -> Any:
        asked.append(1)
        return device

    monkeypatch.setattr(default, "initialize_accelerator", initialize)
    made = ProcessGroupReloader()
    assert made.accelerator_of([torch.device("cpu")]) is None
    assert asked == []
    assert made.accelerator_of([torch.device("cuda")]) is device
    assert made.accelerator_of([torch.device("xpu")]) is None
    assert made.accelerator_of([torch.device("cpu"), torch.device("cuda")]) is device
    assert asked == [1]


def test_no_accelerator_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    def initialize() -> Any:
        raise NoAcceleratorError("none")

    monkeypatch.setattr(default, "initialize_accelerator", initialize)
    assert ProcessGroupReloader().accelerator_of([torch.device("cuda")]) is None


def test_a_note_without_an_accelerator_says_so() -> None:
    init()
    group = new_reloadable_group([0])
    with pytest.raises(RuntimeError) as error:
        group.allreduce([torch.ones(1), torch.ones(2)])
    assert error.value.__notes__[0].endswith("device memory: no accelerator")
