"""Routed experts in frameworks that keep their sizes and ranks in Megatron's parallel state.

For: a drop-in for slime's `prepare_routed_experts_for_routing_replay`, the layout and model chunks as Megatron has them, and slime's
environment variables. Megatron is imported when a function is called, never before. Not for: anything that can be said with
arguments (`layout.py`, `alignment.py`, `replay_filling.py`).
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import torch

from harness.errors import RoutedExpertsError, RoutingReplayError
from harness.routed_experts import alignment
from harness.routed_experts.layout import ParallelLayout
from harness.routed_experts.replay import ReplayStage, RoutingReplayGroup
from harness.routed_experts.replay_filling import ModelChunk


class ParallelState(Protocol):
    """What is asked of `megatron.core.parallel_state` (also known as `megatron.core.mpu`), or of anything that stands for it."""

    def get_tensor_model_parallel_world_size(self) -> int: ...
    def get_tensor_model_parallel_rank(self) -> int: ...
    def get_context_parallel_world_size(self) -> int: ...
    def get_context_parallel_rank(self) -> int: ...


def layout_from_parallel_state(
    *,
    data_pad_size_multiplier: int,
    sequence_parallel: bool,
    allgather_context_parallel: bool,
    parallel_state: ParallelState | None = None,
) -> ParallelLayout:
    """This rank's layout, sizes and ranks taken from Megatron's parallel state.

    Args:
        data_pad_size_multiplier: as in `ParallelLayout`; so are the next two.
        sequence_parallel: whether tensor-parallel ranks divide the tokens.
        allgather_context_parallel: whether sequences are joined before they are cut.
        parallel_state: what to ask; by default `megatron.core.parallel_state`.

    Raises:
        RoutedExpertsError: Megatron is not installed and no `parallel_state` was given.
    """
    state = parallel_state
    if state is None:
        remedy = "give parallel_state, or call align_routed_experts with a ParallelLayout"
        state = cast("ParallelState", _import_megatron("megatron.core.parallel_state", remedy))
    expert_parallel_size = getattr(state, "get_expert_model_parallel_world_size", None)
    return ParallelLayout(
        tensor_parallel_size=state.get_tensor_model_parallel_world_size(),
        tensor_parallel_rank=state.get_tensor_model_parallel_rank(),
        context_parallel_size=state.get_context_parallel_world_size(),
        context_parallel_rank=state.get_context_parallel_rank(),
        expert_parallel_size=1 if expert_parallel_size is None else expert_parallel_size(),
        data_pad_size_multiplier=data_pad_size_multiplier,
        sequence_parallel=sequence_parallel,
        allgather_context_parallel=allgather_context_parallel,
    )


def prepare_routed_experts_for_routing_replay(
    rollout_routed_experts: Sequence[torch.Tensor],
    tokens: Sequence[torch.Tensor],
    *,
    num_experts: int,
    data_pad_size_multiplier: int,
    sequence_parallel: bool,
    allgather_cp: bool,
    parallel_state: ParallelState | None = None,
) -> torch.Tensor:
    """`align_routed_experts` with the signature and the padding of slime's function of this name (RXA-10).

    Wrong input raises ValueError instead of failing an assertion, and padding never wraps around in a narrow dtype.

    Args:
        rollout_routed_experts: for each sequence `[tokens − 1, layers, top_k]`.
        tokens: for each sequence the token ids `[tokens]`.
        num_experts: experts of a layer.
        data_pad_size_multiplier: a rank's length is a multiple of this times the tensor-parallel size.
        sequence_parallel: whether tensor-parallel ranks divide the tokens.
        allgather_cp: whether sequences are joined before they are cut for context parallelism.
        parallel_state: what to ask for sizes and ranks; by default `megatron.core.parallel_state`.

    Returns:
        `[local tokens, layers, top_k]`.

    Raises:
        RoutedExpertsError: as `align_routed_experts` and `layout_from_parallel_state`.
    """
    layout = layout_from_parallel_state(
        data_pad_size_multiplier=data_pad_size_multiplier,
        sequence_parallel=sequence_parallel,
        allgather_context_parallel=allgather_cp,
        parallel_state=parallel_state,
    )
    return alignment.align_routed_experts(rollout_routed_experts, tokens, layout=layout, num_experts=num_experts)


def model_chunks_from_megatron(configs: Sequence[Any]) -> list[ModelChunk]:
    """The layers of this pipeline rank's model chunks, as Megatron's own functions number them.

    Args:
        configs: each chunk's `TransformerConfig`, in virtual-pipeline order.

    Raises:
        RoutedExpertsError: Megatron is not installed.
    """
    block = _import_megatron("megatron.core.transformer.transformer_block", "give the model chunks as integers")
    layer = _import_megatron("megatron.core.transformer.transformer_layer", "give the model chunks as integers")
    chunks = []
    for stage, config in enumerate(configs):
        # Megatron refuses a stage where there is no virtual pipeline.
        vp_stage = stage if len(configs) > 1 else None
        chunks.append(
            ModelChunk(layer.get_transformer_layer_offset(config, vp_stage), block.get_num_layers_to_build(config, vp_stage))
        )
    return chunks


def follow_environment(replays: RoutingReplayGroup, environment: Mapping[str, str] | None = None) -> None:
    """Set a group's `enabled` and `stage` from `ENABLE_ROUTING_REPLAY` (`1` is on) and `ROUTING_REPLAY_STAGE`, as slime names them.

    Args:
        replays: changed in place; left alone where this raises.
        environment: `os.environ` where None.

    Raises:
        RoutingReplayError: replay is on and the stage is missing or none of the four.
    """
    environment = os.environ if environment is None else environment
    if environment.get("ENABLE_ROUTING_REPLAY", "0") != "1":
        replays.enabled = False
        return
    stage = environment.get("ROUTING_REPLAY_STAGE")
    if stage not in [legal.value for legal in ReplayStage]:
        legal_stages = ", ".join(legal.value for legal in ReplayStage)
        raise RoutingReplayError(
            f"ROUTING_REPLAY_STAGE is {stage!r} while ENABLE_ROUTING_REPLAY is 1; legal stages: {legal_stages}"
        )
    replays.enabled, replays.stage = True, ReplayStage(stage)


def _import_megatron(name: str, remedy: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise RoutedExpertsError(f"{name} cannot be imported ({error}); install megatron-core, or {remedy}") from error
