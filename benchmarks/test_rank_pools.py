"""What one example on four ranks costs: fed to a pool, beside ranks started for it by `torch.multiprocessing.spawn`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing

from conformance.ranks.local_pool import LocalRankPool

_RANKS = 4
_GROUP = "one all_reduce on four ranks"


def _all_reduce(context: Any) -> int:
    context.world()
    tensor = torch.tensor([context.rank])
    dist.all_reduce(tensor)
    return int(tensor.item())


def _spawned(rank: int, path: str) -> None:
    dist.init_process_group("gloo", store=dist.FileStore(path, _RANKS), rank=rank, world_size=_RANKS)
    tensor = torch.tensor([rank])
    dist.all_reduce(tensor)
    assert tensor.item() == 6
    dist.destroy_process_group()


@pytest.mark.benchmark(group=_GROUP)
def test_an_example_in_a_pool(benchmark: Any) -> None:
    pool = LocalRankPool(_RANKS, {"backend": "cpu", "accelerator": "", "devices": None, "fault": ""})
    try:
        assert pool.run(_all_reduce, timeout=120) == [6] * _RANKS
        benchmark.pedantic(pool.run, args=(_all_reduce,), rounds=500)
    finally:
        pool.close()


@pytest.mark.benchmark(group=_GROUP)
def test_an_example_on_spawned_ranks(benchmark: Any) -> None:
    def example() -> None:
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(_spawned, args=(str(Path(folder) / "store"),), nprocs=_RANKS)

    benchmark.pedantic(example, rounds=1)
