"""Pinned host memory of a simulated machine."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import fakes

pytestmark = pytest.mark.usefixtures("simulated_machine")


def test_pinning_keeps_data_and_marks_views() -> None:
    tensor = torch.arange(12.0).view(3, 4)
    pinned = tensor.pin_memory()
    assert pinned.is_pinned()
    assert not tensor.is_pinned()
    assert torch.equal(pinned, tensor)
    assert pinned[1:].t().is_pinned()
    assert pinned.pin_memory() is pinned
    strided = torch.empty(4, 3, pin_memory=True).t()
    strided.copy_(torch.arange(12.0, device="musa:1").view(3, 4), non_blocking=True)
    torch.musa.synchronize(1)
    assert torch.equal(strided, tensor)
    assert torch.equal(pinned.to("musa:1", non_blocking=True).cpu(), tensor)


@pytest.mark.parametrize(
    "factory",
    [
        lambda: torch.empty(2, pin_memory=True),
        lambda: torch.zeros(2, pin_memory=True),
        lambda: torch.tensor([1, 2], pin_memory=True),
        lambda: torch.randn(2, pin_memory=True),
        lambda: torch.arange(2, pin_memory=True),
        lambda: torch.zeros_like(torch.ones(2), pin_memory=True),
        lambda: torch.ones(2).new_empty(2, pin_memory=True),
        lambda: torch.empty_strided((2,), (1,), pin_memory=True),
    ],
)
def test_factories_pin(factory: object) -> None:
    assert factory().is_pinned()


def test_device_memory_cannot_be_pinned() -> None:
    tensor = torch.ones(2, device="musa")
    assert not tensor.is_pinned()
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        tensor.pin_memory()
    with pytest.raises(RuntimeError, match="Only dense CPU tensors can be pinned"):
        torch.empty(2, device="musa", pin_memory=True)


def test_loaders_pin_their_batches() -> None:
    data = TensorDataset(torch.arange(8.0), torch.arange(8))
    seen = []
    for values, labels in DataLoader(data, batch_size=3, pin_memory=True):
        assert values.is_pinned()
        assert labels.is_pinned()
        seen += values.to("musa:1", non_blocking=True).tolist()
    assert seen == list(range(8))


def test_pinning_ends_with_the_machine(simulated_machine: fakes.Machine) -> None:
    pinned = torch.ones(2).pin_memory()
    simulated_machine.uninstall()
    assert not pinned.is_pinned()
