"""Pinned host memory of a simulated machine."""

from __future__ import annotations

import weakref

import pytest
import torch
from allocators import TicketScheduler
from torch.utils.data import DataLoader, TensorDataset

import fakes
from fakes.host_allocator import HostAllocator
from fakes.pinned_memory import used_by_copy
from fakes.stream_state import StreamState

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


def test_pinning_keeps_geometry_dtype_and_history() -> None:
    for tensor in (
        torch.arange(24).view(2, 3, 4).permute(2, 0, 1)[:, :, ::2],
        torch.zeros(0, 3),
        torch.tensor(2 + 3j),
        torch.ones(3).bool(),
    ):
        pinned = tensor.pin_memory()
        assert (pinned.shape, pinned.stride(), pinned.dtype) == (tensor.shape, tensor.stride(), tensor.dtype)
        assert torch.equal(pinned, tensor)
        assert pinned.is_pinned()
    leaf = torch.ones(2, requires_grad=True, pin_memory=True)
    assert leaf.is_leaf
    assert leaf.is_pinned()
    (leaf.pin_memory() * 2).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [2, 2]


def test_a_freed_block_is_used_again(simulated_machine: fakes.Machine) -> None:
    first = torch.full((1000,), 3.0).pin_memory()
    address = first.data_ptr()
    view = first[10:]
    del first
    other = torch.empty(1000, pin_memory=True)
    assert other.data_ptr() != address, "a view keeps its memory"
    assert view.eq(3).all()
    del view
    again = torch.empty(900, pin_memory=True)
    assert again.data_ptr() == address, "sizes are powers of two"
    del again
    torch.accelerator.empty_host_cache()
    assert torch.zeros(900, pin_memory=True).eq(0).all()


def test_a_block_that_a_copy_uses_waits_for_it(simulated_machine: fakes.Machine) -> None:
    scheduler = TicketScheduler()
    allocator = HostAllocator(scheduler)
    block = allocator.allocate(1000)
    memory = block.memory
    block.note_use(StreamState(0, 1))
    del block
    assert allocator.allocate(1000).memory is not memory
    scheduler.complete()
    blocks = [allocator.allocate(1000) for _ in range(2)]
    assert memory in [one.memory for one in blocks]


def test_a_queued_copy_sees_the_memory_but_does_not_keep_the_storage(simulated_machine: fakes.Machine) -> None:
    pinned = torch.arange(6.0).view(2, 3).pin_memory()[:, 1:]
    alias = used_by_copy(pinned, StreamState(0, 0))
    assert torch.equal(alias, pinned)
    assert (alias.stride(), alias.data_ptr()) == (pinned.stride(), pinned.data_ptr())
    pinned.fill_(5)
    assert alias.eq(5).all()
    storage = weakref.ref(pinned.untyped_storage())
    del pinned
    assert storage() is None
    host = torch.ones(2)
    assert used_by_copy(host, StreamState(0, 0)) is host
