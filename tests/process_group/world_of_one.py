"""A world of one rank, in the test's own process."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from harness.process_group.reloadable import RELOADER

TIMEOUT = timedelta(seconds=3)


def init(**changes: Any) -> None:
    arguments = {"backend": "gloo", "store": dist.HashStore(), "rank": 0, "world_size": 1, "timeout": TIMEOUT}
    RELOADER.init_process_group(**{**arguments, **changes})


def total(group: Any) -> float:
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=group)
    return float(tensor.sum())
