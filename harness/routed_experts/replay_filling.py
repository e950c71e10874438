"""Which layer of a recording belongs to which router of a pipeline stage.

For: `fill_routing_replay`, and the layer numbers of a pipeline rank's model chunks. Everything is integers given by the caller. Not
for: reading them from a framework (`megatron.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from harness.errors import RoutedExpertsError, RoutingReplayError
from harness.routed_experts.replay import RoutingReplayGroup


class ModelChunk(NamedTuple):
    """Consecutive layers that a pipeline rank builds: one a virtual-pipeline stage."""

    first_layer: int
    """Global number of the first, from 0 over all decoder layers, dense ones included."""
    layer_count: int


def pipeline_model_chunks(
    *, num_layers: int, pipeline_parallel_size: int, pipeline_parallel_rank: int, virtual_pipeline_size: int = 1
) -> list[ModelChunk]:
    """The chunks of a rank where layers are split evenly: stage v of rank r comes after every rank's stage v − 1.

    Args:
        num_layers: decoder layers, divisible by both sizes' product.
        pipeline_parallel_size: at least 1.
        pipeline_parallel_rank: in `range(pipeline_parallel_size)`.
        virtual_pipeline_size: chunks a rank, at least 1.

    Raises:
        RoutedExpertsError: the layers do not divide evenly, or the rank is out of range. Uneven pipelines: give the chunks yourself.
    """
    stages = pipeline_parallel_size * virtual_pipeline_size
    if pipeline_parallel_size < 1 or virtual_pipeline_size < 1 or num_layers < 1 or num_layers % stages:
        raise RoutedExpertsError(
            f"{num_layers} layers do not divide into pipeline_parallel_size {pipeline_parallel_size} × virtual_pipeline_size "
            f"{virtual_pipeline_size} equal chunks; give the model chunks themselves for an uneven pipeline"
        )
    if not 0 <= pipeline_parallel_rank < pipeline_parallel_size:
        raise RoutedExpertsError(f"pipeline_parallel_rank is {pipeline_parallel_rank}; legal: 0 to {pipeline_parallel_size - 1}")
    count = num_layers // stages
    return [
        ModelChunk((stage * pipeline_parallel_size + pipeline_parallel_rank) * count, count)
        for stage in range(virtual_pipeline_size)
    ]


def local_moe_layers(
    model_chunks: Sequence[tuple[int, int]],
    *,
    num_layers: int,
    moe_layer_freq: int | Sequence[int] = 1,
    multi_token_prediction_layers: int = 0,
) -> list[int]:
    """Global numbers of the mixture-of-experts layers in a rank's chunks, in order; dense and multi-token-prediction layers left out.

    Args:
        model_chunks: (first layer, layer count) of each chunk. Multi-token-prediction layers are numbered from `num_layers` on.
        num_layers: decoder layers.
        moe_layer_freq: n: every layer whose number n divides is a mixture of experts; or, for each decoder layer, 1 or 0.
        multi_token_prediction_layers: how many there are.

    Raises:
        RoutedExpertsError: a chunk reaches outside the layers, or `moe_layer_freq` does not fit `num_layers`.
    """
    is_moe = _moe_layers(num_layers, moe_layer_freq)
    end = num_layers + multi_token_prediction_layers
    layers = []
    for first, count in model_chunks:
        if first < 0 or count < 0 or first + count > end:
            raise RoutedExpertsError(
                f"a model chunk of {count} layers from layer {first} reaches outside 0 to {end - 1}: there are {num_layers} decoder "
                f"layers and {multi_token_prediction_layers} multi-token-prediction layers"
            )
        layers += [layer for layer in range(first, min(first + count, num_layers)) if is_moe[layer]]
    if len(set(layers)) < len(layers):
        raise RoutedExpertsError(f"model chunks {[tuple(chunk) for chunk in model_chunks]} overlap")
    return layers


def fill_routing_replay(
    replays: RoutingReplayGroup,
    routed_experts: torch.Tensor,
    *,
    model_chunks: Sequence[tuple[int, int]],
    num_layers: int,
    moe_layer_freq: int | Sequence[int] = 1,
    multi_token_prediction_layers: int = 0,
    micro_batch: int | None = None,
) -> None:
    """Give each router of a rank its layer of one micro-batch's aligned routed experts (RXR-2). Nothing where replay is disabled.

    Args:
        replays: the rank's routers, in the order of `local_moe_layers`.
        routed_experts: `[local tokens, layers, top_k]` as `align_routed_experts` returns it; layers are the decoder's, dense ones
            included, in global order, with or without the multi-token-prediction layers behind them.
        model_chunks: as for `local_moe_layers`; so are the next three.
        num_layers: decoder layers.
        moe_layer_freq: which layers are mixtures of experts.
        multi_token_prediction_layers: how many there are; they have no replay.
        micro_batch: its key; by default the number of micro-batches recorded so far.

    Raises:
        RoutedExpertsError: the recording has another number of layers, or as `local_moe_layers`.
        RoutingReplayError: the rank has another number of routers than mixture-of-experts layers, or the micro-batch is recorded
            already. Nothing is recorded in either case.
    """
    if not replays.enabled:
        return
    layers = local_moe_layers(
        model_chunks,
        num_layers=num_layers,
        moe_layer_freq=moe_layer_freq,
        multi_token_prediction_layers=multi_token_prediction_layers,
    )
    legal = {num_layers, num_layers + multi_token_prediction_layers}
    if routed_experts.ndim != 3 or routed_experts.size(1) not in legal:
        raise RoutedExpertsError(
            f"routed experts have shape {list(routed_experts.shape)}; needed is [local tokens, layers, top_k] with "
            f"{' or '.join(map(str, sorted(legal)))} layers, dense ones included"
        )
    if len(layers) != len(replays):
        raise RoutingReplayError(
            f"{len(replays)} routers for {len(layers)} mixture-of-experts layers {layers} in chunks "
            f"{[tuple(chunk) for chunk in model_chunks]}; routers: {[replay.router for replay in replays]}"
        )
    slices = [routed_experts[:, layer] for layer in layers]
    for replay, indices in zip(replays, slices, strict=True):
        replay.require_recordable(indices, micro_batch)
    for replay, indices in zip(replays, slices, strict=True):
        replay.record(indices, micro_batch=micro_batch)
    replays.filled_count += 1


def _moe_layers(num_layers: int, moe_layer_freq: int | Sequence[int]) -> list[bool]:
    if isinstance(moe_layer_freq, int):
        if moe_layer_freq < 1 or isinstance(moe_layer_freq, bool):
            raise RoutedExpertsError(f"moe_layer_freq is {moe_layer_freq!r}; legal: an integer of at least 1, or a list of 0 and 1")
        return [layer % moe_layer_freq == 0 for layer in range(num_layers)]
    if len(moe_layer_freq) != num_layers or any(value not in (0, 1) for value in moe_layer_freq):
        raise RoutedExpertsError(
            f"moe_layer_freq is {list(moe_layer_freq)}; as a list it holds 0 or 1 for each of the {num_layers} decoder layers"
        )
    return [value == 1 for value in moe_layer_freq]
