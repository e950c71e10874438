"""Alignment against the seed's algorithm, its own promises, and naive aligners that must fail by clause."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from seed_algorithm import seed_alignment
from suite_runner import SuiteRun

from conformance.routed_expert_cases import Case, cases
from harness.errors import RoutedExpertsError
from harness.routed_experts import (
    ParallelLayout,
    align_routed_experts,
    check_expert_ids,
    padding,
    prepare_routed_experts_for_routing_replay,
)

_ONE = ParallelLayout(
    tensor_parallel_size=1,
    tensor_parallel_rank=0,
    context_parallel_size=1,
    context_parallel_rank=0,
    data_pad_size_multiplier=1,
    sequence_parallel=False,
    allgather_context_parallel=False,
)


def _arguments(case: Case, rank: tuple[int, int]) -> dict[str, int | bool]:
    sizes = dataclasses.asdict(case.sizes)
    del sizes["expert_parallel_size"]
    return sizes | {"context_parallel_rank": rank[0], "tensor_parallel_rank": rank[1]}


@settings(max_examples=60, deadline=None)
@given(case=cases(), dtype=st.sampled_from([torch.uint8, torch.int16, torch.int32, torch.int64]))
def test_it_equals_the_seed(case: Case, dtype: torch.dtype) -> None:
    labels = case.labels(dtype)
    for rank in case.ranks():
        due = seed_alignment(labels, num_experts=case.num_experts, **_arguments(case, rank))  # type: ignore[arg-type]
        assert torch.equal(case.aligned(align_routed_experts, rank, labels), due)  # type: ignore[arg-type]


@settings(max_examples=30, deadline=None)
@given(case=cases())
def test_the_seeds_signature_gives_the_same(case: Case) -> None:
    labels = case.labels()
    for rank in case.ranks():
        actual = prepare_routed_experts_for_routing_replay(
            labels,
            case.tokens(),
            num_experts=case.num_experts,
            data_pad_size_multiplier=case.sizes.data_pad_size_multiplier,
            sequence_parallel=case.sizes.sequence_parallel,
            allgather_cp=case.sizes.allgather_context_parallel,
            parallel_state=_State(case, rank),
        )
        assert torch.equal(actual, case.aligned(align_routed_experts, rank, labels))  # type: ignore[arg-type]


class _State:
    """What is asked of Megatron's parallel state; no more, so that a missing function would be noticed."""

    def __init__(self, case: Case, rank: tuple[int, int]) -> None:
        self._case, self._rank = case, rank

    def get_tensor_model_parallel_world_size(self) -> int:
        return self._case.sizes.tensor_parallel_size

    def get_tensor_model_parallel_rank(self) -> int:
        return self._rank[1]

    def get_context_parallel_world_size(self) -> int:
        return self._case.sizes.context_parallel_size

    def get_context_parallel_rank(self) -> int:
        return self._rank[0]


def test_without_megatron_the_seeds_signature_says_what_to_do() -> None:
    if _megatron_is_installed():
        pytest.skip("megatron-core is installed")
    with pytest.raises(RoutedExpertsError, match="install megatron-core, or give parallel_state"):
        prepare_routed_experts_for_routing_replay(
            [], [], num_experts=4, data_pad_size_multiplier=1, sequence_parallel=False, allgather_cp=False
        )


def _megatron_is_installed() -> bool:
    import importlib.util

    return importlib.util.find_spec("megatron") is not None


def test_no_sequence_gives_an_empty_tensor() -> None:
    out = align_routed_experts([], [], layout=_ONE, num_experts=4)
    assert (out.shape, out.dtype) == ((0, 0, 0), torch.int32)


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(RoutedExpertsError, match=r"padding is 'zero'; legal policies"):
        align_routed_experts([], [], layout=_ONE, num_experts=4, padding="zero")  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_wide_unsigned_ids_are_checked(dtype: torch.dtype) -> None:
    """Also where the number of experts is past the signed range of the same width."""
    experts = torch.tensor([[[5, 60000]]]).to(dtype)
    check_expert_ids([experts], 60001)
    with pytest.raises(
        RoutedExpertsError, match=r"sequence 0, position 0, layer 0, choice 1: expert id 60000 is not in \[0, 60000\)"
    ):
        check_expert_ids([experts], 60000)


