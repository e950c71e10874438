"""Aligners that the suite must tell from a right one: three naive ones, the seed's algorithm, and what is no aligner.

The older signature reads sizes and ranks from Megatron's parallel state, for which the suite supplies a stand-in.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from harness.routed_experts import ParallelLayout


def _extended(rows: torch.Tensor, count: int, num_experts: int, *, zeros: bool = False) -> torch.Tensor:
    padding = torch.arange(count * rows[0:1].numel() if len(rows) else count * rows.size(1) * rows.size(2)) % num_experts
    padding = padding.reshape(count, rows.size(1), rows.size(2)).to(rows.dtype)
    return torch.cat([rows, torch.zeros_like(padding) if zeros else padding])


def _zigzag(rows: torch.Tensor, layout: ParallelLayout, num_experts: int, *, zeros: bool = False) -> torch.Tensor:
    size, rank = layout.context_parallel_size, layout.context_parallel_rank
    if size == 1:
        return rows
    chunks = _extended(rows, -len(rows) % (2 * size), num_experts, zeros=zeros).chunk(2 * size)
    if len(chunks) < 2 * size:
        return rows
    return torch.cat([chunks[rank], chunks[2 * size - 1 - rank]])


def _finished(rows: torch.Tensor, layout: ParallelLayout, num_experts: int, *, zeros: bool = False) -> torch.Tensor:
    rows = _extended(rows, -len(rows) % (layout.tensor_parallel_size * layout.data_pad_size_multiplier), num_experts, zeros=zeros)
    return rows.chunk(layout.tensor_parallel_size)[layout.tensor_parallel_rank] if layout.sequence_parallel else rows


def zigzag_always(
    routed_experts: Sequence[torch.Tensor],
    tokens: Sequence[torch.Tensor],
    *,
    layout: ParallelLayout,
    num_experts: int,
    **_options: object,
) -> torch.Tensor:
    """Knows nothing of allgather."""
    sequences = [_zigzag(_extended(rows, 1, num_experts), layout, num_experts) for rows in routed_experts]
    return _finished(torch.cat(sequences), layout, num_experts)


def zero_padding(
    routed_experts: Sequence[torch.Tensor],
    tokens: Sequence[torch.Tensor],
    *,
    layout: ParallelLayout,
    num_experts: int,
    **_options: object,
) -> torch.Tensor:
    """Pads with expert 0."""
    rows = [_extended(rows, 1, num_experts, zeros=True) for rows in routed_experts]
    if layout.allgather_context_parallel:
        multiple = layout.context_parallel_size * layout.tensor_parallel_size * layout.data_pad_size_multiplier
        whole = torch.cat(rows)
        whole = _extended(whole, -len(whole) % multiple, num_experts, zeros=True)
        rows = [whole.chunk(layout.context_parallel_size)[layout.context_parallel_rank]]
    else:
        rows = [_zigzag(one, layout, num_experts, zeros=True) for one in rows]
    return _finished(torch.cat(rows), layout, num_experts, zeros=True)


def last_row_after_slicing(
    routed_experts: Sequence[torch.Tensor],
    tokens: Sequence[torch.Tensor],
    *,
    layout: ParallelLayout,
    num_experts: int,
    **_options: object,
) -> torch.Tensor:
    """Slices first, and then adds the row of the last token."""
    sequences = [_extended(_zigzag(rows, layout, num_experts), 1, num_experts) for rows in routed_experts]
    return _finished(torch.cat(sequences), layout, num_experts)


def seed(
    rollout_routed_experts: Sequence[torch.Tensor],
    tokens: Sequence[torch.Tensor],
    *,
    num_experts: int,
    data_pad_size_multiplier: int,
    sequence_parallel: bool,
    allgather_cp: bool,
) -> torch.Tensor:
    """The seed's algorithm under the seed's signature."""
    from megatron.core import mpu  # type: ignore[import-not-found]
    from seed_algorithm import seed_alignment

    return seed_alignment(
        rollout_routed_experts,
        num_experts=num_experts,
        tensor_parallel_size=mpu.get_tensor_model_parallel_world_size(),
        tensor_parallel_rank=mpu.get_tensor_model_parallel_rank(),
        context_parallel_size=mpu.get_context_parallel_world_size(),
        context_parallel_rank=mpu.get_context_parallel_rank(),
        data_pad_size_multiplier=data_pad_size_multiplier,
        sequence_parallel=sequence_parallel,
        allgather_context_parallel=allgather_cp,
    )


def not_an_aligner(tokens: Sequence[torch.Tensor]) -> torch.Tensor:
    """Has neither signature."""
    return tokens[0]


nothing = None
