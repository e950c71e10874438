"""A properly ordered training loop gives bit for bit the CPU's result, in every order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import fakes
from fakes.scheduling.policies import Recorded

STEPS = 3


def _model() -> torch.nn.Module:
    torch.manual_seed(0)
    # Only what autocast treats alike on the CPU and on an accelerator.
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))


def _data() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(12, 6, generator=generator), torch.randint(0, 3, (12,), generator=generator))


def _train(device: str, upload: Callable[[Any], Any]) -> list[torch.Tensor]:
    model = _model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    losses = []
    for batch in DataLoader(_data(), batch_size=4, pin_memory=device != "cpu"):
        inputs, targets = upload(batch)
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.bfloat16):
            outputs = model(inputs)
        loss = torch.nn.functional.cross_entropy(torch.nn.functional.layer_norm(outputs.float(), (3,)), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [tensor.detach().cpu() for tensor in [*losses, *model.parameters()]]


def _on_device() -> list[torch.Tensor]:
    """Batches are copied on a stream of their own, in turn with the computation."""
    copies = torch.musa.Stream()

    def upload(batch: Any) -> Any:
        with torch.musa.stream(copies):
            moved = [tensor.to("musa", non_blocking=True) for tensor in batch]
        torch.musa.current_stream().wait_stream(copies)
        for tensor in moved:
            tensor.record_stream(torch.musa.current_stream())
        # The next batch's pinned memory is another one, so nothing waits for the copies.
        return moved

    return _train("musa", upload)


@pytest.fixture(scope="module")
def expected() -> list[torch.Tensor]:
    return _train("cpu", lambda batch: batch)


SCHEDULES = [("eager", 0), ("lazy", 0), ("directed", 0), *[("seeded", seed) for seed in range(12)]]


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize("detect_races", [False, True])
def test_the_result_is_the_cpus_in_every_order(
    plain_machine: fakes.Machine, expected: list[torch.Tensor], schedule: str, seed: int, detect_races: bool
) -> None:
    plain_machine.reset(schedule=schedule, seed=seed, detect_races=detect_races)
    for mine, its in zip(_on_device(), expected, strict=True):
        assert torch.equal(mine, its)


def test_a_recorded_order_gives_it_too(plain_machine: fakes.Machine, expected: list[torch.Tensor]) -> None:
    plain_machine.reset(schedule=Recorded({number: number % 7 for number in range(200)}))
    for mine, its in zip(_on_device(), expected, strict=True):
        assert torch.equal(mine, its)
