"""Batched point-to-point communication on handles.

For: transports that must see sends and receives as one batch, or deadlock: PyTorch batches them for its own class of group alone. Not for:
single sends and receives, which handles pass on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from harness.process_group.handle import ReloadableProcessGroup
from harness.process_group.torch_world import c10d


def batch_isend_irecv(p2p_op_list: list[Any], otherwise: Callable[[list[Any]], list[Any]] | None = None) -> list[Any]:
    """`torch.distributed.batch_isend_irecv`, in one batch on a `ReloadableProcessGroup` too.

    `otherwise` is PyTorch's own function, for other groups and for transports that do not batch.

    Raises:
        ProcessGroupDestroyedError: the group is destroyed; otherwise as PyTorch's function.
    """
    operations = p2p_op_list
    own = otherwise or dist.batch_isend_irecv
    group = getattr(operations[0], "group", None) if operations else None
    if not isinstance(group, ReloadableProcessGroup):
        return own(operations)
    c10d._check_p2p_op_list(operations)
    device = operations[0].tensor.device
    if not group._get_backend(device).supports_coalescing:
        return own(operations)
    with c10d._coalescing_manager(group, device, async_ops=True) as batch:
        for operation in operations:
            peer = "group_dst" if operation.op is dist.isend else "group_src"
            operation.op(operation.tensor, group=group, tag=operation.tag, **{peer: operation.group_peer})
    works: list[Any] = batch.works
    return works
