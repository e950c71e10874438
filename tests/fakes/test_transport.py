"""The transport of a simulated device: what one process can see of it, and collectives between ranks."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

import fakes
from conformance.ranks.local_pool import LocalRankPool
from fakes.machine import Machine

_RANKS = "transport_programs"


@pytest.fixture(scope="module")
def ranks() -> Iterator[LocalRankPool]:
    pool = LocalRankPool(3, {"backend": "fake-musa", "devices": 3})
    yield pool
    pool.close()


@pytest.fixture
def world(simulated_machine: Machine) -> Iterator[Machine]:
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("cpu:gloo,musa:mccl", store=dist.FileStore(f"{folder}/store", 1), rank=0, world_size=1)
        yield simulated_machine
        dist.destroy_process_group()


def _registries() -> list[Any]:
    backend: Any = dist.Backend
    names = ("_plugins", "backend_type_map", "backend_capability", "default_device_backend_map")
    return [*(dict(getattr(backend, name)) for name in names), list(backend.backend_list), hasattr(backend, "MCCL")]


def test_uninstalling_takes_the_transport_back(simulated_machine: Machine) -> None:
    simulated_machine.uninstall()
    before = _registries()
    assert "mccl" not in before[-2]
    again = fakes.install("musa")
    assert "mccl" in _registries()[-2]
    again.uninstall()
    assert _registries() == before


def test_groups_that_come_and_go_leave_no_streams_and_no_connections(world: Machine) -> None:
    device = world.device(0)

    def make_and_use(count: int) -> list[int]:
        for _ in range(count):
            group = dist.new_group([0], backend="mccl")
            dist.all_reduce(torch.ones(2, device="musa"), group=group)
            dist.destroy_process_group(group)
        return [len(device.communication_streams), len(device.streams), len(os.listdir("/proc/self/fd"))]

    assert make_and_use(50) == make_and_use(3)


def test_more_groups_than_streams_share_them(world: Machine) -> None:
    groups = [dist.new_group([0], backend="mccl") for _ in range(40)]
    for group in groups:
        tensor = torch.ones(2, device="musa")
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [1, 1]
    assert len(world.device(0).communication_streams) == 40
    assert len(set(world.device(0).communication_streams.values())) == 32


def test_a_group_of_the_device_alone_has_no_transport_for_host_tensors(world: Machine) -> None:
    group = dist.new_group([0], backend="mccl")
    with pytest.raises(RuntimeError, match="cpu"):
        dist.all_reduce(torch.ones(2), group=group)
    tensor = torch.ones(2, device="musa")
    dist.all_reduce(tensor, group=group)
    assert tensor.tolist() == [1, 1]
    assert world.persona.transport == dist.get_backend(group)


def test_results_wait_for_the_stream_that_waits(world: Machine) -> None:
    tensor = torch.ones(2, device="musa")
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    work.wait()
    assert (work.is_completed(), work.exception()) == (True, None)
    assert tensor.tolist() == [1, 1]
    assert world.device(0).outstanding_collectives == []


def test_synchronizing_the_device_finishes_what_nobody_waited_for(world: Machine) -> None:
    device: Any = torch.musa  # type: ignore[attr-defined]
    tensor = torch.ones(2, device="musa")
    output = torch.zeros(2, device="musa")
    dist.all_gather([output], tensor, async_op=True)
    device.synchronize()
    assert output.tolist() == [1, 1]


def test_many_collectives_that_nobody_waits_for_keep_no_memory(world: Machine) -> None:
    device: Any = torch.musa  # type: ignore[attr-defined]
    before = device.memory_allocated()
    for _ in range(600):
        dist.all_reduce(torch.ones(1024, device="musa"), async_op=True)
    assert len(world.device(0).outstanding_collectives) <= 256
    device.synchronize()
    assert device.memory_allocated() == before
    assert len(world.device(0).streams) < 40


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: dist.all_reduce(torch.ones(4, 2, device="musa").t()), ValueError, "contiguous"),
        (lambda: dist.all_reduce(torch.ones(2, dtype=torch.int16, device="musa")), TypeError, "int16"),
        (lambda: dist.all_reduce(torch.ones(2, device="musa"), op=dist.ReduceOp.BAND), ValueError, "BAND"),
        (lambda: dist.all_reduce(torch.ones(2, dtype=torch.int32, device="musa"), op=dist.ReduceOp.AVG), TypeError, "AVG"),
        (lambda: dist.all_gather([torch.ones(3, device="musa")], torch.ones(2, device="musa")), ValueError, "elements"),
        (lambda: dist.all_gather([torch.ones(2, device="musa:1")], torch.ones(2, device="musa:0")), ValueError, "one device"),
        (lambda: dist.all_gather([torch.ones(2)], torch.ones(2, device="musa")), (ValueError, RuntimeError), "tensor"),
        (lambda: dist.all_to_all_single(torch.ones(2, device="musa"), torch.ones(2, device="musa"), [1], [2]), ValueError, "rows"),
        (lambda: dist.split_group(split_ranks=[[0]]), RuntimeError, "mccl does not split groups.*new_group"),
    ],
)
def test_misuse_is_refused(world: Machine, call: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        call()
    assert world.device(0).outstanding_collectives == []


def test_data_parallel_training_averages_gradients(ranks: LocalRankPool) -> None:
    found = ranks.run(f"{_RANKS}:data_parallel", timeout=60)
    assert found[0] == found[1] == found[2]
    assert found[0] == [[1.0, 1.0]]


def test_operations_coalesced(ranks: LocalRankPool) -> None:
    assert ranks.run(f"{_RANKS}:coalesced") == [[[3.0], [6.0], [0.0, 1.0, 2.0]]] * 3


def test_messages_cross_without_waiting_for_each_other(ranks: LocalRankPool) -> None:
    assert ranks.run(f"{_RANKS}:crossing") == [[2.0], [0.0], [1.0]]


@pytest.mark.parametrize("schedule", ["eager", "lazy"])
def test_a_disagreement_between_ranks_is_found_when_asked_for_and_no_fault_of_the_device(
    ranks: LocalRankPool, schedule: str
) -> None:
    for text, afterwards in ranks.run(f"{_RANKS}:disagreement", schedule=schedule):
        assert "ALLREDUCE" in text
        assert "of no use" not in text
        assert afterwards == [2.0]


def test_a_rank_that_does_not_come_ends_the_wait_of_the_others(ranks: LocalRankPool) -> None:
    ends = ranks.attempt(f"{_RANKS}:absent", timeout=20)
    assert [end.value for end in ends] == ["RuntimeError", "RuntimeError", "stayed away"]


def test_collectives_on_the_same_tensor_follow_each_other(ranks: LocalRankPool) -> None:
    assert ranks.run(f"{_RANKS}:chained") == [[27.0]] * 3


def test_sources_are_ranks_of_the_job(ranks: LocalRankPool) -> None:
    assert ranks.run(f"{_RANKS}:any_source") == [None, [2, 7.0], None]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("schedule", ["eager", "lazy"])
def test_parts_of_unequal_sizes(ranks: LocalRankPool, schedule: str, asynchronous: bool) -> None:
    found = ranks.run(f"{_RANKS}:unequal_parts", schedule=schedule, asynchronous=asynchronous)
    gathered = [[0.0], [], [2.0, 2.0, 2.0]]
    assert found == [[gathered, [0.0]], [gathered, []], [gathered, [0.0, 3.0, 6.0]]]
