"""A slow, obviously right model of where each token goes.

For: the oracle of the routed-experts checks. It builds the whole batch of a context-parallel rank as a Python list of labels, step
by step as RXA-5 says, and cuts it up; nothing in it is shared with `harness.routed_experts`. Not for: expert ids; a label says which
row of which sequence belongs in a place, and `None` marks a place for padding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

Label: TypeAlias = "tuple[int, int] | None"
"""(sequence, position), or None behind a sequence and behind the last one."""


@dataclasses.dataclass(frozen=True)
class LayoutSizes:
    """Sizes of a layout, without a rank; the fields are those of `harness.routed_experts.ParallelLayout`."""

    tensor_parallel_size: int
    context_parallel_size: int
    data_pad_size_multiplier: int
    sequence_parallel: bool
    allgather_context_parallel: bool
    expert_parallel_size: int = 1


def rows_of_rank(
    sizes: LayoutSizes, sequence_lengths: Sequence[int], *, context_parallel_rank: int, tensor_parallel_rank: int
) -> list[Label]:
    """What a rank holds, row by row. A sequence's last token is labelled too, although it has no row of routed experts."""
    rows = _rows_of_context_parallel_rank(sizes, sequence_lengths, context_parallel_rank)
    if not sizes.sequence_parallel:
        return rows
    share = len(rows) // sizes.tensor_parallel_size
    return rows[tensor_parallel_rank * share : (tensor_parallel_rank + 1) * share]


def _rows_of_context_parallel_rank(sizes: LayoutSizes, sequence_lengths: Sequence[int], rank: int) -> list[Label]:
    ranks = sizes.context_parallel_size
    multiple = sizes.tensor_parallel_size * sizes.data_pad_size_multiplier
    sequences: list[list[Label]] = [
        [(sequence, position) for position in range(length)] for sequence, length in enumerate(sequence_lengths)
    ]
    rows: list[Label] = []
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


def _pad(rows: list[Label], multiple: int) -> None:
    while len(rows) % multiple:
        rows.append(None)
