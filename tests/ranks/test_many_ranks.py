"""What rank programs tell is right for more ranks than float32 has digits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from conformance.models.process_groups import sum_over
from conformance.rank_programs import reloadable_worlds
from conformance.ranks.rank_main import RankContext


@pytest.mark.parametrize("size", [1, 16, 17, 32, 100])
def test_a_sum_over_many_ranks_tells_each_of_them(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    brought: list[torch.Tensor] = []
    monkeypatch.setattr(dist, "all_reduce", lambda tensor, group: brought.append(tensor.clone()))
    for rank in range(size):
        assert told(rank, size) == 2**rank
    total = torch.stack(brought).sum(0)
    monkeypatch.setattr(dist, "all_reduce", lambda tensor, group: tensor.copy_(total))
    assert told(0, size) == sum_over(range(size)) == 2**size - 1
    monkeypatch.setattr(dist, "all_reduce", lambda tensor, group: tensor.fill_(float("nan")))
    assert told(0, size) != told(0, size)


def told(rank: int, size: int) -> Any:
    context = RankContext(rank, size, None, -1, store=("", 0))
    return reloadable_worlds.sum_of_ranks(context, None, torch.device("cpu"))
