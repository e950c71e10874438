"""Memory counters, capacity and running out of it."""

from __future__ import annotations

import gc

import pytest
import torch

import fakes
from fakes.allocator_settings import parse_allocator_settings

MIB = 1 << 20
pytestmark = pytest.mark.simulated_machine(devices=2, memory="64 MiB")


def lawful() -> None:
    for index in range(2):
        free, total = torch.musa.mem_get_info(index)
        assert 0 <= torch.musa.memory_allocated(index) <= torch.musa.memory_reserved(index) <= total == 64 * MIB
        assert 0 <= free <= total
        assert torch.musa.max_memory_allocated(index) >= torch.musa.memory_allocated(index)
        assert torch.musa.max_memory_reserved(index) >= torch.musa.memory_reserved(index)


def test_counters_follow_allocations_on_their_device_only(simulated_machine: fakes.Machine) -> None:
    assert torch.musa.memory_allocated(1) == 0
    torch.musa.set_device(0)
    tensor = torch.zeros(1000, device="musa:1")
    assert torch.musa.memory_allocated(1) == 4096
    assert torch.musa.memory_allocated(0) == 0
    view = tensor[10:].view(-1, 2)
    assert torch.musa.memory_allocated(1) == 4096
    del tensor
    assert torch.musa.memory_allocated(1) == 4096
    lawful()
    del view
    assert torch.musa.memory_allocated(1) == 0
    assert torch.musa.max_memory_allocated(1) == 4096
    torch.musa.reset_peak_memory_stats(1)
    assert torch.musa.max_memory_allocated(1) == 0
    reserved = torch.musa.memory_reserved(1)
    assert reserved > 0
    torch.musa.empty_cache()
    assert torch.musa.memory_reserved(1) == 0
    lawful()


def test_training_gives_everything_back(simulated_machine: fakes.Machine) -> None:
    def train() -> None:
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).to("musa")
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            model(torch.randn(4, 8, device="musa")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        lawful()

    train()
    gc.collect()
    assert torch.musa.memory_allocated() == 0
    assert torch.musa.memory_stats()["allocation.all.current"] == 0


ALLOCATIONS = {
    "empty": lambda: torch.empty(100 * MIB, dtype=torch.uint8, device="musa:1"),
    "zeros": lambda: torch.zeros(1 << 50, device="musa:1"),
    "empty_strided": lambda: torch.empty_strided((2, 2), (100 * MIB, 1), dtype=torch.uint8, device="musa:1"),
    "copy": lambda: torch.zeros(100 * MIB, dtype=torch.uint8).to("musa:1"),
    "outer": lambda: torch.ones(70000, device="musa:1")[:, None] * torch.ones(70000, device="musa:1"),
    "repeat": lambda: torch.ones(3, device="musa:1").repeat(1 << 40),
    "expand": lambda: torch.ones(1, device="musa:1").expand(1 << 40).clone(),
    "pad": lambda: torch.nn.functional.pad(torch.ones(1, device="musa:1"), (0, 1 << 40)),
    "new": lambda: torch.ones(1, device="musa:1").new_zeros(1 << 40),
    "resize": lambda: torch.ones(1, device="musa:1").resize_(1 << 40),
    "storage": lambda: torch.ones(1, device="musa:1").untyped_storage().resize_(1 << 40),
    "cat": lambda: torch.cat([torch.zeros(5 * MIB, device="musa:1")] * 4),
}


@pytest.mark.parametrize("name", ALLOCATIONS)
def test_a_full_device_raises_and_recovers(simulated_machine: fakes.Machine, name: str) -> None:
    keep = torch.arange(1000, device="musa:1")
    before, reserved = torch.musa.memory_allocated(1), torch.musa.memory_reserved(1)
    with pytest.raises(
        torch.OutOfMemoryError, match=r"MUSA out of memory\. Tried to allocate .* GPU 1 has a total capacity of 64\.00 MiB"
    ):
        ALLOCATIONS[name]()
    gc.collect()
    torch.musa.empty_cache()
    assert torch.musa.memory_allocated(1) == before
    assert torch.musa.memory_reserved(1) <= max(reserved, 2 * MIB)
    assert keep.sum().item() == 499500
    fits = torch.zeros(60 * MIB, dtype=torch.uint8, device="musa:1")
    lawful()
    assert torch.musa.memory_stats(1)["num_ooms"] >= 1
    del fits


def test_device_full_by_one_byte(simulated_machine: fakes.Machine) -> None:
    whole = torch.empty(64 * MIB, dtype=torch.uint8, device="musa")
    lawful()
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1, device="musa")
    torch.empty(0, device="musa")
    torch.empty(1, device="musa:1")
    del whole
    torch.empty(1, device="musa")


