"""The algorithm that the reference descends from, written out plainly: pad, slice, pad, slice, whole tensors at a time.

For: RXA-10. It takes sizes and ranks as arguments, and works in int64 unless told otherwise, where nothing wraps around.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def _numbered_rows(count: int, like: torch.Tensor, num_experts: int) -> torch.Tensor:
    layers, top_k = like.shape[1:]
    numbers = torch.arange(count * layers * top_k, dtype=like.dtype) % num_experts
    return numbers.reshape(count, layers, top_k)


def _extend(rows: torch.Tensor, count: int, num_experts: int) -> torch.Tensor:
    return torch.cat([rows, _numbered_rows(count, rows, num_experts)])


def _extend_to_multiple(rows: torch.Tensor, multiple: int, num_experts: int) -> torch.Tensor:
    return _extend(rows, -len(rows) % multiple, num_experts)


def seed_alignment(
    routed_experts: Sequence[torch.Tensor],
    *,
    num_experts: int,
    tensor_parallel_size: int,
    tensor_parallel_rank: int,
    context_parallel_size: int,
    context_parallel_rank: int,
    data_pad_size_multiplier: int,
    sequence_parallel: bool,
    allgather_context_parallel: bool,
    dtype: torch.dtype = torch.int64,
) -> torch.Tensor:
    """What the seed hands to one rank, in the dtype of its input; `dtype` is what it is computed in."""
    sequences = [_extend(rows.to(dtype), 1, num_experts) for rows in routed_experts]
    multiple = tensor_parallel_size * data_pad_size_multiplier
    if allgather_context_parallel:
        whole = _extend_to_multiple(torch.cat(sequences), context_parallel_size * multiple, num_experts)
        rows = whole.chunk(context_parallel_size)[context_parallel_rank]
    else:
        if context_parallel_size > 1:
            halves = 2 * context_parallel_size
            padded = [_extend_to_multiple(rows, halves, num_experts) for rows in sequences]
            chunks = [rows.chunk(halves) for rows in padded]
            early, late = context_parallel_rank, halves - context_parallel_rank - 1
            sequences = [torch.cat([parts[early], parts[late]]) for parts in chunks]
        rows = _extend_to_multiple(torch.cat(sequences), multiple, num_experts)
    if sequence_parallel:
        rows = rows.chunk(tensor_parallel_size)[tensor_parallel_rank]
    return rows.to(routed_experts[0].dtype)
