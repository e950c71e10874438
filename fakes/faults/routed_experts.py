"""Faults in aligning routed experts: what goes in, what comes out, what is refused (RXA).

For: the catalogue. Not for: the layout and the padding (`routed_experts_layout.py`) or replay (`routing_replay.py`). Each patches the
reference's alignment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from fakes.faults.fault import Fault
from fakes.patching import Patches
from harness.errors import RoutedExpertsError
from harness.routed_experts import alignment
from harness.routed_experts.layout import ParallelLayout, RowKind

Apply: TypeAlias = Callable[[Patches], None]


def _before(change: Callable[[list[torch.Tensor], list[torch.Tensor], dict[str, Any]], None]) -> Apply:
    """Inputs changed before they are aligned: `change(routed experts, tokens, keywords)` works on the lists in place."""

    def apply(patches: Patches) -> None:
        original = alignment.align_routed_experts

        def changed(routed_experts: Sequence[torch.Tensor], tokens: Sequence[torch.Tensor], **keywords: Any) -> torch.Tensor:
            experts, ids = list(routed_experts), list(tokens)
            change(experts, ids, keywords)
            return original(experts, ids, **keywords)

        patches.set(alignment, "align_routed_experts", changed)

    return apply


def _after(change: Callable[[torch.Tensor, Sequence[torch.Tensor], list[int], ParallelLayout, int], torch.Tensor]) -> Apply:
    """The output changed: `change(output, routed experts, sequence lengths, layout, num_experts)`."""

    def apply(patches: Patches) -> None:
        original = alignment.align_routed_experts

        def changed(
            routed_experts: Sequence[torch.Tensor],
            tokens: Sequence[torch.Tensor],
            *,
            layout: ParallelLayout,
            num_experts: int,
            **keywords: Any,
        ) -> torch.Tensor:
            out = original(routed_experts, tokens, layout=layout, num_experts=num_experts, **keywords)
            return change(out, routed_experts, list(map(len, tokens)), layout, num_experts) if len(tokens) else out

        patches.set(alignment, "align_routed_experts", changed)

    return apply


def _view_of_the_input(
    out: torch.Tensor, experts: Sequence[torch.Tensor], lengths: list[int], layout: ParallelLayout, _num_experts: int
) -> torch.Tensor:
    runs = layout.runs(lengths)
    if len(runs) == 1 and runs[0].kind is RowKind.SOURCE and runs[0].sequence is not None:
        return experts[runs[0].sequence][runs[0].first : runs[0].first + runs[0].length]
    return out


def _tail_cut_off(
    out: torch.Tensor, _experts: Sequence[torch.Tensor], lengths: list[int], layout: ParallelLayout, _num_experts: int
) -> torch.Tensor:
    runs = layout.runs(lengths)
    return out[: runs[-1].local_row] if runs and runs[-1].kind is RowKind.TAIL_PADDING else out


def _tail_by_rank(
    out: torch.Tensor, _experts: Sequence[torch.Tensor], lengths: list[int], layout: ParallelLayout, num_experts: int
) -> torch.Tensor:
    for run in layout.runs(lengths):
        if run.kind is RowKind.TAIL_PADDING:
            tail = out[run.local_row :]
            tail.copy_((tail.to(torch.int64) + layout.tensor_parallel_rank) % num_experts)
    return out


def _sort_by_length(experts: list[torch.Tensor], tokens: list[torch.Tensor], _keywords: dict[str, Any]) -> None:
    order = sorted(range(len(tokens)), key=lambda sequence: len(tokens[sequence]))
    experts[:] = [experts[sequence] for sequence in order]
    tokens[:] = [tokens[sequence] for sequence in order]


def _drop_one_token_sequences(experts: list[torch.Tensor], tokens: list[torch.Tensor], _keywords: dict[str, Any]) -> None:
    experts[:] = [rows for rows in experts if len(rows)]
    tokens[:] = [ids for ids in tokens if len(ids) > 1]


def _write_inputs(experts: list[torch.Tensor], _tokens: list[torch.Tensor], keywords: dict[str, Any]) -> None:
    for rows in experts:
        rows.copy_((rows.to(torch.int64) + 1) % keywords["num_experts"])


def _copy_inputs(experts: list[torch.Tensor], _tokens: list[torch.Tensor], _keywords: dict[str, Any]) -> None:
    experts[:] = [rows.clone() for rows in experts]


def _trim_extra_row(experts: list[torch.Tensor], tokens: list[torch.Tensor], _keywords: dict[str, Any]) -> None:
    experts[:] = [rows[: len(ids) - 1] if len(rows) == len(ids) else rows for rows, ids in zip(experts, tokens, strict=False)]


def _spread_ignored(_experts: list[torch.Tensor], _tokens: list[torch.Tensor], keywords: dict[str, Any]) -> None:
    keywords["padding"] = "sequential"


def _no_sequence_fails(experts: list[torch.Tensor], _tokens: list[torch.Tensor], _keywords: dict[str, Any]) -> None:
    torch.cat(experts)


def _assertions(patches: Patches) -> None:
    original = alignment._checked_lengths

    def asserting(*arguments: Any) -> list[int]:
        try:
            return original(*arguments)
        except RoutedExpertsError as error:
            raise AssertionError from error

    patches.set(alignment, "_checked_lengths", asserting)


def _narrow_dtype_accepted(patches: Patches) -> None:
    patches.set(alignment, "_check_form", lambda _experts, _num_experts: None)


def _ids_checked(is_bad: Callable[[torch.Tensor, int], torch.Tensor]) -> Apply:
    """Validation that looks for less."""

    def apply(patches: Patches) -> None:
        original = alignment.check_expert_ids

        def check(routed_experts: Sequence[torch.Tensor], num_experts: int) -> None:
            if any(bool(is_bad(rows.to(torch.int64), num_experts).any()) for rows in routed_experts):
                original(routed_experts, num_experts)

        patches.set(alignment, "check_expert_ids", check)

    return apply


FAULTS: tuple[Fault, ...] = tuple(
    Fault(f"rxa-{name}", clauses, summary, seen_in, apply)
    for name, clauses, summary, seen_in, apply in (
        (
            "length-by-own-rows",
            ("RXA-3",),
            "A rank leaves out the padding behind its last sequence.",
            "derived",
            _after(_tail_cut_off),
        ),
        (
            "padding-by-rank",
            ("RXA-2", "RXA-4"),
            "Tail padding depends on the tensor-parallel rank that computes it.",
            "derived",
            _after(_tail_by_rank),
        ),
        ("spread-ignored", ("RXA-4",), "The policy `spread` pads sequentially.", "derived", _before(_spread_ignored)),
        (
            "shared-memory",
            ("RXA-6",),
            "A rank that holds one stretch of one sequence gets a view of it.",
            "derived",
            _after(_view_of_the_input),
        ),
        ("dtype-widened", ("RXA-6",), "Ids come out as int64.", "derived", _after(lambda out, *_rest: out.to(torch.int64))),
        (
            "output-on-host",
            ("RXA-6",),
            "The output lies on the CPU, wherever the input does.",
            "derived",
            _after(lambda out, *_rest: out.cpu()),
        ),
        (
            "output-not-contiguous",
            ("RXA-6",),
            "The output is layer-major in memory.",
            "derived",
            _after(lambda out, *_rest: out.transpose(0, 1).contiguous().transpose(0, 1)),
        ),
        ("inputs-written", ("RXA-6",), "Ids are changed in place in the caller's tensors.", "derived", _before(_write_inputs)),
        (
            "choices-sorted",
            ("RXA-1",),
            "The order of a token's choices is lost.",
            "derived",
            _after(lambda out, *_rest: out.sort(dim=2).values),
        ),
        (
            "sequences-reordered",
            ("RXA-1",),
            "Sequences are packed by length, not in their order.",
            "derived",
            _before(_sort_by_length),
        ),
        (
            "narrow-dtype-accepted",
            ("RXA-7", "RXA-9"),
            "A dtype too small for the experts is accepted, as is any form.",
            "B141",
            _narrow_dtype_accepted,
        ),
        ("no-sequence-fails", ("RXA-8",), "An empty batch is concatenated.", "seed", _before(_no_sequence_fails)),
        (
            "one-token-sequences-dropped",
            ("RXA-8", "RXA-1"),
            "A sequence without a row of routed experts is left out.",
            "derived",
            _before(_drop_one_token_sequences),
        ),
        ("wrong-input-asserts", ("RXA-9",), "Wrong input fails a bare assertion.", "seed", _assertions),
        ("extra-row-accepted", ("RXA-9",), "As many rows as tokens are accepted.", "B146", _before(_trim_extra_row)),
        (
            "unrecorded-rows-accepted",
            ("RXA-9",),
            "Validation lets −1 pass, the mark of a row that was never recorded.",
            "B145",
            _ids_checked(lambda ids, experts: ids >= experts),
        ),
        (
            "too-large-ids-accepted",
            ("RXA-9",),
            "Validation looks for negative ids only.",
            "derived",
            _ids_checked(lambda ids, _experts: ids < 0),
        ),
        ("whole-batch-copied", ("RXA-11",), "Every rank copies the whole batch first.", "seed", _before(_copy_inputs)),
    )
)
