"""One rank's part of a batch of routed experts, and the whole as all ranks gather it.

For: RXA through a real process group. Not for: judging the rows.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from conformance.aligners import load_aligner
from conformance.rank_programs.collectives import KEPT, transport_alone
from conformance.ranks.rank_main import RankContext
from harness.routed_experts.layout import ParallelLayout


def align_and_gather(
    context: RankContext,
    aligner: str,
    sizes: dict[str, Any],
    tokens: list[list[int]],
    experts: list[Any],
    row_shape: list[int],
    num_experts: int,
) -> list[Any]:
    """Every rank's rows `[local tokens, layers, top_k]`, in rank order, as this rank has gathered them. `row_shape` is `[layers, top_k]`.

    Rank r is tensor-parallel rank r modulo the tensor-parallel size, of context-parallel rank r divided by it.
    """
    context_rank, tensor_rank = divmod(context.rank, sizes["tensor_parallel_size"])
    layout = ParallelLayout(**sizes, tensor_parallel_rank=tensor_rank, context_parallel_rank=context_rank)
    align = load_aligner(aligner)
    own = align(
        [torch.tensor(rows, dtype=torch.int32, device=context.device).reshape(len(rows), *row_shape) for rows in experts],
        [torch.tensor(sequence, device=context.device) for sequence in tokens],
        layout=layout,
        num_experts=num_experts,
        padding="sequential",
    )
    group = KEPT.group(context, list(range(context.size)), transport_alone(context))
    parts = [torch.empty_like(own) for _ in range(context.size)]
    context.operation("all_gather of the rows")
    dist.all_gather(parts, own, group=group)
    return [part.cpu().tolist() for part in parts]
