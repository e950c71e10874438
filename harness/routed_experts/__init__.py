"""Expert ids of a rollout, aligned with a rank's training batch, and replayed exactly once.

For: frameworks that train a mixture of experts with the routing of their rollouts. Needs PyTorch alone; Megatron only where sizes
and ranks are to be read from it. Clause ids refer to the contract's areas RXA and RXR.
"""

from __future__ import annotations

from harness.routed_experts.alignment import PaddingPolicy, align_routed_experts, check_expert_ids
from harness.routed_experts.layout import ParallelLayout, RowKind, RowRun, TokenLocation
from harness.routed_experts.megatron import (
    follow_environment,
    layout_from_parallel_state,
    model_chunks_from_megatron,
    prepare_routed_experts_for_routing_replay,
)
from harness.routed_experts.padding import expert_parallel_range
from harness.routed_experts.replay import ComputeTopK, ReplayStage, RoutingReplay, RoutingReplayGroup
from harness.routed_experts.replay_filling import ModelChunk, fill_routing_replay, local_moe_layers, pipeline_model_chunks

__all__ = [
    "ComputeTopK",
    "ModelChunk",
    "PaddingPolicy",
    "ParallelLayout",
    "ReplayStage",
    "RoutingReplay",
    "RoutingReplayGroup",
    "RowKind",
    "RowRun",
    "TokenLocation",
    "align_routed_experts",
    "check_expert_ids",
    "expert_parallel_range",
    "fill_routing_replay",
    "follow_environment",
    "layout_from_parallel_state",
    "local_moe_layers",
    "model_chunks_from_megatron",
    "pipeline_model_chunks",
    "prepare_routed_experts_for_routing_replay",
]