def test_an_unrecorded_row_is_named_as_such() -> None:
    experts = [torch.zeros((3, 2, 1), dtype=torch.int8), torch.zeros((2, 2, 1), dtype=torch.int8)]
    experts[1][1, 0, 0] = -1
    with pytest.raises(RoutedExpertsError, match=r"sequence 1, position 1, .*never recorded"):
        check_expert_ids(experts, 4)


def test_sequences_on_two_devices_are_refused() -> None:
    inputs = [torch.zeros((1, 1, 1), dtype=torch.int32), torch.zeros((1, 1, 1), dtype=torch.int32, device="meta")]
    with pytest.raises(RoutedExpertsError, match=r"on meta, but sequence 0 has .* on cpu"):
        align_routed_experts(inputs, [torch.zeros(2), torch.zeros(2)], layout=_ONE, num_experts=4)


def test_token_ids_must_be_one_dimensional() -> None:
    with pytest.raises(RoutedExpertsError, match=r"token ids have shape \[1, 2\]"):
        align_routed_experts([torch.zeros((1, 1, 1), dtype=torch.int32)], [torch.zeros(1, 2)], layout=_ONE, num_experts=4)


@settings(max_examples=100, deadline=None)
@given(
    layers=st.integers(0, 3),
    top_k=st.integers(0, 5),
    rows=st.integers(0, 40),
    first=st.integers(0, 10**12),
    spare=st.integers(1, 300),
)
def test_sequential_padding_is_a_window_of_one_numbering(layers: int, top_k: int, rows: int, first: int, spare: int) -> None:
    experts = top_k + spare
    out = torch.empty((rows, layers, top_k), dtype=torch.int16)
    padding.write_sequential(out, first=first, num_experts=experts)
    start = first * layers * top_k
    assert out.flatten().tolist() == [(start + element) % experts for element in range(rows * layers * top_k)]


def test_spread_numbering_goes_on_across_blocks() -> None:
    """More padding rows than are computed at a time."""
    whole = torch.empty((700, 1, 3), dtype=torch.int64)
    padding.write_spread(whole, first=5, num_experts=8, expert_parallel_size=4)
    single = torch.empty((1, 1, 3), dtype=torch.int64)
    for row in (0, 255, 256, 699):
        padding.write_spread(single, first=5 + row, num_experts=8, expert_parallel_size=4)
        assert torch.equal(single[0], whole[row])


@pytest.mark.parametrize(
    ("naive", "clauses"),
    [
        ("zigzag_always", {"RXA-1", "RXA-5"}),
        ("zero_padding", {"RXA-4", "RXA-10"}),
        ("last_row_after_slicing", {"RXA-1", "RXA-5"}),
    ],
)
def test_a_naive_aligner_fails_by_clause(naive: str, clauses: set[str], suite: Callable[..., SuiteRun]) -> None:
    run = suite(
        "--backend=fake-musa", "--tier=host", f"--aligner=naive_aligners:{naive}", "--effort=quick", "-k", " or ".join(clauses)
    )
    assert run.exit_code == 1, run.output
    failing = {clause_id for clause_id, outcome in run.outcomes().items() if outcome == "fail"}
    assert clauses <= failing, run.output


def test_the_seed_passes_under_its_own_signature(suite: Callable[..., SuiteRun]) -> None:
    """Where it gives a verdict at all: it takes no policy, and refuses by assertion."""
    run = suite(
        "--backend=fake-musa",
        "--tier=host",
        "--aligner=naive_aligners:seed",
        "--effort=quick",
        "-k",
        "RXA-2 or RXA-5 or whole_equals_the_seed",
    )
    assert run.exit_code == 0, run.output


@pytest.mark.parametrize(
    "path", ["naive_aligners:nothing", "naive_aligners:not_an_aligner", "no_module_of_this_name:f", "naive_aligners"]
)
def test_what_is_no_aligner_is_a_usage_error(path: str, suite: Callable[..., SuiteRun]) -> None:
    run = suite("--backend=fake-musa", "--tier=host", f"--aligner={path}", "-k", "RXA-3")
    assert run.exit_code == 4, run.output
    assert f"--aligner={path}" in run.output
