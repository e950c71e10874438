"""Checks of RXA on real ranks: each aligns its part, all gather the parts, and the whole is rebuilt exactly."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, require
from conformance.collective_runs import run_on_ranks
from conformance.models.routed_experts import LayoutSizes
from conformance.rank_programs import routed_experts as programs
from conformance.routed_expert_cases import Case


@clause("RXA-1", "RXA-2", tier="multi-rank", examples=0.12)
@given(data=st.data())
def test_the_whole_is_rebuilt_from_what_ranks_gather(backend: BackendUnderTest, data: st.DataObject) -> None:
    """Every rank finds, in what it has gathered, the rows that the model gives each rank, and each real row once."""
    case = data.draw(_cases(backend.ranks.size))
    labels = case.labels()
    due = [case.due(rank, labels).tolist() for rank in case.ranks()]
    copies = 1 if case.sizes.sequence_parallel else case.sizes.tensor_parallel_size
    rows = sorted(row for experts in labels for row in experts.tolist())

    def judge(found: list[Any]) -> None:
        for rank, parts in enumerate(found):
            for number, right in enumerate(due):
                require(
                    parts[number] == right, f"{case}: rank {rank} has from rank {number} the rows {parts[number]}; due were {right}"
                )
            real = sorted(row for part in parts for row in part if row[0][0] == row[0][1])
            require(
                real == sorted(rows * copies),
                f"{case}: rank {rank} has {len(real)} real rows; due were {len(rows)}, {copies} times each",
            )

    run_on_ranks(
        backend,
        "routed experts",
        programs.align_and_gather,
        judge,
        aligner=backend.aligner_path,
        sizes=dataclasses.asdict(case.sizes),
        tokens=[tokens.tolist() for tokens in case.tokens()],
        experts=[experts.tolist() for experts in labels],
        row_shape=[case.layers, case.top_k],
        num_experts=case.num_experts,
    )


@st.composite
def _cases(draw: st.DrawFn, ranks: int) -> Case:
    """A layout whose tensor- and context-parallel ranks are all ranks, and unequal sequences."""
    tensor = draw(st.sampled_from([width for width in range(1, ranks + 1) if ranks % width == 0]))
    sizes = LayoutSizes(
        tensor_parallel_size=tensor,
        context_parallel_size=ranks // tensor,
        data_pad_size_multiplier=draw(st.sampled_from([1, 2, 3])),
        sequence_parallel=draw(st.booleans()),
        allgather_context_parallel=draw(st.booleans()),
    )
    lengths = tuple(draw(st.lists(st.integers(1, 4 * sizes.context_parallel_size), min_size=1, max_size=3)))
    return Case(sizes, lengths, layers=draw(st.integers(1, 2)), top_k=draw(st.integers(2, 3)), num_experts=64)
