"""Faults in recording and replaying routing (RXR).

For: the catalogue. Not for: alignment (`routed_experts.py`). Each patches the reference's replay or its filling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from fakes.faults.fault import Fault
from fakes.patching import Patches
from harness import routed_experts
from harness.errors import RoutingReplayError
from harness.routed_experts import replay, replay_filling
from harness.routed_experts.replay import ReplayStage, RoutingReplay, RoutingReplayGroup

Apply: TypeAlias = Callable[[Patches], None]
Shape: TypeAlias = "tuple[int, int] | None"


def _other_layers(change: Callable[[list[int], Sequence[tuple[int, int]], dict[str, Any]], list[int]]) -> Apply:
    """Routers given other layers: `change(right layers, model chunks, keywords)`."""

    def apply(patches: Patches) -> None:
        original = replay_filling.local_moe_layers

        def changed(model_chunks: Sequence[tuple[int, int]], **keywords: Any) -> list[int]:
            return change(original(model_chunks, **keywords), model_chunks, keywords)

        patches.set(replay_filling, "local_moe_layers", changed)

    return apply


def _chunks_taken_as_one(layers: list[int], chunks: Sequence[tuple[int, int]], _keywords: dict[str, Any]) -> list[int]:
    """The layers of later chunks numbered on from the first chunk's end."""
    taken, seen = [], 0
    for first, count in chunks:
        taken += [chunks[0][0] + seen + layer - first for layer in layers if first <= layer < first + count]
        seen += count
    return taken


def _with_prediction_layers(layers: list[int], chunks: Sequence[tuple[int, int]], keywords: dict[str, Any]) -> list[int]:
    num_layers = keywords["num_layers"]
    return layers + [layer for first, count in chunks for layer in range(first, first + count) if layer >= num_layers]


def _frequency_counted_from_one(patches: Patches) -> None:
    original = replay_filling._moe_layers

    def counted(num_layers: int, moe_layer_freq: int | Sequence[int]) -> list[bool]:
        right = original(num_layers, moe_layer_freq)
        return [(layer + 1) % moe_layer_freq == 0 for layer in range(num_layers)] if isinstance(moe_layer_freq, int) else right

    patches.set(replay_filling, "_moe_layers", counted)


def _uneven_count_unnoticed(patches: Patches) -> None:
    original = replay_filling.fill_routing_replay

    def lenient(*arguments: Any, **keywords: Any) -> None:
        try:
            original(*arguments, **keywords)
        except RoutingReplayError:
            return

    patches.set(replay_filling, "fill_routing_replay", lenient)
    patches.set(routed_experts, "fill_routing_replay", lenient)


def _pop(change: Callable[[Callable[..., torch.Tensor], RoutingReplay, ReplayStage, int | None, Shape], torch.Tensor]) -> Apply:
    """Another way to pop: `change(the right way, replay, stage, micro-batch, shape)`."""

    def apply(patches: Patches) -> None:
        original = RoutingReplay._pop

        def changed(router: RoutingReplay, stage: ReplayStage, micro_batch: int | None, shape: Shape) -> torch.Tensor:
            return change(original, router, stage, micro_batch, shape)

        patches.set(RoutingReplay, "_pop", changed)

    return apply


def _read_on(
    pop: Callable[..., torch.Tensor], router: RoutingReplay, stage: ReplayStage, micro_batch: int | None, shape: Shape
) -> torch.Tensor:
    try:
        return pop(router, stage, micro_batch, shape)
    except RoutingReplayError:
        if not router.recorded:
            raise
        return list(router.recorded.values())[-1].to(torch.int32)


def _to_first_device(
    pop: Callable[..., torch.Tensor], router: RoutingReplay, stage: ReplayStage, micro_batch: int | None, shape: Shape
) -> torch.Tensor:
    indices = pop(router, stage, micro_batch, shape)
    return indices.to(f"{indices.device.type}:0")


def _one_counter(patches: Patches) -> None:
    original = RoutingReplay.__init__

    def initialise(router: RoutingReplay, *arguments: Any, **keywords: Any) -> None:
        original(router, *arguments, **keywords)
        router._popped[ReplayStage.REPLAY_BACKWARD] = router._popped[ReplayStage.REPLAY_FORWARD]

    patches.set(RoutingReplay, "__init__", initialise)


def _view_recorded(patches: Patches) -> None:
    def record(router: RoutingReplay, top_indices: torch.Tensor, *, micro_batch: int | None = None) -> None:
        router._recorded[router.require_recordable(top_indices, micro_batch)] = top_indices

    patches.set(RoutingReplay, "record", record)


def _not_pinned(patches: Patches) -> None:
    patches.set(replay, "_empty_on_host", lambda shape, dtype: torch.empty(shape, dtype=dtype))


def _masked_scores(patches: Patches) -> None:
    original = RoutingReplayGroup.wrap_compute_top_k

    def wrap(group: RoutingReplayGroup, compute_top_k: Any, router: RoutingReplay) -> Any:
        right = original(group, compute_top_k, router)

        def compute(scores: torch.Tensor, topk: int, *arguments: Any, **keywords: Any) -> Any:
            kept = torch.zeros_like(scores).scatter(1, scores.topk(topk, dim=1).indices, 1.0)
            return right(scores * kept, topk, *arguments, **keywords)

        return compute

    patches.set(RoutingReplayGroup, "wrap_compute_top_k", wrap)


