"""Batched point-to-point communication on handles, in a world of one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from harness.errors import ProcessGroupDestroyedError
from harness.process_group import ProcessGroupReloader, batch_isend_irecv, patched_torch_distributed


class BatchingTransport:
    """Stands in for PyTorch's own group; notes what reaches it."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def _get_backend(self, _device: torch.device) -> Any:
        return SimpleNamespace(supports_coalescing=True)

    def _start_coalescing(self, _device: torch.device) -> None:
        self.calls.append("start")

    def _end_coalescing(self, _device: torch.device) -> str:
        self.calls.append("end")
        return "work"

    def send(self, _tensors: Any, peer: int, tag: int) -> None:
        self.calls.append(("send", peer, tag))

    def recv(self, _tensors: Any, peer: int, tag: int) -> None:
        self.calls.append(("recv", peer, tag))


@pytest.fixture
def group() -> Iterator[Any]:
    reloader = ProcessGroupReloader()
    reloader.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=3))
    yield reloader.new_group([0])
    reloader.abandon_process_groups()


def operations(group: Any) -> list[Any]:
    return [dist.P2POp(dist.isend, torch.ones(1), 0, group, tag=3), dist.P2POp(dist.irecv, torch.zeros(1), 0, group)]


@pytest.mark.parametrize("is_patched", [False, True])
def test_a_batch_reaches_the_transport_as_one(group: Any, is_patched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    transport = BatchingTransport()
    with monkeypatch.context() as patch:
        patch.setattr(group, "_group", transport)
        if is_patched:
            with patched_torch_distributed():
                works = dist.batch_isend_irecv(p2p_op_list=operations(group))
        else:
            works = batch_isend_irecv(operations(group))
    assert works == ["work"]
    assert transport.calls == ["start", ("send", 0, 3), ("recv", 0, 0), "end"]


def test_transports_that_do_not_batch_and_other_groups_are_left_to_pytorch(group: Any) -> None:
    seen: list[Any] = []
    for each in (group, None, dist.group.WORLD):
        batch_isend_irecv(operations(each), seen.append)  # type: ignore[arg-type]
    assert [len(batch) for batch in seen] == [2, 2, 2]


def test_a_batch_of_nothing_is_left_to_pytorch() -> None:
    with pytest.raises((ValueError, IndexError)):
        batch_isend_irecv([])


def test_a_destroyed_group_is_refused(group: Any) -> None:
    batch = operations(group)
    group.shutdown()
    with pytest.raises(ProcessGroupDestroyedError):
        batch_isend_irecv(batch)
