"""A slow, obviously right model of which row goes where.

For: the oracle of the routed-experts checks. It builds the whole batch of a context-parallel rank as a Python list, step by step as RXA-5
says, and cuts it up; nothing in it is shared with `harness.routed_experts`. Not for: tensors; the checks turn places into ids.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import NamedTuple


@dataclasses.dataclass(frozen=True)
class LayoutSizes:
    """Sizes of a layout, without a rank; the fields are those of `harness.routed_experts.ParallelLayout`."""

    tensor_parallel_size: int
    context_parallel_size: int
    data_pad_size_multiplier: int
    sequence_parallel: bool
    allgather_context_parallel: bool
    expert_parallel_size: int = 1


class Place(NamedTuple):
    """What belongs in one row. `sequence` and `position` name a token; both are None behind a sequence and behind the last one.

    `padding` is None for a row of routed experts; for a padding row, the last token's included, its number in its group, which starts at 0.
    """

    sequence: int | None
    position: int | None
    padding: int | None


def places_of_rank(
    sizes: LayoutSizes, sequence_lengths: Sequence[int], *, context_parallel_rank: int, tensor_parallel_rank: int
) -> list[Place]:
    """What a rank holds, row by row; not to be changed."""
    rows = _rows_of_context_parallel_rank(sizes, tuple(sequence_lengths), context_parallel_rank)
    if not sizes.sequence_parallel:
        return rows
    share = len(rows) // sizes.tensor_parallel_size
    return rows[tensor_parallel_rank * share : (tensor_parallel_rank + 1) * share]


@functools.lru_cache(maxsize=64)
def _rows_of_context_parallel_rank(sizes: LayoutSizes, sequence_lengths: tuple[int, ...], rank: int) -> list[Place]:
    ranks = sizes.context_parallel_size
    multiple = sizes.tensor_parallel_size * sizes.data_pad_size_multiplier
    sequences = [_sequence(number, length) for number, length in enumerate(sequence_lengths)]
    rows: list[Place] = []
    if ranks > 1 and not sizes.allgather_context_parallel:
        for sequence in sequences:
            _pad(sequence, 2 * ranks)
            chunk = len(sequence) // (2 * ranks)
            chunks = [sequence[start : start + chunk] for start in range(0, len(sequence), chunk)]
            rows += chunks[rank] + chunks[2 * ranks - 1 - rank]
        _pad(rows, multiple)
        return rows
    for sequence in sequences:
        rows += sequence
    _pad(rows, ranks * multiple)
    share = len(rows) // ranks
    return rows[rank * share : (rank + 1) * share]


def _sequence(number: int, length: int) -> list[Place]:
    rows = [Place(number, position, None) for position in range(length - 1)]
    return [*rows, Place(number, length - 1, 0)]


def _pad(rows: list[Place], multiple: int) -> None:
    number = 0
    while len(rows) % multiple:
        rows.append(Place(None, None, number))
        number += 1


def sequential_ids(padding: int, *, layers: int, top_k: int, num_experts: int) -> list[list[int]]:
    """The ids `[layers][top_k]` of a padding row in the seed's numbering: a group's elements count up, modulo the experts."""
    first = padding * layers * top_k
    return [[(first + layer * top_k + choice) % num_experts for choice in range(top_k)] for layer in range(layers)]


def expert_owner(expert: int, *, num_experts: int, ranks: int) -> int:
    """The expert-parallel rank that owns an expert: equal consecutive shares, one more on the first `num_experts % ranks`."""
    bounds = 0
    for rank in range(ranks):
        bounds += num_experts // ranks + (1 if rank < num_experts % ranks else 0)
        if expert < bounds:
            return rank
    raise ValueError(f"expert {expert} of {num_experts}")


def unavoidable_imbalance(rows: int, *, top_k: int, num_experts: int, ranks: int) -> int:
    """How far apart the loads of expert-parallel ranks must come to lie, at least 1.

    A rank cannot be chosen more often in a row than it owns experts, so a `top_k` beyond the small ranks' share falls on the larger ones.
    """
    least, larger = divmod(num_experts, ranks)
    extra = max(0, top_k - least * ranks) * rows
    return max(1, math.ceil(extra / larger)) if larger else 1


def moe_layers_of_rank(
    *,
    num_layers: int,
    pipeline_parallel_size: int,
    pipeline_parallel_rank: int,
    virtual_pipeline_size: int,
    moe_layer_freq: int | Sequence[int],
) -> list[int]:
    """Global numbers of a pipeline rank's mixture-of-experts layers, in order: layers are dealt out chunk by chunk, round after round."""
    chunk = num_layers // (pipeline_parallel_size * virtual_pipeline_size)
    mine = []
    for layer in range(num_layers):
        holder = (layer // chunk) % pipeline_parallel_size
        is_moe = layer % moe_layer_freq == 0 if isinstance(moe_layer_freq, int) else moe_layer_freq[layer] == 1
        if holder == pipeline_parallel_rank and is_moe:
            mine.append(layer)
    return mine
