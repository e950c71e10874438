"""Faults in where routed experts go and how padding is numbered (RXA).

For: the catalogue. Not for: inputs, outputs and refusals (`routed_experts.py`). Each patches the reference's layout or padding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from fakes.faults.fault import Fault
from fakes.patching import Patches
from harness.routed_experts import padding
from harness.routed_experts.layout import Holding, ParallelLayout

Apply: TypeAlias = Callable[[Patches], None]


# Layout -----------------------------------------------------------------------------------------------------------------------


def _always_zigzag(patches: Patches) -> None:
    patches.set(ParallelLayout, "zigzag", property(lambda layout: layout.context_parallel_size > 1))


def _never_zigzag(patches: Patches) -> None:
    patches.set(ParallelLayout, "zigzag", property(lambda _layout: False))


def _multiple_hard_coded(patches: Patches) -> None:
    patches.set(ParallelLayout, "padding_multiple", property(lambda layout: layout.tensor_parallel_size * 128))


def _other_lengths(change: Callable[[ParallelLayout, int], int]) -> Apply:
    """Zigzag computed from other sequence lengths than the tokens'."""

    def apply(patches: Patches) -> None:
        for name in ("_zigzag_holdings", "_rows_before_tail"):
            original = getattr(ParallelLayout, name)

            def changed(layout: ParallelLayout, lengths: Sequence[int], original: Any = original) -> Any:
                return original(layout, [change(layout, length) for length in lengths])

            patches.set(ParallelLayout, name, changed)

    return apply


def _other_chunks(choose: Callable[[ParallelLayout, bool], int]) -> Apply:
    """A rank's two chunks chosen otherwise; `choose` is told whether it is for the second."""

    def apply(patches: Patches) -> None:
        original = ParallelLayout._zigzag_holdings

        def rechosen(layout: ParallelLayout, lengths: Sequence[int]) -> list[Holding]:
            own = layout.context_parallel_rank, _late(layout)
            shifts = [
                choose(layout, is_second) % (2 * layout.context_parallel_size) - own[is_second] for is_second in (False, True)
            ]
            return [
                (sequence, first + shifts[0] * chunk, count, second + shifts[1] * chunk, second_count)
                for sequence, first, count, second, second_count in original(layout, lengths)
                for chunk in [layout.chunk_length(lengths[sequence])]
            ]

        patches.set(ParallelLayout, "_zigzag_holdings", rechosen)

    return apply


def _late(layout: ParallelLayout) -> int:
    return 2 * layout.context_parallel_size - 1 - layout.context_parallel_rank


def _mirrored(layout: ParallelLayout, is_second: bool) -> int:
    return (
        layout.context_parallel_size + layout.context_parallel_rank if is_second else _late(layout) - layout.context_parallel_size
    )


def _sequence_parallelism_is(value: bool) -> Apply:
    def apply(patches: Patches) -> None:
        for name in ("local_length", "_window"):
            original = getattr(ParallelLayout, name)

            def changed(layout: ParallelLayout, lengths: Sequence[int], original: Any = original) -> Any:
                return original(dataclasses.replace(layout, sequence_parallel=value), lengths)

            patches.set(ParallelLayout, name, changed)

    return apply


def _wrong_ranks_half(patches: Patches) -> None:
    def mirrored(layout: ParallelLayout, lengths: Sequence[int]) -> tuple[int, int]:
        length = layout.local_length(lengths)
        start = length * (layout.tensor_parallel_size - 1 - layout.tensor_parallel_rank) if layout.sequence_parallel else 0
        return start, start + length

    patches.set(ParallelLayout, "_window", mirrored)


def _length_not_padded(patches: Patches) -> None:
    original = ParallelLayout.context_parallel_length

    def unpadded(layout: ParallelLayout, lengths: Sequence[int]) -> int:
        return layout._rows_before_tail(lengths) if layout.zigzag else original(layout, lengths)

    patches.set(ParallelLayout, "context_parallel_length", unpadded)


def _short_chunks_lost(patches: Patches) -> None:
    original = ParallelLayout._zigzag_holdings

    def lost(layout: ParallelLayout, lengths: Sequence[int]) -> list[Holding]:
        return [
            (sequence, first, count * (first < lengths[sequence]), second, second_count * (second < lengths[sequence]))
            for sequence, first, count, second, second_count in original(layout, lengths)
        ]

    patches.set(ParallelLayout, "_zigzag_holdings", lost)


def _ranks_unchecked(patches: Patches) -> None:
    patches.set(ParallelLayout, "__post_init__", lambda _layout: None)


def _tail_restarts(patches: Patches) -> None:
    patches.set(ParallelLayout, "first_tail_number", lambda _layout, _lengths, _row: 0)


def _spread_restarts(patches: Patches) -> None:
    patches.set(ParallelLayout, "padding_rows_before", lambda _layout, _lengths: 0)


# Padding ----------------------------------------------------------------------------------------------------------------------


def _numbered_padding(ids: Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]) -> Apply:
    """Sequential padding with other ids: `ids(numbers of the elements, rows, num_experts)`."""

    def apply(patches: Patches) -> None:
        def write(rows: torch.Tensor, *, first: int, num_experts: int) -> None:
            start = first * rows.size(1) * rows.size(2)
            numbers = torch.arange(start, start + rows.numel()).reshape(rows.shape)
            rows.copy_(ids(numbers, rows, num_experts))

        patches.set(padding, "write_sequential", write)

    return apply


def _zeros(patches: Patches) -> None:
    patches.set(padding, "write_sequential", lambda rows, **_numbers: rows.zero_())
    patches.set(padding, "write_spread", lambda rows, **_numbers: rows.zero_())


