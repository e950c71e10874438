"""Memory that is used again, under schedules that put work off."""

from __future__ import annotations

import pytest
import torch

import fakes

SCHEDULES = ("lazy", "seeded", "directed")


@pytest.fixture(params=SCHEDULES)
def machine(request: pytest.FixtureRequest, simulated_machine: fakes.Machine) -> fakes.Machine:
    simulated_machine.reset(schedule=request.param, seed=3)
    return simulated_machine


def test_a_stream_uses_its_own_freed_memory_at_once(machine: fakes.Machine) -> None:
    results = []
    for value in range(20):
        tensor = torch.full((1000,), value, device="musa")
        results.append(tensor + 1)
        del tensor
    assert torch.musa.memory_stats()["allocated_bytes.all.peak"] <= 22 * 8192
    assert [result.unique().tolist() for result in results] == [[value + 1] for value in range(20)]


def use_on_another_stream(recorded: bool) -> list[int]:
    side = torch.musa.Stream()
    tensor = torch.full((1000,), 7, device="musa")
    side.wait_stream(torch.musa.current_stream())
    with torch.musa.stream(side):
        result = tensor * 2
    if recorded:
        tensor.record_stream(side)
    del tensor
    other = torch.full((1000,), 100, device="musa")
    torch.musa.current_stream().synchronize()
    assert other.eq(100).all()
    side.synchronize()
    with torch.musa.stream(side):
        return result.unique().tolist()


def test_memory_of_a_recorded_stream_stays_as_it_is(machine: fakes.Machine) -> None:
    for seed in range(20):
        machine.reset(seed=seed)
        assert use_on_another_stream(recorded=True) == [14]


def test_memory_of_a_stream_that_was_not_recorded_is_lost(simulated_machine: fakes.Machine) -> None:
    simulated_machine.reset(schedule="lazy")
    assert use_on_another_stream(recorded=False) != [14]
    simulated_machine.reset(schedule="seeded")
    found = []
    for seed in range(20):
        simulated_machine.reset(seed=seed)
        found.append(use_on_another_stream(recorded=False) == [14])
    assert not all(found)


def test_held_memory_is_active_until_the_stream_is_done(simulated_machine: fakes.Machine) -> None:
    simulated_machine.reset(schedule="lazy")
    side = torch.musa.Stream()
    tensor = torch.full((1000,), 7, device="musa")
    side.wait_stream(torch.musa.current_stream())
    with torch.musa.stream(side):
        result = tensor * 2
    tensor.record_stream(side)
    del tensor
    figures = torch.musa.memory_stats()
    assert figures["active_bytes.all.current"] - figures["allocated_bytes.all.current"] == 8192
    side.synchronize()
    again = torch.empty(1000, dtype=torch.int64, device="musa")
    figures = torch.musa.memory_stats()
    assert figures["active_bytes.all.current"] == figures["allocated_bytes.all.current"] == 2 * 8192
    assert result.eq(14).all()
    del again


def test_flushing_the_cache_leaves_live_tensors_and_pending_work(machine: fakes.Machine) -> None:
    keep = torch.arange(1000, device="musa")
    temporary = torch.full((1 << 20,), 3, device="musa")
    total = temporary.sum()
    del temporary
    torch.musa.empty_cache()
    assert torch.musa.memory_reserved() == 2 << 20
    assert total.item() == 3 << 20
    assert keep.sum().item() == 499500


def test_pinned_memory_waits_for_the_copies_that_use_it(machine: fakes.Machine) -> None:
    targets = []
    for value in range(10):
        source = torch.full((1000,), value, pin_memory=True)
        targets.append(source.to("musa", non_blocking=True))
        del source
    assert [target.unique().tolist() for target in targets] == [[value] for value in range(10)]
    back = [target.to("cpu", non_blocking=True) for target in targets]
    torch.musa.synchronize()
    assert [tensor.unique().tolist() for tensor in back] == [[value] for value in range(10)]
    address = back[0].data_ptr()
    del back
    assert address in [tensor.data_ptr() for tensor in [torch.empty(1000, dtype=torch.int64, pin_memory=True) for _ in range(10)]]


def test_a_full_device_raises_whatever_is_pending(simulated_machine: fakes.Machine) -> None:
    simulated_machine.reset(schedule="lazy", memory="64 MiB")
    keep = torch.full((1000,), 5, device="musa")
    for _ in range(8):
        torch.full((3 << 20,), 1, device="musa")  # 24 MiB each, one after the other
    with pytest.raises(torch.OutOfMemoryError):
        torch.full((9 << 20,), 1, device="musa")
    assert keep.eq(5).all()
    assert torch.full((3 << 20,), 2, device="musa").sum().item() == 6 << 20
