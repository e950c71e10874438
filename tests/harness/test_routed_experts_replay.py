"""Replay on the CPU: its own promises, Megatron's arguments, and slime's environment variables."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

from harness.errors import RoutedExpertsError, RoutingReplayError
from harness.routed_experts import (
    ModelChunk,
    ReplayStage,
    RoutingReplay,
    RoutingReplayGroup,
    fill_routing_replay,
    follow_environment,
    local_moe_layers,
    model_chunks_from_megatron,
    pipeline_model_chunks,
)


def _top_k(
    scores: torch.Tensor, topk: int, num_groups: int | None = None, group_topk: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    values, indices = scores.topk(topk, dim=1)
    return values, indices


def test_without_an_accelerator_pops_arrive_on_the_cpu() -> None:
    replay = RoutingReplay("layer 0")
    replay.record(torch.tensor([[1, 2]]))
    assert replay.pop_forward().device == torch.device("cpu")


def test_the_device_may_be_a_device_or_a_function() -> None:
    for device in (torch.device("meta"), lambda: torch.device("meta")):
        replay = RoutingReplay("layer 0", device=device)
        replay.record(torch.tensor([[1, 2]]))
        assert replay.pop_backward().device.type == "meta"


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_wide_unsigned_recordings_come_back(dtype: torch.dtype) -> None:
    replay = RoutingReplay("layer 0")
    replay.record(torch.tensor([[1, 40000]]).to(dtype))
    assert replay.pop_forward().tolist() == [[1, 40000]]


@pytest.mark.parametrize(
    "indices",
    [
        torch.zeros(2, 2),
        torch.zeros((2, 2), dtype=torch.bool),
        torch.zeros(2, dtype=torch.int32),
        torch.zeros((1, 2, 2), dtype=torch.int32),
    ],
)
def test_what_is_no_top_k_is_not_recorded(indices: torch.Tensor) -> None:
    replay = RoutingReplay("layer 3")
    with pytest.raises(RoutingReplayError, match="router layer 3: cannot record"):
        replay.record(indices)
    assert replay.recorded_count == 0


def test_a_micro_batch_is_recorded_once() -> None:
    replay = RoutingReplay("layer 3")
    replay.record(torch.zeros((1, 1), dtype=torch.int8), micro_batch=5)
    with pytest.raises(RoutingReplayError, match=r"micro-batch 5 is recorded already \(recorded 1, forward 0, backward 0\)"):
        replay.record(torch.zeros((1, 1), dtype=torch.int8), micro_batch=5)


def test_a_micro_batch_is_popped_once_and_must_be_known() -> None:
    replay = RoutingReplay("layer 3")
    replay.record(torch.zeros((1, 1), dtype=torch.int8), micro_batch=5)
    with pytest.raises(RoutingReplayError, match="micro-batch 4 was never recorded"):
        replay.pop_forward(micro_batch=4)
    replay.pop_forward(micro_batch=5)
    with pytest.raises(RoutingReplayError, match="micro-batch 5 was replayed already"):
        replay.pop_forward(micro_batch=5)
    replay.pop_backward(micro_batch=5)
    replay.check_consumed()


def test_the_recorded_tensor_can_be_freed() -> None:
    whole = torch.zeros((16, 4, 2), dtype=torch.int32)
    replay = RoutingReplay("layer 0")
    replay.record(whole[:, 1])
    freed = weakref.ref(whole)
    del whole
    gc.collect()
    assert freed() is None
    assert replay.recorded[0].shape == (16, 2)


def test_rewinding_allows_another_forward_pass() -> None:
    group = RoutingReplayGroup()
    replay = group.add(RoutingReplay("layer 0"))
    replay.record(torch.tensor([[7]]))
    replay.pop_forward()
    group.rewind_forward()
    assert replay.pop_forward().tolist() == [[7]]
    replay.pop_backward()
    group.check_consumed()


def test_clearing_forgets_everything_but_the_routers() -> None:
    group = RoutingReplayGroup()
    replay = group.add(RoutingReplay("layer 0"))
    replay.record(torch.tensor([[7]]))
    replay.pop_forward()
    group.clear()
    assert (len(group), replay.recorded_count, replay.forward_count, group.filled_count) == (1, 0, 0, 0)
    assert group[0] is replay


def test_a_dense_stage_has_nothing_to_consume() -> None:
    """A pipeline rank without a mixture-of-experts layer was filled with nothing, which is not the same as not filled."""
    group = RoutingReplayGroup()
    fill_routing_replay(
        group, torch.zeros((2, 4, 2), dtype=torch.int32), model_chunks=[(0, 2)], num_layers=4, moe_layer_freq=[0, 0, 1, 1]
    )
    group.check_consumed()
    group.clear()
    with pytest.raises(RoutingReplayError, match="no router was added"):
        group.check_consumed()


def test_every_unconsumed_router_is_named() -> None:
    group = RoutingReplayGroup()
    for layer in range(3):
        group.add(RoutingReplay(f"layer {layer}")).record(torch.tensor([[1]]))
    group[1].pop_forward()
    group[1].pop_backward()
    with pytest.raises(RoutingReplayError, match=r"router layer 0 .*; router layer 2 "):
        group.check_consumed()


def test_filling_twice_the_same_micro_batch_changes_nothing() -> None:
    group = RoutingReplayGroup()
    for layer in range(2):
        group.add(RoutingReplay(f"layer {layer}"))
    arguments: dict[str, Any] = {"model_chunks": [(0, 2)], "num_layers": 2, "micro_batch": 3}
    fill_routing_replay(group, torch.zeros((1, 2, 1), dtype=torch.int32), **arguments)
    group[0].clear()
    with pytest.raises(RoutingReplayError, match="router layer 1: micro-batch 3"):
        fill_routing_replay(group, torch.ones((1, 2, 1), dtype=torch.int32), **arguments)
    assert group[0].recorded_count == 0


def test_a_stage_is_restored_also_after_an_error() -> None:
    group = RoutingReplayGroup()
    with pytest.raises(KeyError), group.in_stage(ReplayStage.RECORD, micro_batch=2):
        assert (group.stage, group.micro_batch) == (ReplayStage.RECORD, 2)
        raise KeyError
    assert (group.stage, group.micro_batch) == (ReplayStage.FALLTHROUGH, None)


def test_grouped_top_k_gets_its_arguments() -> None:
    seen = []

    def grouped(scores: torch.Tensor, topk: int, num_groups: int | None = None, group_topk: int | None = None) -> Any:
        seen.append((topk, num_groups, group_topk))
        return _top_k(scores, topk)

    group = RoutingReplayGroup()
    compute = group.wrap_compute_top_k(grouped, group.add(RoutingReplay("layer 0")))
    compute(torch.zeros(1, 4), 2, num_groups=4, group_topk=3)
    with group.in_stage(ReplayStage.RECORD):
        compute(torch.zeros(1, 4), 2, 4, 3)
    assert seen == [(2, 4, 3), (2, 4, 3)]


def test_layers_by_hand() -> None:
    """Two pipeline ranks, two stages each, the first three layers dense."""
    frequency = [0, 0, 0, 1, 1, 1, 1, 1]
    chunks = [
        pipeline_model_chunks(num_layers=8, pipeline_parallel_size=2, pipeline_parallel_rank=rank, virtual_pipeline_size=2)
        for rank in (0, 1)
    ]
    assert chunks == [[ModelChunk(0, 2), ModelChunk(4, 2)], [ModelChunk(2, 2), ModelChunk(6, 2)]]
    assert [local_moe_layers(one, num_layers=8, moe_layer_freq=frequency) for one in chunks] == [[4, 5], [3, 6, 7]]
    assert local_moe_layers([(0, 8)], num_layers=8, moe_layer_freq=3) == [0, 3, 6]
    assert local_moe_layers([(6, 3)], num_layers=8, multi_token_prediction_layers=1) == [6, 7]


@pytest.mark.parametrize(
    ("layers", "size", "rank", "stages"),
    [(7, 2, 0, 1), (8, 2, 2, 1), (8, 2, -1, 1), (8, 2, 0, 3), (8, 0, 0, 1), (0, 1, 0, 1), (8, 1, 0, 0)],
)
def test_pipelines_that_do_not_divide_are_refused(layers: int, size: int, rank: int, stages: int) -> None:
    with pytest.raises(RoutedExpertsError):
        pipeline_model_chunks(
            num_layers=layers, pipeline_parallel_size=size, pipeline_parallel_rank=rank, virtual_pipeline_size=stages
        )


@pytest.mark.parametrize("frequency", [True, -1])
def test_a_frequency_must_be_a_number(frequency: Any) -> None:
    with pytest.raises(RoutedExpertsError, match="moe_layer_freq"):
        local_moe_layers([(0, 2)], num_layers=2, moe_layer_freq=frequency)


def test_the_environment_is_followed_where_asked() -> None:
    group = RoutingReplayGroup()
    follow_environment(group, {})
    assert not group.enabled
    follow_environment(group, {"ENABLE_ROUTING_REPLAY": "1", "ROUTING_REPLAY_STAGE": "replay_backward"})
    assert group.enabled
    assert group.stage is ReplayStage.REPLAY_BACKWARD


@pytest.mark.parametrize("environment", [{}, {"ROUTING_REPLAY_STAGE": ""}, {"ROUTING_REPLAY_STAGE": "replay"}])
def test_an_unknown_stage_is_refused(environment: dict[str, str]) -> None:
    group = RoutingReplayGroup()
    with pytest.raises(RoutingReplayError, match="legal stages: record, replay_forward, replay_backward, fallthrough"):
        follow_environment(group, {"ENABLE_ROUTING_REPLAY": "1", **environment})
    assert group.stage is ReplayStage.FALLTHROUGH


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENABLE_ROUTING_REPLAY", "1")
    monkeypatch.setenv("ROUTING_REPLAY_STAGE", "record")
    group = RoutingReplayGroup(enabled=False)
    follow_environment(group)
    assert group.enabled
    assert group.stage is ReplayStage.RECORD


def test_megatrons_chunks_need_megatron() -> None:
    import importlib.util

    if importlib.util.find_spec("megatron") is not None:
        pytest.skip("megatron-core is installed")
    with pytest.raises(RoutedExpertsError, match="give the model chunks as integers"):
        model_chunks_from_megatron([object()])
