"""Against megatron-core itself: the zigzag cut of a batch, its parallel state, its pipeline. Skipped where it is not installed."""

from __future__ import annotations

import pytest
import torch

from harness.routed_experts import (
    ParallelLayout,
    layout_from_parallel_state,
    model_chunks_from_megatron,
    pipeline_model_chunks,
    prepare_routed_experts_for_routing_replay,
)

megatron_core = pytest.importorskip(
    "megatron.core", reason="megatron-core is not installed; docs/routed-experts.md says how to run this"
)
utils = pytest.importorskip("megatron.core.utils")
parallel_state = pytest.importorskip("megatron.core.parallel_state")


def _answer(monkeypatch: pytest.MonkeyPatch, **answers: int) -> None:
    """Megatron's functions made to answer as they would on one rank of a larger job."""
    for name, value in answers.items():
        monkeypatch.setattr(parallel_state, f"get_{name}", lambda *_arguments, value=value, **_keywords: value)


@pytest.mark.parametrize("size", [2, 3, 4, 8])
@pytest.mark.parametrize("chunk", [1, 2, 5])
def test_zigzag_is_megatrons_own(monkeypatch: pytest.MonkeyPatch, size: int, chunk: int) -> None:
    """Megatron cuts sequences whose length is a multiple of 2C already; so does the layout then, without padding."""
    length = 2 * size * chunk
    tokens = torch.arange(length) + 1
    for rank in range(size):
        _answer(monkeypatch, context_parallel_world_size=size, context_parallel_rank=rank)
        due = utils.get_batch_on_this_cp_rank({"tokens": tokens.unsqueeze(0).clone()})["tokens"][0]
        layout = ParallelLayout(
            tensor_parallel_size=1,
            tensor_parallel_rank=0,
            context_parallel_size=size,
            context_parallel_rank=rank,
            data_pad_size_multiplier=1,
            sequence_parallel=False,
            allgather_context_parallel=False,
        )
        assert torch.equal(layout.slice_tokens([tokens]), due)


def test_the_layout_is_read_from_the_parallel_state(monkeypatch: pytest.MonkeyPatch) -> None:
    _answer(
        monkeypatch,
        tensor_model_parallel_world_size=4,
        tensor_model_parallel_rank=3,
        context_parallel_world_size=2,
        context_parallel_rank=1,
        expert_model_parallel_world_size=8,
    )
    layout = layout_from_parallel_state(data_pad_size_multiplier=2, sequence_parallel=True, allgather_context_parallel=False)
    assert (layout.tensor_parallel_size, layout.tensor_parallel_rank) == (4, 3)
    assert (layout.context_parallel_size, layout.context_parallel_rank) == (2, 1)
    assert layout.expert_parallel_size == 8
    aligned = prepare_routed_experts_for_routing_replay(
        [torch.zeros((5, 1, 1), dtype=torch.int32)],
        [torch.zeros(6)],
        num_experts=2,
        data_pad_size_multiplier=2,
        sequence_parallel=True,
        allgather_cp=False,
    )
    assert len(aligned) == layout.local_length([6])


@pytest.mark.parametrize(("ranks", "stages"), [(1, 1), (2, 1), (2, 2), (4, 3)])
def test_model_chunks_are_megatrons_own(monkeypatch: pytest.MonkeyPatch, ranks: int, stages: int) -> None:
    config = pytest.importorskip("megatron.core.transformer.transformer_config").TransformerConfig(
        num_layers=24,
        hidden_size=8,
        num_attention_heads=1,
        pipeline_model_parallel_size=ranks,
        pipeline_dtype=torch.float32,
        virtual_pipeline_model_parallel_size=stages if stages > 1 else None,
    )
    for rank in range(ranks):
        _answer(monkeypatch, pipeline_model_parallel_rank=rank)
        due = pipeline_model_chunks(
            num_layers=24, pipeline_parallel_size=ranks, pipeline_parallel_rank=rank, virtual_pipeline_size=stages
        )
        assert model_chunks_from_megatron([config] * stages) == due
