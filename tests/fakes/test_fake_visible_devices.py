"""The driver reads the visible-devices variable until first use, and never again; the management library ignores it."""

from __future__ import annotations

import importlib
import sys

import pytest
import torch

import fakes

VARIABLE = "MUSA_VISIBLE_DEVICES"
pytestmark = pytest.mark.simulated_machine(devices=4, memory=["1 GiB", "2 GiB", "3 GiB", "4 GiB"])


def visible(machine: fakes.Machine) -> list[int]:
    return [card.index for card in machine.visible_cards()]


def test_the_list_orders_and_hides_devices(simulated_machine: fakes.Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    uuids = [card.uuid for card in simulated_machine.cards]
    for value, expected in (
        ("3,1", [3, 1]),
        ("0", [0]),
        ("", []),
        ("-1", []),
        ("2,9,1", [2]),
        ("1,1", []),
        (f"{uuids[2]},{uuids[0]}", [2, 0]),
        (uuids[1][:10], [1]),
        ("NoDevFiles", []),
    ):
        monkeypatch.setenv(VARIABLE, value)
        assert visible(simulated_machine) == expected, value
        assert torch.musa.device_count() == len(expected)
        assert torch.musa.is_available() == bool(expected)
    monkeypatch.delenv(VARIABLE)
    assert visible(simulated_machine) == [0, 1, 2, 3]
    assert not torch.musa.is_initialized()


def test_first_use_freezes_the_list(simulated_machine: fakes.Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "3,1")
    torch.zeros(1, device="musa")
    monkeypatch.setenv(VARIABLE, "0")
    assert torch.musa.device_count() == 2
    assert [torch.musa.get_device_properties(index).total_memory >> 30 for index in range(2)] == [4, 2]
    assert visible(simulated_machine) == [3, 1]
    with pytest.raises(RuntimeError, match="invalid device ordinal 2"):
        torch.zeros(1, device="musa:2")


def test_without_a_visible_device_first_use_raises_and_can_be_mended(
    simulated_machine: fakes.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "")
    for use in (
        lambda: torch.zeros(1, device="musa"),
        torch.musa.current_device,
        torch.musa.init,
        lambda: torch.musa.set_device(0),
    ):
        with pytest.raises(RuntimeError, match="No MUSA GPUs are available"):
            use()
    monkeypatch.setenv(VARIABLE, "1")
    assert torch.zeros(1, device="musa").device == torch.device("musa:0")


def test_other_vendors_variables_are_not_read(simulated_machine: fakes.Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert torch.musa.device_count() == 4


def test_the_management_library_sees_the_host_without_initialising(
    simulated_machine: fakes.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "2")
    library = importlib.import_module("pymtml")
    with pytest.raises(library.NVMLError):
        library.nvmlDeviceGetCount()
    library.nvmlInit()
    handles = [library.nvmlDeviceGetHandleByIndex(index) for index in range(library.nvmlDeviceGetCount())]
    assert [library.nvmlDeviceGetUUID(handle) for handle in handles] == [card.uuid for card in simulated_machine.cards]
    assert [library.nvmlDeviceGetMemoryInfo(handle).total >> 30 for handle in handles] == [1, 2, 3, 4]
    assert library.nvmlDeviceGetHandleByUUID(simulated_machine.cards[3].uuid) is handles[3]
    library.mtmlLibraryInit()
    assert library.mtmlLibraryCountDevice() == 4
    assert library.mtmlDeviceGetName(library.mtmlLibraryInitDeviceByIndex(0)).startswith("MTT")
    for bad in (4, -1, True, "0"):
        with pytest.raises(library.MTMLError):
            library.nvmlDeviceGetHandleByIndex(bad)
    library.mtmlLibraryShutDown()
    library.nvmlShutdown()
    assert not torch.musa.is_initialized()
    assert torch.musa.get_device_properties(0).uuid == simulated_machine.cards[2].uuid.removeprefix("GPU-")


def test_the_management_library_goes_with_the_machine(simulated_machine: fakes.Machine) -> None:
    assert "pymtml" in sys.modules
    simulated_machine.uninstall()
    assert "pymtml" not in sys.modules


def test_uuids_differ_and_do_not_change(simulated_machine: fakes.Machine) -> None:
    before = [card.uuid for card in simulated_machine.cards]
    assert len(set(before)) == 4
    simulated_machine.reset()
    assert [card.uuid for card in simulated_machine.cards] == before