def _replay_ignored(patches: Patches) -> None:
    original = RoutingReplayGroup.wrap_compute_top_k

    def wrap(group: RoutingReplayGroup, compute_top_k: Any, router: RoutingReplay) -> Any:
        right = original(group, compute_top_k, router)
        recording = (ReplayStage.RECORD, ReplayStage.FALLTHROUGH)

        def compute(*arguments: Any, **keywords: Any) -> Any:
            return (right if group.stage in recording else compute_top_k)(*arguments, **keywords)

        return compute

    patches.set(RoutingReplayGroup, "wrap_compute_top_k", wrap)


def _unconsumed_unnoticed(patches: Patches) -> None:
    patches.set(RoutingReplay, "check_consumed", lambda _router: None)


def _backward_not_required(patches: Patches) -> None:
    original = RoutingReplay.check_consumed

    def check(router: RoutingReplay) -> None:
        if not router.recorded_count or router.forward_count != router.recorded_count:
            original(router)

    patches.set(RoutingReplay, "check_consumed", check)


def _always_enabled(patches: Patches) -> None:
    original = RoutingReplayGroup.__init__
    patches.set(RoutingReplayGroup, "__init__", lambda group, **_options: original(group, enabled=True))


def _empty_accepted(patches: Patches) -> None:
    original = RoutingReplayGroup.check_consumed

    def check(group: RoutingReplayGroup) -> None:
        if any(router.recorded_count for router in group):
            original(group)

    patches.set(RoutingReplayGroup, "check_consumed", check)


FAULTS: tuple[Fault, ...] = tuple(
    Fault(f"rxr-{name}", clauses, summary, seen_in, apply)
    for name, clauses, summary, seen_in, apply in (
        (
            "dense-layers-counted",
            ("RXR-2",),
            "Routers are given layers by their place among the routers, not by layer number.",
            "B142",
            _other_layers(lambda layers, _chunks, _keywords: list(range(len(layers)))),
        ),
        (
            "virtual-pipeline-offset-wrong",
            ("RXR-2",),
            "Later model chunks are taken to follow the first at once.",
            "B143",
            _other_layers(_chunks_taken_as_one),
        ),
        (
            "layers-counted-from-one",
            ("RXR-2",),
            "Layer numbers that start at 1 are used as indices.",
            "derived",
            _other_layers(lambda layers, _chunks, keywords: [min(layer + 1, keywords["num_layers"] - 1) for layer in layers]),
        ),
        (
            "prediction-layers-counted",
            ("RXR-2",),
            "Multi-token-prediction layers are expected to have a replay.",
            "derived",
            _other_layers(_with_prediction_layers),
        ),
        (
            "frequency-counted-from-one",
            ("RXR-2",),
            "An integer moe_layer_freq is applied to layer numbers from 1.",
            "derived",
            _frequency_counted_from_one,
        ),
        (
            "uneven-count-unnoticed",
            ("RXR-2",),
            "Another number of routers than layers is passed over.",
            "derived",
            _uneven_count_unnoticed,
        ),
        (
            "first-in-first-out",
            ("RXR-5",),
            "Pops follow the order of recording, whatever micro-batch is computed.",
            "B153",
            _pop(lambda pop, router, stage, _micro_batch, shape: pop(router, stage, None, shape)),
        ),
        ("over-read-unnoticed", ("RXR-3",), "Reading on repeats the last micro-batch.", "derived", _pop(_read_on)),
        (
            "shape-unchecked",
            ("RXR-3",),
            "Indices of another shape than the scores need are handed out.",
            "seed",
            _pop(lambda pop, router, stage, micro_batch, _shape: pop(router, stage, micro_batch, None)),
        ),
        (
            "indices-widened",
            ("RXR-1",),
            "Pops are int64.",
            "derived",
            _pop(lambda pop, router, stage, micro_batch, shape: pop(router, stage, micro_batch, shape).to(torch.int64)),
        ),
        (
            "indices-on-host",
            ("RXR-1",),
            "Pops stay in host memory.",
            "derived",
            _pop(lambda pop, router, stage, micro_batch, shape: pop(router, stage, micro_batch, shape).cpu()),
        ),
        (
            "first-device",
            ("RXR-1",),
            "Pops arrive on device 0, whichever is current.",
            "derived",
            _pop(_to_first_device),
        ),
        ("one-counter", ("RXR-1",), "Forward and backward pops count together.", "derived", _one_counter),
        (
            "scores-gathered-after-masking",
            ("RXR-5",),
            "Probabilities come from scores masked to the router's own top-k.",
            "derived",
            _masked_scores,
        ),
        ("replay-ignored", ("RXR-5",), "Replaying routers compute their own top-k.", "derived", _replay_ignored),
        ("unconsumed-unnoticed", ("RXR-3",), "A recording that was not consumed passes.", "derived", _unconsumed_unnoticed),
        ("backward-not-required", ("RXR-3",), "Only forward pops are counted.", "derived", _backward_not_required),
        ("whole-tensor-kept", ("RXR-4", "RXR-1"), "A view of the whole tensor is recorded.", "seed", _view_recorded),
        ("not-pinned", ("RXR-4",), "Recordings lie in pageable memory.", "derived", _not_pinned),
        ("disabled-is-ignored", ("RXR-5",), "Replay that is switched off records and requires.", "B154", _always_enabled),
        ("empty-accepted", ("RXR-5",), "Enabled replay that was never filled passes.", "B154", _empty_accepted),
    )
)