def _overflows(numbers: torch.Tensor, rows: torch.Tensor, num_experts: int) -> torch.Tensor:
    return numbers.to(rows.dtype).to(torch.int64) % num_experts


def _spread_in_blocks(patches: Patches) -> None:
    def consecutive(numbers: torch.Tensor, top_k: int, num_experts: int, _ranks: int) -> torch.Tensor:
        return (numbers * top_k + torch.arange(top_k)) % num_experts

    patches.set(padding, "_spread_experts", consecutive)


FAULTS: tuple[Fault, ...] = tuple(
    Fault(f"rxa-{name}", clauses, summary, seen_in, apply)
    for name, clauses, summary, seen_in, apply in (
        ("zigzag-for-allgather", ("RXA-1", "RXA-5"), "Sequences are cut zigzag although they are joined.", "seed", _always_zigzag),
        (
            "allgather-for-zigzag",
            ("RXA-1", "RXA-5"),
            "Sequences are joined and cut although the layout is zigzag.",
            "derived",
            _never_zigzag,
        ),
        (
            "last-row-added-after-slicing",
            ("RXA-1", "RXA-5"),
            "Chunks are computed before the last token's row is added.",
            "B137",
            _other_lengths(lambda _layout, length: length - 1),
        ),
        (
            "truncating-division",
            ("RXA-1", "RXA-5"),
            "Lengths are divided by the number of chunks and rounded down.",
            "B155",
            _other_lengths(lambda layout, length: length // (2 * layout.context_parallel_size) * 2 * layout.context_parallel_size),
        ),
        (
            "padded-one-too-many",
            ("RXA-1", "RXA-5"),
            "A sequence that is divisible already gets one more row a chunk.",
            "derived",
            _other_lengths(lambda _layout, length: length + 1),
        ),
        (
            "multiple-hard-coded",
            ("RXA-3", "RXA-5"),
            "Lengths are padded to 128 times the tensor-parallel size.",
            "B138",
            _multiple_hard_coded,
        ),
        (
            "chunk-order-swapped",
            ("RXA-1", "RXA-5"),
            "A rank's late chunk comes before its early one.",
            "derived",
            _other_chunks(lambda layout, is_second: layout.context_parallel_rank if is_second else _late(layout)),
        ),
        (
            "neighbouring-chunks",
            ("RXA-1", "RXA-5"),
            "Rank r holds chunks 2r and 2r + 1.",
            "derived",
            _other_chunks(lambda layout, is_second: 2 * layout.context_parallel_rank + is_second),
        ),
        (
            "late-chunk-off-by-one",
            ("RXA-1", "RXA-2"),
            "Rank r holds chunk 2C − r instead of 2C − 1 − r.",
            "derived",
            _other_chunks(lambda layout, is_second: _late(layout) + 1 if is_second else layout.context_parallel_rank),
        ),
        (
            "context-ranks-mirrored",
            ("RXA-1", "RXA-5"),
            "Rank r holds the chunks of rank C − 1 − r.",
            "derived",
            _other_chunks(_mirrored),
        ),
        ("wrong-ranks-half", ("RXA-1",), "Tensor-parallel ranks hold each other's part.", "seed", _wrong_ranks_half),
        (
            "sequence-parallel-ignored",
            ("RXA-2", "RXA-3"),
            "Rows are not divided among tensor-parallel ranks.",
            "derived",
            _sequence_parallelism_is(False),
        ),
        (
            "sequence-parallel-assumed",
            ("RXA-2", "RXA-3"),
            "Rows are divided without sequence parallelism too.",
            "derived",
            _sequence_parallelism_is(True),
        ),
        (
            "length-not-padded",
            ("RXA-3",),
            "The rank's rows are not padded to the layout's multiple.",
            "derived",
            _length_not_padded,
        ),
        (
            "short-chunks-lost",
            ("RXA-8", "RXA-1"),
            "A chunk that lies wholly behind its sequence has no rows.",
            "B149",
            _short_chunks_lost,
        ),
        ("ranks-unchecked", ("RXA-9",), "Ranks outside their size and sizes below one are accepted.", "derived", _ranks_unchecked),
        (
            "tail-restarts-on-each-rank",
            ("RXA-4", "RXA-10"),
            "Each rank numbers its part of the tail from 0.",
            "derived",
            _tail_restarts,
        ),
        ("zeros-as-padding", ("RXA-4", "RXA-10"), "Padding rows name expert 0 in every choice.", "B139", _zeros),
        (
            "padding-repeats-an-expert",
            ("RXA-4",),
            "All choices of a padding row name one expert.",
            "derived",
            _numbered_padding(lambda numbers, rows, experts: numbers // rows.size(2) % experts),
        ),
        (
            "padding-past-the-last-expert",
            ("RXA-4",),
            "Padding counts up to num_experts instead of below it.",
            "derived",
            _numbered_padding(lambda numbers, _rows, experts: numbers % (experts + 1)),
        ),
        (
            "padding-starts-at-one",
            ("RXA-10", "RXA-4"),
            "The numbering of padding starts at expert 1.",
            "derived",
            _numbered_padding(lambda numbers, _rows, experts: (numbers + 1) % experts),
        ),
        (
            "padding-overflows",
            ("RXA-7",),
            "Padding is numbered in the routed experts' own dtype, and wraps around.",
            "seed",
            _numbered_padding(_overflows),
        ),
        (
            "spread-in-blocks",
            ("RXA-4",),
            "Consecutive choices go to experts of the same expert-parallel rank.",
            "derived",
            _spread_in_blocks,
        ),
        (
            "spread-restarts-on-each-rank",
            ("RXA-4",),
            "Every rank loads the first expert-parallel ranks first.",
            "derived",
            _spread_restarts,
        ),
    )
)
