"""Wrong calls under a schedule that defers: refused at the call, as on hardware, and the device goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

import fakes

LARGE = 300
"""A square of this extent is beyond what is tried on host tensors."""


def zeros(*size: int, on: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(size, device=on, dtype=dtype)


def shifted(on: str, add: Callable[[torch.Tensor], Any]) -> Any:
    return add(torch.arange(4.0, device=on))


WRONG: dict[str, Callable[[str], Any]] = {
    "max of nothing": lambda on: zeros(0, on=on).max(),
    "max along nothing": lambda on: zeros(0, 3, on=on).max(0),
    "median along nothing": lambda on: zeros(0, 3, on=on).median(0),
    "in place, expanded": lambda on: zeros(1, 2, on=on).expand(2, 2).add_(1),
    "in place, expanded, large": lambda on: zeros(1, LARGE, on=on).expand(LARGE, LARGE).add_(1),
    "out, expanded": lambda on: torch.mm(zeros(2, 2, on=on), zeros(2, 2, on=on), out=zeros(1, 2, on=on).expand(2, 2)),
    "copy, expanded": lambda on: zeros(1, 2, on=on).expand(2, 2).copy_(zeros(2, 2, on=on)),
    "list, expanded": lambda on: torch._foreach_add_([zeros(1, 2, on=on).expand(2, 2)], 1),
    "in place, overlapping": lambda on: shifted(on, lambda a: a[1:].add_(a[:-1])),
    "out, overlapping": lambda on: shifted(on, lambda a: torch.add(a[:-1], 1, out=a[1:])),
    "dtypes": lambda on: zeros(2, 2, on=on) @ zeros(2, 2, on=on, dtype=torch.float64),
    "dtypes, large": lambda on: zeros(LARGE, LARGE, on=on) @ zeros(LARGE, LARGE, on=on, dtype=torch.float64),
    "no kernel": lambda on: zeros(2, on=on) & zeros(2, on=on),
    "no kernel, large": lambda on: functional.softmax(zeros(LARGE, LARGE, on=on, dtype=torch.int64), 0),
    "dimension": lambda on: functional.softmax(zeros(2, on=on), 3),
    "index put": lambda on: zeros(3, on=on).index_put_((torch.tensor([0, 1], device=on),), zeros(3, on=on)),
    "boundaries": lambda on: torch.bucketize(zeros(2, on=on), zeros(2, 2, on=on)),
    "singular": lambda on: torch.linalg.inv(zeros(2, 2, on=on)),
    "not positive": lambda on: torch.linalg.cholesky(-torch.eye(2, device=on)),
    "not finite": lambda on: torch.linalg.svd(torch.full((2, 2), float("nan"), device=on)),
    "negative deviation": lambda on: torch.normal(zeros(2, on=on), torch.full((2,), -1.0, device=on)),
    "meta": lambda on: zeros(2, on=on).copy_(torch.zeros(2, device="meta")),
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_a_wrong_call_is_refused_at_once_and_the_device_goes_on(
    simulated_machine: fakes.Machine, call: Callable[[str], Any]
) -> None:
    simulated_machine.reset(schedule="lazy")
    one = torch.ones(2, device="musa")
    with pytest.raises(Exception) as expected:
        call("cpu")
    with pytest.raises(expected.type) as refused:
        call("musa")
    assert str(refused.value)[:40] == str(expected.value)[:40]
    assert (one + 1).tolist() == [2, 2]


def test_right_calls_on_a_shared_block_are_queued(simulated_machine: fakes.Machine) -> None:
    simulated_machine.reset(schedule="lazy")
    block = torch.ones(4, device="musa")
    block[:2].add_(block[2:])
    block.add_(block)
    assert torch.musa.current_stream().query() is False
    assert block.tolist() == [4, 4, 2, 2]


def test_large_calls_are_queued(simulated_machine: fakes.Machine) -> None:
    simulated_machine.reset(schedule="lazy", memory="1 GiB")
    one = torch.ones(LARGE, LARGE, device="musa")
    images, weights = torch.ones(2, 8, 64, 96, device="musa"), torch.ones(4, 8, 3, 3, device="musa")
    results = [
        one @ one,
        one.mul_(torch.ones(LARGE, device="musa", dtype=torch.float64)),
        functional.conv2d(images, weights, padding=1),
        functional.embedding(torch.zeros(LARGE, dtype=torch.int64, device="musa"), one),
        torch.where(one > 0, one, one.bfloat16()),
        functional.layer_norm(one, (LARGE,)),
        functional.interpolate(images, scale_factor=2.0, mode="bilinear"),
    ]
    assert torch.musa.current_stream().query() is False
    assert all(not result.isnan().any() for result in results)


@pytest.mark.parametrize("schedule", ["eager", "lazy"])
def test_quantized_tensors_are_refused(simulated_machine: fakes.Machine, schedule: str) -> None:
    simulated_machine.reset(schedule=schedule)
    one = torch.ones(2, device="musa")
    with pytest.raises(NotImplementedError, match="strided tensors only, not quantized"):
        torch.quantize_per_tensor(one, 0.1, 0, torch.quint8)
    assert (one + 1).tolist() == [2, 2]


def test_a_kernel_that_fails_says_how_to_see_its_line(simulated_machine: fakes.Machine) -> None:
    simulated_machine.reset(schedule="lazy")
    torch.ones(2, device="musa").take(torch.tensor([7], device="musa"))
    with pytest.raises(RuntimeError, match="detect_races=True would tell its line"):
        torch.musa.synchronize()


@pytest.mark.parametrize("schedule", ["eager", "lazy"])
def test_lengths_of_sequences_may_be_on_the_host(simulated_machine: fakes.Machine, schedule: str) -> None:
    simulated_machine.reset(schedule=schedule)
    scores = torch.randn(4, 1, 3, generator=torch.Generator().manual_seed(1)).log_softmax(-1)
    target, lengths = torch.tensor([[1]]), (torch.tensor([4]), torch.tensor([1]))
    expected = functional.ctc_loss(scores, target, *lengths)
    assert functional.ctc_loss(scores.to("musa"), target.to("musa"), *lengths).item() == expected.item()
