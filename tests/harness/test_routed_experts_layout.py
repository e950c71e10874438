"""The layout in integers: worked examples by hand, the model, and refusals."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.models.routed_experts import LayoutSizes, expert_owner
from conformance.routed_expert_cases import Case, cases, is_padding
from harness.errors import RoutedExpertsError
from harness.routed_experts import ParallelLayout, RowKind, RowRun, expert_parallel_range


def layout(**changes: object) -> ParallelLayout:
    fields = {
        "tensor_parallel_size": 1,
        "tensor_parallel_rank": 0,
        "context_parallel_size": 1,
        "context_parallel_rank": 0,
        "data_pad_size_multiplier": 1,
        "sequence_parallel": False,
        "allgather_context_parallel": False,
    }
    return ParallelLayout(**(fields | changes))  # type: ignore[arg-type]


def test_zigzag_by_hand() -> None:
    """Nine tokens over two ranks: chunks of 3, the last of which holds padding only."""
    first = layout(context_parallel_size=2, data_pad_size_multiplier=4)
    assert first.runs([9]) == [
        RowRun(0, 3, RowKind.SOURCE, 0, 0),
        RowRun(3, 3, RowKind.SEQUENCE_PADDING, 0, 9),
        RowRun(6, 2, RowKind.TAIL_PADDING, None, 0),
    ]
    second = first.of_rank(context_parallel_rank=1, tensor_parallel_rank=0)
    assert second.runs([9]) == [
        RowRun(0, 3, RowKind.SOURCE, 0, 3),
        RowRun(3, 2, RowKind.SOURCE, 0, 6),
        RowRun(5, 1, RowKind.SEQUENCE_PADDING, 0, 8),
        RowRun(6, 2, RowKind.TAIL_PADDING, None, 0),
    ]


def test_allgather_by_hand() -> None:
    """Sequences of 3 and 4 tokens over two ranks of 4 rows each; the tail is one for both."""
    first = layout(context_parallel_size=2, data_pad_size_multiplier=2, allgather_context_parallel=True)
    assert first.runs([3, 4]) == [
        RowRun(0, 2, RowKind.SOURCE, 0, 0),
        RowRun(2, 1, RowKind.SEQUENCE_PADDING, 0, 2),
        RowRun(3, 1, RowKind.SOURCE, 1, 0),
    ]
    second = first.of_rank(context_parallel_rank=1, tensor_parallel_rank=0)
    assert second.runs([3, 4]) == [
        RowRun(0, 2, RowKind.SOURCE, 1, 1),
        RowRun(2, 1, RowKind.SEQUENCE_PADDING, 1, 3),
        RowRun(3, 1, RowKind.TAIL_PADDING, None, 0),
    ]


def test_one_context_parallel_rank_cuts_nothing() -> None:
    """Size one is no zigzag, whatever allgather says."""
    assert not layout().zigzag
    assert not layout(context_parallel_size=2, allgather_context_parallel=True).zigzag
    assert layout(context_parallel_size=2).zigzag
    assert layout().runs([5, 2]) == layout(allgather_context_parallel=True).runs([5, 2])


@settings(max_examples=60, deadline=None)
@given(case=cases(least_sequences=0))
def test_runs_cover_the_rows_without_gaps(case: Case) -> None:
    for rank in case.ranks():
        mine = case.layout(rank)
        places = case.places(rank)
        row = 0
        for run in mine.runs(case.lengths):
            assert run.local_row == row
            for place, offset in zip(places[row : row + run.length], itertools.count(), strict=False):
                assert is_padding(place) is (run.kind is not RowKind.SOURCE)
                if run.kind is RowKind.SOURCE:
                    assert (place.sequence, place.position) == (run.sequence, run.first + offset)
            row += run.length
        assert row == mine.local_length(case.lengths) == len(places)


@settings(max_examples=60, deadline=None)
@given(case=cases())
def test_padding_rows_before_counts_the_other_ranks(case: Case) -> None:
    before = 0
    for rank in case.ranks():
        if rank[1] == 0 or case.sizes.sequence_parallel:
            assert case.layout(rank).padding_rows_before(case.lengths) == before
            before += sum(map(is_padding, case.places(rank)))


@settings(max_examples=30, deadline=None)
@given(case=cases(), data=st.data())
def test_locate_is_the_inverse(case: Case, data: st.DataObject) -> None:
    sequence = data.draw(st.integers(0, len(case.lengths) - 1))
    position = data.draw(st.integers(0, case.lengths[sequence] - 1))
    found = case.layout((0, 0)).locate(case.lengths, sequence, position)
    held = case.places((found.context_parallel_rank, found.tensor_parallel_rank or 0))[found.local_row]
    assert (held.sequence, held.position) == (sequence, position)
    assert (found.tensor_parallel_rank is None) is not case.sizes.sequence_parallel


@pytest.mark.parametrize(("sequence", "position"), [(0, 5), (0, -1), (1, 0), (-1, 0)])
def test_locate_refuses_what_is_not_there(sequence: int, position: int) -> None:
    with pytest.raises(RoutedExpertsError, match=f"sequence {sequence}, position {position}"):
        layout().locate([5], sequence, position)


def test_lengths_below_one_are_refused() -> None:
    with pytest.raises(RoutedExpertsError, match="sequence 1 has 0 tokens"):
        layout().runs([4, 0])
    with pytest.raises(RoutedExpertsError, match="sequence 0 has -2 tokens"):
        layout().locate([-2], 0, 0)


@pytest.mark.parametrize("value", [True, 2.0, "2", None])
def test_sizes_that_are_not_integers_are_refused(value: object) -> None:
    with pytest.raises(RoutedExpertsError, match="must be an integer"):
        layout(tensor_parallel_size=value)


def test_integers_of_other_types_are_taken() -> None:
    class Number:
        def __index__(self) -> int:
            return 4

    made = layout(tensor_parallel_size=Number(), context_parallel_size=torch.tensor(2))
    assert (made.tensor_parallel_size, made.context_parallel_size) == (4, 2)
    assert type(made.tensor_parallel_size) is int


def test_all_ranks_come_once() -> None:
    ranks = [
        (one.context_parallel_rank, one.tensor_parallel_rank)
        for one in layout(tensor_parallel_size=3, context_parallel_size=2).all_ranks()
    ]
    assert ranks == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


def test_tokens_keep_their_dtype_and_get_the_padding_id() -> None:
    tokens = [torch.tensor([7, 8, 9], dtype=torch.int16)]
    sliced = layout(data_pad_size_multiplier=4).slice_tokens(tokens, padding_token_id=-5)
    assert sliced.dtype is torch.int16
    assert sliced.tolist() == [7, 8, 9, -5]
    assert layout().slice_tokens([]).tolist() == []


@pytest.mark.parametrize(("experts", "ranks"), [(8, 2), (7, 3), (2, 5), (1, 1)])
def test_expert_parallel_ranges_are_the_models(experts: int, ranks: int) -> None:
    owned = [list(expert_parallel_range(rank, num_experts=experts, expert_parallel_size=ranks)) for rank in range(ranks)]
    assert [expert for one in owned for expert in one] == list(range(experts))
    for rank, mine in enumerate(owned):
        assert all(expert_owner(expert, num_experts=experts, ranks=ranks) == rank for expert in mine)


def test_layout_fields_are_those_of_the_model() -> None:
    ranks = {"tensor_parallel_rank", "context_parallel_rank"}
    assert {field.name for field in dataclasses.fields(ParallelLayout)} - ranks == {
        field.name for field in dataclasses.fields(LayoutSizes)
    }