def test_a_fraction_limits_the_process(simulated_machine: fakes.Machine) -> None:
    torch.musa.set_per_process_memory_fraction(0.5, 1)
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(40 * MIB, dtype=torch.uint8, device="musa:1")
    torch.empty(40 * MIB, dtype=torch.uint8, device="musa:0")
    lawful()
    for bad, error in ((1.5, ValueError), (-0.1, ValueError), (1, TypeError), (float("nan"), ValueError)):
        with pytest.raises(error):
            torch.musa.set_per_process_memory_fraction(bad)


def test_observers_hear_of_each_oom(simulated_machine: fakes.Machine) -> None:
    heard: list[tuple[int, int, int, int]] = []
    torch.musa._MUSAC._musa_attach_out_of_memory_observer(lambda *figures: heard.append(figures))
    torch.musa.set_per_process_memory_fraction(0.5, 1)
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(50 * MIB, dtype=torch.uint8, device="musa:1")
    assert heard == [(1, 50 * MIB, 32 * MIB, 64 * MIB)]


def test_statistics_have_torchs_names(simulated_machine: fakes.Machine) -> None:
    assert torch.musa.memory_stats(1) == {}
    tensor = torch.ones(1000, device="musa:1")
    statistics = torch.musa.memory.memory_stats(1)
    assert list(statistics) == sorted(statistics)
    assert statistics["allocated_bytes.all.current"] == torch.musa.memory_allocated(1)
    assert statistics["reserved_bytes.all.peak"] == torch.musa.max_memory_reserved(1)
    assert statistics["allocation.all.current"] == 1
    assert "allocated_bytes.all.current" in torch.musa.memory_summary(1)
    torch.musa.reset_accumulated_memory_stats(1)
    assert torch.musa.memory_stats(1)["allocated_bytes.all.freed"] == 0
    del tensor


def test_storage_resizing_is_accounted_for(simulated_machine: fakes.Machine) -> None:
    tensor = torch.ones(1 << 18, device="musa")
    tensor.untyped_storage().resize_(0)
    assert torch.musa.memory_allocated() == 0
    tensor.untyped_storage().resize_(4 << 18)
    assert torch.musa.memory_allocated() == MIB
    tensor.fill_(2)
    assert tensor.sum().item() == 2 << 18
    assert tensor.untyped_storage().nbytes() == MIB
    tensor.resize_(1 << 19)
    assert torch.musa.memory_allocated() == 2 * MIB
    assert torch.equal(tensor[: 1 << 18].cpu(), torch.full((1 << 18,), 2.0))


def test_allocator_settings_read_back(simulated_machine: fakes.Machine) -> None:
    memory = torch.musa.memory
    assert memory._snapshot()["allocator_settings"]["expandable_segments"] is False
    memory._set_allocator_settings("max_split_size_mb:64, expandable_segments:True")
    settings = memory._snapshot()["allocator_settings"]
    assert (settings["expandable_segments"], settings["max_split_size"]) == (True, 64 * MIB)
    memory._set_allocator_settings("expandable_segments:True")
    assert memory._snapshot()["allocator_settings"]["max_split_size"] == -1
    for bad in ("expandable_segments", "expandable_segments:yes", "nonsense:1", "max_split_size_mb:-1"):
        with pytest.raises(ValueError, match=bad.partition(":")[0]):
            memory._set_allocator_settings(bad)
    assert parse_allocator_settings("") == parse_allocator_settings(" , ")


def test_allocator_settings_of_the_environment_are_in_force_from_the_start(
    simulated_machine: fakes.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTORCH_MUSA_ALLOC_CONF", "max_split_size_mb:32")
    simulated_machine.reset()
    settings = torch.musa.memory._snapshot()["allocator_settings"]
    assert (settings["max_split_size"], settings["PYTORCH_MUSA_ALLOC_CONF"]) == (32 * MIB, "max_split_size_mb:32")
