"""Routed experts of a rollout, row by row as one rank's training batch needs them.

For: `align_routed_experts`. Not for: which rows those are (`layout.py`), padding values (`padding.py`), or reading sizes and ranks
from a framework (`megatron.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from harness.errors import RoutedExpertsError
from harness.routed_experts import padding as padding_rows
from harness.routed_experts.layout import ParallelLayout

PaddingPolicy = Literal["sequential", "spread"]


def align_routed_experts(
    routed_experts: Sequence[torch.Tensor],
    tokens: Sequence[torch.Tensor],
    *,
    layout: ParallelLayout,
    num_experts: int,
    padding: PaddingPolicy = "sequential",
    validate: bool = False,
) -> torch.Tensor:
    """This rank's rows of routed experts, in the order in which `layout` gives it the tokens (RXA-1 to RXA-11).

    Args:
        routed_experts: for each sequence the expert ids `[tokens − 1, layers, top_k]`, of one integer dtype that holds
            `num_experts − 1`, on one device. Not written.
        tokens: for each sequence the token ids `[tokens]`; only their number is read.
        layout: sizes and ranks.
        num_experts: experts of a layer, at least `top_k`.
        padding: ids of padding rows: `"sequential"`, the numbering that slime began with, or `"spread"`, which keeps the load of
            the expert-parallel ranks within one of each other.
        validate: whether every id of every sequence is checked to lie in `[0, num_experts)`, as `check_expert_ids` does. Off by
            default, since it reads the whole batch: check ids once, where a rollout arrives. All rows are checked, not this rank's
            alone, so that all ranks refuse alike and none is left waiting for the others.

    Returns:
        `[local tokens, layers, top_k]`, contiguous, of the inputs' dtype and device, sharing no memory with them. Without a
        sequence, where layers, `top_k`, dtype and device are unknown: an empty int32 tensor `[0, 0, 0]` on the CPU.

    Raises:
        RoutedExpertsError: a ValueError; the inputs do not fit together, or (validated) an id is out of range. It names the
            sequence and the numbers.
    """
    if padding not in ("sequential", "spread"):
        raise RoutedExpertsError(f"padding is {padding!r}; legal policies: 'sequential', 'spread'")
    lengths = _checked_lengths(routed_experts, tokens, num_experts)
    if not routed_experts:
        return torch.empty((0, 0, 0), dtype=torch.int32)
    if validate:
        check_expert_ids(routed_experts, num_experts)
    first = routed_experts[0]
    out = torch.empty((layout.local_length(lengths), *first.shape[1:]), dtype=first.dtype, device=first.device)
    _write(out, routed_experts, lengths, layout, _numbering(padding, out, lengths, layout, num_experts))
    return out


def _numbering(
    padding: PaddingPolicy, out: torch.Tensor, lengths: Sequence[int], layout: ParallelLayout, num_experts: int
) -> padding_rows.Numbering:
    if padding == "sequential":
        return padding_rows.SequentialNumbering(out.size(1), out.size(2), num_experts)
    before = layout.padding_rows_before(lengths)
    return padding_rows.SpreadNumbering(out.size(2), num_experts, layout.expert_parallel_size, first=before)


def _write(
    out: torch.Tensor,
    routed_experts: Sequence[torch.Tensor],
    lengths: Sequence[int],
    layout: ParallelLayout,
    numbering: padding_rows.Numbering,
) -> None:
    """Write all rows in one concatenation, but for a long tail, which is written in place."""
    padding = padding_rows.PaddingPieces(numbering, out, layout.most_padding_behind, layout.longest_padding(lengths))
    pieces: list[torch.Tensor] = []
    end = 0
    for sequence, first, count, second, second_count in layout.holdings(lengths):
        experts, rows = routed_experts[sequence], lengths[sequence] - 1
        end += count + second_count
        if count:
            if first < rows:
                pieces.append(experts[first : first + count])
            if first + count > rows:
                pieces += padding.behind(first - rows, count)
        if second_count:
            if second < rows:
                pieces.append(experts[second : second + second_count])
            if second + second_count > rows:
                pieces += padding.behind(second - rows, second_count)
    tail = out.size(0) - end
    if tail:
        number = layout.first_tail_number(lengths, end)
        if padding.holds(number + 1, tail):
            pieces += padding.behind(number + 1, tail)
        else:
            numbering.write_tail(out[-tail:], number, padding.count)
            out = out[:-tail]
    if pieces:
        torch.cat(pieces, out=out)


def check_expert_ids(routed_experts: Sequence[torch.Tensor], num_experts: int) -> None:
    """Refuse ids outside `[0, num_experts)`: −1, the mark of a row that was never recorded, included (RXA-9).

    One pass over each sequence; it waits for the device.

    Args:
        routed_experts: for each sequence `[rows, layers, top_k]` of an integer dtype.
        num_experts: experts of a layer.

    Raises:
        RoutedExpertsError: names the sequence, position, layer, choice and id of the first that is out of range.
    """
    for sequence, experts in enumerate(routed_experts):
        if not experts.numel():
            continue
        ids = _comparable(experts, num_experts)
        lowest, highest = torch.aminmax(ids)
        if int(lowest) < 0 or int(highest) >= num_experts:
            # A narrow dtype would wrap the bound (128 is −128 in int8), so the place is looked for in a wide one.
            wide = ids.to(torch.int64)
            position, layer, choice = ((wide < 0) | (wide >= num_experts)).nonzero()[0].tolist()
            value = int(experts[position, layer, choice])
            unrecorded = "; −1 marks a row that was never recorded" if value == -1 else ""
            raise RoutedExpertsError(
                f"sequence {sequence}, position {position}, layer {layer}, choice {choice}: expert id {value} is not in "
                f"[0, {num_experts}){unrecorded}"
            )


def _checked_lengths(routed_experts: Sequence[torch.Tensor], tokens: Sequence[torch.Tensor], num_experts: int) -> list[int]:
    """The numbers of tokens, once everything that metadata can show has been checked."""
    if num_experts < 1:
        raise RoutedExpertsError(f"num_experts is {num_experts}; it is at least 1")
    if len(routed_experts) != len(tokens):
        raise RoutedExpertsError(f"{len(routed_experts)} sequences of routed experts, but {len(tokens)} of tokens")
    lengths: list[int] = []
    form: tuple[int, int, torch.dtype, torch.device] | None = None
    for experts, ids in zip(routed_experts, tokens, strict=True):
        sequence = len(lengths)
        if len(shape := ids.shape) != 1:
            raise RoutedExpertsError(f"sequence {sequence}: token ids have shape {list(shape)}, not [tokens]")
        (length,) = shape
        if len(shape := experts.shape) != 3:
            raise RoutedExpertsError(
                f"sequence {sequence}: routed experts have shape {list(shape)}, not [tokens − 1, layers, top_k]"
            )
        rows, layers, top_k = shape
        if rows != length - 1:
            raise RoutedExpertsError(
                f"sequence {sequence}: {rows} rows of routed experts for {length} tokens; there must be one row less than tokens, "
                "since the last token is not routed"
            )
        own_form = (layers, top_k, experts.dtype, experts.device)
        if form is None:
            _check_form(experts, num_experts)
            form = own_form
        elif own_form != form:
            raise RoutedExpertsError(
                f"sequence {sequence}: {layers} layers, top_k {top_k}, {experts.dtype} on {experts.device}, but sequence 0 has "
                f"{form[0]} layers, top_k {form[1]}, {form[2]} on {form[3]}; all sequences must agree"
            )
        lengths.append(length)
    return lengths


def _check_form(experts: torch.Tensor, num_experts: int) -> None:
    dtype, top_k = experts.dtype, experts.size(2)
    if dtype.is_floating_point or dtype.is_complex or dtype is torch.bool:
        raise RoutedExpertsError(f"sequence 0: routed experts are {dtype}; expert ids must be of an integer dtype")
    if torch.iinfo(dtype).max < num_experts - 1:
        raise RoutedExpertsError(
            f"sequence 0: {dtype} holds ids up to {torch.iinfo(dtype).max}, too small for {num_experts} experts; use a wider one"
        )
    if top_k > num_experts:
        raise RoutedExpertsError(f"sequence 0: top_k is {top_k}, but there are only {num_experts} experts")


_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
"""PyTorch has no minimum and maximum for the wide unsigned dtypes."""


def _comparable(ids: torch.Tensor, num_experts: int) -> torch.Tensor:
    """The same ids in a dtype that can be compared, where too large a one may come out negative."""
    signed = _SIGNED.get(ids.dtype)
    if signed is None:
        return ids
    return ids.view(signed) if num_experts - 1 <= torch.iinfo(signed).max else ids.to(torch.int64)
