"""Expert ids for the rows that no rollout routed.

For: the two numberings of padding rows, written in closed form straight into the rows they fill. Not for: which rows are padding
(`layout.py`).

Every padding row has `top_k` distinct ids in `[0, num_experts)` (RXA-4). Values are computed in int64 and reduced before they are
stored, so no dtype that can hold `num_experts − 1` overflows (RXA-7).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

_BLOCK_ROWS = 256
"""Rows of `spread` computed at a time: bounds the memory that the computation takes beside the output."""


def write_sequential(rows: torch.Tensor, *, first: int, num_experts: int) -> None:
    """Fill consecutive padding rows with the seed's numbering: element i of a group of rows holds i modulo `num_experts`.

    Args:
        rows: contiguous `[rows, layers, top_k]`, any integer dtype; overwritten.
        first: the number in its group of the first of these rows.
        num_experts: at least `top_k`.
    """
    count, layers, top_k = rows.shape
    total = count * layers * top_k
    if not total:
        return
    phase = first * layers * top_k % num_experts
    length = min(num_experts, total)
    cycle = torch.arange(phase, phase + length, device=rows.device)
    if phase + length > num_experts:
        cycle.remainder_(num_experts)
    cycle = cycle.to(rows.dtype)
    flat = rows.view(-1)
    whole = total // length
    flat[: whole * length].view(whole, length).copy_(cycle)
    if whole * length < total:
        flat[whole * length :].copy_(cycle[: total - whole * length])


def sequence_padding(out: torch.Tensor, count: int, num_experts: int) -> torch.Tensor:
    """The first `count` padding rows behind a sequence in the seed's numbering: the last token's row, then the rows behind it.

    The last token's row is a group of its own, so the numbering starts again behind it.

    Returns:
        `[count, layers, top_k]` of `out`'s dtype, device, layers and top_k.
    """
    table = out.new_empty((count, *out.shape[1:]))
    write_sequential(table[-1:] if count == 1 else table[1:], first=0, num_experts=num_experts)
    if count > 1:
        table[0] = table[1]
    return table


def write_spread(out: torch.Tensor, rows: Sequence[int], *, first: int, num_experts: int, expert_parallel_size: int) -> None:
    """Fill padding rows so that in each layer the load of the expert-parallel ranks differs by at most one.

    That holds for any consecutive rows of the numbering, hence on each rank and over all ranks. Where `expert_parallel_size` does not
    divide `num_experts`, ranks own one expert more or less (`expert_parallel_range`), and a `top_k` beyond what the small ranks own
    adds the remainder that no choice avoids.

    Args:
        out: `[local tokens, layers, top_k]`, any integer dtype; only `rows` of it are overwritten.
        rows: local indices of the padding rows, in local order.
        first: the number of the first of them among all padding rows of the layout (`ParallelLayout.padding_rows_before`).
        num_experts: at least `top_k`.
        expert_parallel_size: at least 1.
    """
    for start in range(0, len(rows), _BLOCK_ROWS):
        block = torch.tensor(rows[start : start + _BLOCK_ROWS])
        numbers = torch.arange(first + start, first + start + len(block)).unsqueeze(1)
        experts = _spread_experts(numbers, out.size(2), num_experts, expert_parallel_size).to(out.device, out.dtype)
        out[block.to(out.device)] = experts.unsqueeze(1).expand(-1, out.size(1), -1)


def _spread_experts(numbers: torch.Tensor, top_k: int, num_experts: int, ranks: int) -> torch.Tensor:
    """The experts `[rows, top_k]` of padding rows `numbers` `[rows, 1]`, int64."""
    least, larger_ranks = divmod(num_experts, ranks)
    choice = torch.arange(top_k)
    if top_k <= least * ranks:
        slot = numbers * top_k + choice
        rank, turn = slot % ranks, slot // ranks
        return _first_expert(rank, least, larger_ranks) + turn % (least + (rank < larger_ranks))
    # Every rank gives all that the smallest owns; only the larger ranks' last experts are left to take turns.
    even = (_first_expert(choice % ranks, least, larger_ranks) + choice // ranks)[: least * ranks]
    extra = top_k - least * ranks
    rank = (numbers * extra + torch.arange(extra)) % larger_ranks
    return torch.cat([even.expand(len(numbers), -1), _first_expert(rank, least, larger_ranks) + least], dim=1)


def _first_expert(rank: torch.Tensor, least: int, larger_ranks: int) -> torch.Tensor:
    return rank * least + rank.clamp(max=larger_ranks)


def expert_parallel_range(rank: int, *, num_experts: int, expert_parallel_size: int) -> range:
    """The experts that an expert-parallel rank owns: consecutive, an equal share, one more on the first `num_experts % size` ranks."""
    least, larger_ranks = divmod(num_experts, expert_parallel_size)
    start = rank * least + min(rank, larger_ranks)
    return range(start, start + least + (rank < larger_ranks))
