"""Checks of RXR: recorded routing is handed back to the right router, for the right micro-batch, exactly once.

They run on the backend's device; what is recorded may lie on the host or on the device.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, expect_refusal, require, unsupported
from conformance.device_dtypes import device_dtypes
from conformance.models.routed_experts import moe_layers_of_rank
from conformance.routed_expert_cases import SIGNED_AND_SMALL
from harness.routed_experts import (
    ReplayStage,
    RoutingReplay,
    RoutingReplayGroup,
    fill_routing_replay,
    pipeline_model_chunks,
)

_POPS = {"forward": RoutingReplay.pop_forward, "backward": RoutingReplay.pop_backward}


def _indices(micro_batch: int, *, tokens: int = 3, top_k: int = 2, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    """Choices that name their micro-batch."""
    return (torch.arange(tokens * top_k).reshape(tokens, top_k) + 10 * micro_batch).to(dtype)


def _replay(backend: BackendUnderTest, router: str = "layer 7") -> RoutingReplay:
    return RoutingReplay(router, device=backend.accelerator.device)


def _filled(backend: BackendUnderTest, micro_batches: int) -> RoutingReplay:
    replay = _replay(backend)
    for micro_batch in range(micro_batches):
        replay.record(_indices(micro_batch))
    return replay


@clause("RXR-1", examples=0.5)
@given(data=st.data(), count=st.integers(1, 4), on_device=st.booleans())
def test_pops_follow_the_recording(backend: BackendUnderTest, data: st.DataObject, count: int, on_device: bool) -> None:
    """Forward and backward, in any interleaving, each in the order of recording, in every integer dtype of the device."""
    dtype = data.draw(st.sampled_from(device_dtypes(backend, SIGNED_AND_SMALL)))
    replay = _replay(backend)
    recorded = [_indices(number, tokens=data.draw(st.sampled_from([0, 1, 3])), dtype=dtype) for number in range(count)]
    for indices in recorded:
        replay.record(indices.to(backend.accelerator.device()) if on_device else indices)
    schedule = data.draw(st.permutations(["forward", "backward"] * count))
    positions = {"forward": 0, "backward": 0}
    for direction in schedule:
        actual = _POPS[direction](replay)
        due = recorded[positions[direction]]
        positions[direction] += 1
        require(actual.dtype is torch.int32, f"{direction} pop of a {dtype} recording is {actual.dtype}, due was torch.int32")
        same = torch.equal(actual.cpu(), due.to(torch.int32))
        require(same, f"{direction} pop {positions[direction]} is {actual.cpu().tolist()}, due was {due.tolist()}")
    replay.check_consumed()


@clause("RXR-1")
def test_pops_arrive_on_the_current_device(backend: BackendUnderTest) -> None:
    """Which device that is, is asked at each pop."""
    replay = _filled(backend, backend.device_count)
    for index in reversed(range(backend.device_count)):
        backend.accelerator.set_device(index)
        actual = backend.accelerator.device(replay.pop_forward().device)
        due = backend.accelerator.device(index)
        require(actual == due, f"with {due} current a pop arrived on {actual}")


@clause("RXR-1")
def test_a_recording_is_a_copy(backend: BackendUnderTest) -> None:
    """What the caller writes afterwards, to the recorded or to the popped tensor, changes no pop."""
    replay, recorded = _replay(backend), _indices(0)
    replay.record(recorded)
    recorded.fill_(99)
    forward = replay.pop_forward()
    first = forward.cpu().tolist()
    require(first == _indices(0).tolist(), f"after the recorded tensor was overwritten the pop is {first}")
    forward.fill_(98)
    backward = replay.pop_backward().cpu().tolist()
    require(backward == _indices(0).tolist(), f"after the forward pop was overwritten the backward pop is {backward}")


@st.composite
def _pipelines(draw: st.DrawFn) -> tuple[int, int, int, int, int | list[int]]:
    ranks, stages, chunk = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    num_layers = ranks * stages * chunk
    frequency = draw(st.one_of(st.integers(1, 4), st.lists(st.integers(0, 1), min_size=num_layers, max_size=num_layers)))
    return num_layers, ranks, stages, draw(st.integers(0, 2)), frequency


@clause("RXR-2", examples=0.5)
@given(pipeline=_pipelines(), recorded_with_prediction_layers=st.booleans())
def test_each_router_gets_its_own_layer(
    backend: BackendUnderTest, pipeline: tuple[int, int, int, int, int | list[int]], recorded_with_prediction_layers: bool
) -> None:
    """Layer n of the recording holds n; every router of every pipeline rank must get its own number."""
    num_layers, ranks, stages, prediction_layers, frequency = pipeline
    columns = num_layers + (prediction_layers if recorded_with_prediction_layers else 0)
    recording = torch.arange(columns, dtype=torch.int32).reshape(1, columns, 1).repeat(4, 1, 2)
    for rank in range(ranks):
        due = moe_layers_of_rank(
            num_layers=num_layers,
            pipeline_parallel_size=ranks,
            pipeline_parallel_rank=rank,
            virtual_pipeline_size=stages,
            moe_layer_freq=frequency,
        )
        chunks = pipeline_model_chunks(
            num_layers=num_layers, pipeline_parallel_size=ranks, pipeline_parallel_rank=rank, virtual_pipeline_size=stages
        )
        if rank == ranks - 1 and prediction_layers:
            chunks.append((num_layers, prediction_layers))  # type: ignore[arg-type]
        group = _group(backend, due)
        fill_routing_replay(
            group,
            recording,
            model_chunks=chunks,
            num_layers=num_layers,
            moe_layer_freq=frequency,
            multi_token_prediction_layers=prediction_layers,
        )
        actual = [int(replay.pop_forward().cpu()[0, 0]) for replay in group]
        require(actual == due, f"pipeline rank {rank} of {pipeline}: routers got layers {actual}, due were {due}")


@clause("RXR-2")
@pytest.mark.parametrize("routers", [0, 1, 3])
def test_an_uneven_count_is_refused(backend: BackendUnderTest, routers: int) -> None:
    """Two mixture-of-experts layers: any other number of routers raises, and nothing is recorded."""
    group = _group(backend, list(range(routers)))
    arguments: dict[str, Any] = {"model_chunks": [(1, 3)], "num_layers": 4, "moe_layer_freq": [1, 0, 1, 1]}
    refusal = expect_refusal(fill_routing_replay, group, torch.zeros((2, 4, 2), dtype=torch.int32), **arguments)
    _require_text(refusal, str(routers), "2")
    require(not any(replay.recorded_count for replay in group), "a refused filling left something recorded")


@clause("RXR-2")
@pytest.mark.parametrize(
    "arguments",
    [
        {"model_chunks": [(0, 5)], "num_layers": 4},
        {"model_chunks": [(-1, 2)], "num_layers": 4},
        {"model_chunks": [(0, 4)], "num_layers": 4, "moe_layer_freq": [1, 1, 1]},
        {"model_chunks": [(0, 4)], "num_layers": 4, "moe_layer_freq": [1, 1, 1, 2]},
        {"model_chunks": [(0, 4)], "num_layers": 4, "moe_layer_freq": 0},
        {"model_chunks": [(0, 2), (1, 2)], "num_layers": 4},
        {"model_chunks": [(0, 4)], "num_layers": 3},
    ],
    ids=str,
)
def test_layers_outside_the_model_are_refused(backend: BackendUnderTest, arguments: dict[str, Any]) -> None:
    """Chunks and layer patterns that do not fit the recording."""
    group = _group(backend, [0, 1, 2, 3])
    recording = torch.zeros((2, 4, 2), dtype=torch.int32)
    expect_refusal(fill_routing_replay, group, recording, errors=(ValueError,), **arguments)
    require(not any(replay.recorded_count for replay in group), "a refused filling left something recorded")


@clause("RXR-3", examples=0.3)
@given(count=st.integers(1, 4), data=st.data())
def test_only_exactly_once_is_consumed(backend: BackendUnderTest, count: int, data: st.DataObject) -> None:
    """Any other pair of counts raises with the router and the counts; so does reading on."""
    forward, backward = data.draw(st.integers(0, count)), data.draw(st.integers(0, count))
    group = RoutingReplayGroup()
    replay = group.add(_filled(backend, count))
    for _ in range(forward):
        replay.pop_forward()
    for _ in range(backward):
        replay.pop_backward()
    if forward == backward == count:
        group.check_consumed()
    else:
        for check in (replay.check_consumed, group.check_consumed):
            _require_text(expect_refusal(check, errors=(RuntimeError,)), "layer 7", str(count), str(forward), str(backward))
    for pop, popped in ((replay.pop_forward, forward), (replay.pop_backward, backward)):
        if popped == count:
            _require_text(expect_refusal(pop, errors=(RuntimeError,)), "layer 7", str(count))


@clause("RXR-3")
@pytest.mark.parametrize("stage", [ReplayStage.REPLAY_FORWARD, ReplayStage.REPLAY_BACKWARD])
@pytest.mark.parametrize(("tokens", "top_k"), [(4, 2), (2, 2), (3, 1), (3, 3)])
def test_another_shape_than_the_scores_is_refused(backend: BackendUnderTest, stage: ReplayStage, tokens: int, top_k: int) -> None:
    """And nothing is consumed by it."""
    group, replay = RoutingReplayGroup(), _filled(backend, 1)
    compute = group.wrap_compute_top_k(_plain_top_k, group.add(replay))
    scores = torch.zeros((tokens, 8), device=backend.accelerator.device())
    with group.in_stage(stage):
        _require_text(expect_refusal(compute, scores, top_k, errors=(RuntimeError,)), "layer 7", str(tokens), str(top_k))
        compute(torch.zeros((3, 8), device=backend.accelerator.device()), 2)


@clause("RXR-4")
def test_a_slice_does_not_keep_the_whole_alive(backend: BackendUnderTest) -> None:
    """The memory behind a recording holds its own indices and no more, also where the slice is contiguous."""
    whole = torch.zeros((64, 48, 8), dtype=torch.int32)
    replay = _replay(backend)
    for indices in (whole[:, 3], whole[:5].reshape(-1, 8), whole[:, 4].to(backend.accelerator.device())):
        replay.record(indices)
    for micro_batch, indices in replay.recorded.items():
        held, due = indices.untyped_storage().nbytes(), indices.numel() * indices.element_size()
        require(held == due, f"micro-batch {micro_batch}: {held} bytes are kept alive for {due} bytes of indices")
        require(indices.device.type == "cpu", f"micro-batch {micro_batch} is kept on {indices.device}, due was host memory")


@clause("RXR-4")
def test_a_recording_is_pinned(backend: BackendUnderTest) -> None:
    """Where host memory can be pinned for the backend."""
    if not backend.accelerator.supports("pinned_memory"):
        unsupported(f"pinned_memory: {backend.accelerator.probe('pinned_memory').evidence}")
    for micro_batch, indices in _filled(backend, 2).recorded.items():
        require(indices.is_pinned(), f"micro-batch {micro_batch} lies in pageable memory")


@clause("RXR-5", examples=0.5)
@given(data=st.data(), count=st.integers(2, 5))
def test_schedules_replay_their_micro_batch(backend: BackendUnderTest, data: st.DataObject, count: int) -> None:
    """Through the wrapped top-k, forward and backward in any orders that run a forward before its backward."""
    group = RoutingReplayGroup()
    replay = group.add(_replay(backend))
    compute = group.wrap_compute_top_k(_refuse_to_compute, replay)
    for micro_batch in data.draw(st.permutations(range(count))):
        replay.record(_indices(micro_batch, tokens=2) % 7, micro_batch=micro_batch)
    scores = torch.arange(14.0, device=backend.accelerator.device()).reshape(2, 7)
    waiting = list(data.draw(st.permutations(range(count))))
    started: list[int] = []
    while waiting or started:
        forward = not started or (waiting and data.draw(st.booleans()))
        micro_batch = waiting.pop() if forward else started.pop(data.draw(st.integers(0, len(started) - 1)))
        with group.in_stage(ReplayStage.REPLAY_FORWARD if forward else ReplayStage.REPLAY_BACKWARD, micro_batch=micro_batch):
            probabilities, indices = compute(scores, 2)
        if forward:
            started.append(micro_batch)
        due = (_indices(micro_batch, tokens=2) % 7).tolist()
        require(indices.cpu().tolist() == due, f"micro-batch {micro_batch} replayed {indices.cpu().tolist()}, due was {due}")
        dense = [[7 * row + choice for choice in choices] for row, choices in enumerate(due)]
        require(probabilities.cpu().tolist() == dense, f"probabilities are {probabilities.cpu().tolist()}, due were {dense}")
    group.check_consumed()


@clause("RXR-5")
def test_probabilities_come_from_the_dense_scores(backend: BackendUnderTest) -> None:
    """Also at experts that the router itself would not choose, and gradients reach them."""
    group = RoutingReplayGroup()
    replay = group.add(_replay(backend))
    replay.record(torch.tensor([[0, 1], [3, 0]], dtype=torch.uint8))
    compute = group.wrap_compute_top_k(_plain_top_k, replay)
    values = [[0.125, 0.25, 0.5, 1.0], [0.125, 0.25, 0.5, 1.0]]
    scores = torch.tensor(values, device=backend.accelerator.device(), requires_grad=True)
    with group.in_stage(ReplayStage.REPLAY_FORWARD):
        probabilities, indices = compute(scores, 2)
    require(indices.cpu().tolist() == [[0, 1], [3, 0]], f"indices are {indices.cpu().tolist()}")
    shown = probabilities.detach().cpu().tolist()
    require(shown == [[0.125, 0.25], [1.0, 0.125]], f"probabilities {shown} are not the dense scores at the recorded experts")
    torch.autograd.backward(probabilities.sum())
    gradient = None if scores.grad is None else scores.grad.cpu().tolist()
    require(gradient == [[1, 1, 0, 0], [1, 0, 0, 1]], f"the scores' gradient is {gradient}")


@clause("RXR-5")
def test_recording_and_falling_through(backend: BackendUnderTest) -> None:
    """`record` computes and keeps; `fallthrough` computes and leaves the recording alone."""
    group = RoutingReplayGroup()
    replay = group.add(_replay(backend))
    compute = group.wrap_compute_top_k(_plain_top_k, replay)
    scores = torch.tensor([[1.0, 3.0, 2.0]], device=backend.accelerator.device())
    for stage, recorded in ((ReplayStage.FALLTHROUGH, 0), (ReplayStage.RECORD, 1), (ReplayStage.FALLTHROUGH, 1)):
        with group.in_stage(stage):
            _, indices = compute(scores, 2)
        require(indices.cpu().tolist() == [[1, 2]], f"{stage.value}: the computed top-k came out as {indices.cpu().tolist()}")
        require(replay.recorded_count == recorded, f"after {stage.value} {replay.recorded_count} are recorded, due was {recorded}")
    require(replay.pop_forward().cpu().tolist() == [[1, 2]], "what was recorded is not what was computed")


@clause("RXR-5")
def test_disabled_replay_is_a_no_op(backend: BackendUnderTest) -> None:
    """With no router, or any stage: nothing is recorded, replayed or required."""
    group = RoutingReplayGroup(enabled=False)
    group.check_consumed()
    fill_routing_replay(group, torch.zeros((2, 4, 2), dtype=torch.int32), model_chunks=[(0, 4)], num_layers=4)
    replay = group.add(_replay(backend))
    compute = group.wrap_compute_top_k(_plain_top_k, replay)
    scores = torch.tensor([[1.0, 3.0, 2.0]], device=backend.accelerator.device())
    for stage in ReplayStage:
        with group.in_stage(stage):
            require(compute(scores, 1)[1].cpu().tolist() == [[1]], f"disabled, in stage {stage.value}, another top-k came out")
    fill_routing_replay(group, torch.zeros((2, 4, 2), dtype=torch.int32), model_chunks=[(0, 4)], num_layers=4)
    group.check_consumed()
    require(replay.recorded_count == 0, f"disabled, {replay.recorded_count} micro-batches were recorded")


@clause("RXR-5")
def test_enabled_and_empty_is_an_error(backend: BackendUnderTest) -> None:
    """Whether it is asked to replay, to have been consumed, or to fill routers that do not exist."""
    group = RoutingReplayGroup()
    expect_refusal(group.check_consumed, errors=(RuntimeError,))
    recording = torch.zeros((2, 4, 2), dtype=torch.int32)
    expect_refusal(fill_routing_replay, group, recording, model_chunks=[(0, 4)], num_layers=4, errors=(RuntimeError,))
    compute = group.wrap_compute_top_k(_plain_top_k, group.add(_replay(backend)))
    expect_refusal(group.check_consumed, errors=(RuntimeError,), quoting="layer 7")
    scores = torch.zeros((1, 3), device=backend.accelerator.device())
    for stage in (ReplayStage.REPLAY_FORWARD, ReplayStage.REPLAY_BACKWARD):
        with group.in_stage(stage):
            expect_refusal(compute, scores, 1, errors=(RuntimeError,), quoting="layer 7")


def _group(backend: BackendUnderTest, layers: Sequence[int]) -> RoutingReplayGroup:
    group = RoutingReplayGroup()
    for layer in layers:
        group.add(_replay(backend, f"layer {layer}"))
    return group


def _plain_top_k(
    scores: torch.Tensor, topk: int, num_groups: int | None = None, group_topk: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    values, indices = torch.topk(scores, topk, dim=1)
    return values, indices


def _refuse_to_compute(
    scores: torch.Tensor, topk: int, num_groups: int | None = None, group_topk: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    require(False, "a replaying router computed its own top-k")
    return scores, scores


def _require_text(refusal: BaseException, *due: str) -> None:
    text = str(refusal)
    missing = [part for part in due if (part not in text if not part.isdigit() else part not in re.findall(r"\d+", text))]
    require(not missing, f"the error does not say {missing}: {refusal}")
