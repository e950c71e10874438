"""Any device type that PyTorch knows: the CPU for real, others over replaced namespaces and a replaced `torch.accelerator`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from stub_namespace import DEVICE_TYPE

from harness.accelerator import generic
from harness.accelerator.capabilities import Capability
from harness.accelerator.generic import GenericAccelerator
from harness.errors import AcceleratorUnavailableError, DeviceError, UnsupportedCapabilityError


@pytest.fixture
def cpu() -> GenericAccelerator:
    return GenericAccelerator("cpu")


@pytest.mark.parametrize("device_type", ["nosuch", "cpu:0", "", "CPU", None])
def test_what_is_no_device_type_is_refused(device_type: Any) -> None:
    with pytest.raises(AcceleratorUnavailableError, match="device type"):
        GenericAccelerator(device_type)


def test_a_type_without_a_module_says_so() -> None:
    accelerator = GenericAccelerator("fpga")
    assert not accelerator.is_available()
    assert "_register_device_module" in accelerator.unavailable_reason()
    with pytest.raises(UnsupportedCapabilityError, match="register_backend"):
        accelerator.communication_backend()
    assert accelerator.communication_backend("gloo") == "gloo"


def test_the_cpu_is_one_device(cpu: GenericAccelerator) -> None:
    assert cpu.is_available()
    assert (cpu.device_count(), cpu.current_device()) == (1, 0)
    for form in (0, "0", "cpu", "cpu:0", torch.device("cpu"), torch.device("cpu", 0)):
        cpu.set_device(form)
        assert cpu.device(form) == torch.device("cpu", 0)
    for form in (1, "cpu:1", "cuda", None):
        with pytest.raises(DeviceError):
            cpu.set_device(form)
    with cpu.device_context(0):
        assert cpu.device_name() == "cpu:0"
    cpu.synchronize()
    assert cpu.communication_backend() == "gloo"


def test_what_the_cpu_lacks_is_denied_with_evidence(cpu: GenericAccelerator) -> None:
    supported = {capability for capability in Capability if cpu.supports(capability)}
    assert supported == {
        Capability.AMP,
        Capability.BF16,
        Capability.FP16,
        Capability.RNG,
        Capability.DETERMINISTIC,
        Capability.IPC,
        Capability.FORK_AFTER_SELECTION,
    }
    assert all(cpu.probe(capability).evidence for capability in Capability)
    assert cpu.Stream is None
    assert cpu.Event is None
    assert cpu.current_stream() is None
    assert cpu.memory_module() is None
    assert not cpu.attach_oom_observer(print)
    cpu.empty_cache()
    cpu.ipc_collect()
    for call in (
        cpu.memory_allocated,
        cpu.max_memory_allocated,
        cpu.mem_get_info,
        cpu.get_device_properties,
        cpu.default_stream,
        cpu.new_stream,
        lambda: cpu.stream(None),
    ):
        with pytest.raises(UnsupportedCapabilityError):
            call()


def test_the_cpus_random_numbers_are_pytorchs(cpu: GenericAccelerator) -> None:
    before = cpu.get_rng_state()
    try:
        cpu.manual_seed(3)
        state = cpu.get_rng_state()
        first = torch.rand(4)
        cpu.set_rng_state(state)
        assert torch.equal(torch.rand(4), first)
        cpu.manual_seed_all(-2)
        assert cpu.initial_seed() == 2**64 - 2
        with pytest.raises(ValueError, match="bytes"):
            cpu.set_rng_state(state[:-1])
        with pytest.raises(RuntimeError):
            cpu.set_rng_state(torch.full_like(state, 255))
    finally:
        cpu.set_rng_state(before)


def test_autocast_on_the_cpu(cpu: GenericAccelerator) -> None:
    with cpu.autocast(dtype=torch.bfloat16):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
    with pytest.raises(UnsupportedCapabilityError, match="float64"):
        cpu.autocast(dtype=torch.float64)


class CommonFunctions:
    """Stands for `torch.accelerator`, with two devices and a current stream on each."""

    def __init__(self) -> None:
        self.index = 0
        self.streams = {index: SimpleNamespace(device=torch.device(DEVICE_TYPE, index)) for index in range(2)}
        self.synchronized: list[int] = []

    def current_accelerator(self) -> torch.device:
        return torch.device(DEVICE_TYPE)

    def device_count(self) -> int:
        return 2

    def current_device_index(self) -> int:
        return self.index

    def set_device_index(self, index: int) -> None:
        self.index = index

    def current_stream(self, device: Any) -> Any:
        return self.streams[device if isinstance(device, int) else device.index]

    def set_stream(self, stream: Any) -> None:
        self.index = stream.device.index
        self.streams[self.index] = stream

    def synchronize(self, index: int) -> None:
        self.synchronized.append(index)

    def memory_allocated(self, index: int) -> int:
        return 7 + index


@pytest.fixture
def common(monkeypatch: pytest.MonkeyPatch) -> CommonFunctions:
    functions = CommonFunctions()
    monkeypatch.setattr(torch, "accelerator", functions)
    monkeypatch.setattr(torch, DEVICE_TYPE, SimpleNamespace(), raising=False)
    monkeypatch.setattr(torch, "Stream", SimpleNamespace)
    monkeypatch.setattr(torch, "Event", lambda *arguments, **keywords: SimpleNamespace(record=lambda: None, **keywords))
    return functions


def test_a_bare_namespace_is_served_by_the_common_functions(common: CommonFunctions) -> None:
    accelerator = GenericAccelerator(DEVICE_TYPE)
    assert accelerator.is_available()
    assert accelerator.current_device() == 0
    accelerator.set_device(1)
    assert accelerator.current_device() == 1
    accelerator.synchronize(0)
    assert common.synchronized == [0]
    assert accelerator.current_stream(0) is common.streams[0]
    assert accelerator._find("get_rng_state") is None


def test_the_common_stream_context_restores_stream_and_device(common: CommonFunctions) -> None:
    accelerator = GenericAccelerator(DEVICE_TYPE)
    accelerator.set_device(0)
    before = dict(common.streams)
    stream = SimpleNamespace(device=torch.device(DEVICE_TYPE, 1))
    with accelerator.stream(stream):
        assert accelerator.current_stream() is stream
        assert accelerator.current_device() == 1
    assert common.streams == before
    assert accelerator.current_device() == 0


def test_constructors_name_the_device(common: CommonFunctions, monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator = GenericAccelerator(DEVICE_TYPE)
    assert accelerator.supports("streams")
    assert accelerator.supports("events")
    made: list[Any] = []
    monkeypatch.setattr(torch, "Stream", lambda **keywords: made.append(keywords))
    monkeypatch.setattr(torch, "Event", lambda *arguments, **keywords: made.append((arguments, keywords)))
    accelerator.new_stream(1, priority=-1)
    accelerator.new_event(enable_timing=True)
    assert made == [
        {"device": torch.device(DEVICE_TYPE, 1), "priority": -1},
        ((DEVICE_TYPE,), {"enable_timing": True}),
    ]


def test_streams_and_events_that_the_device_refuses_are_denied(common: CommonFunctions, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch has `torch.Stream` and `torch.Event` for every device type; a device guard without them refuses."""

    def refuse(*_: Any, **__: Any) -> None:
        raise NotImplementedError("Backend doesn't support it")

    monkeypatch.setattr(torch, "Stream", refuse)
    monkeypatch.setattr(torch, "Event", lambda *_, **__: SimpleNamespace(record=refuse))
    accelerator = GenericAccelerator(DEVICE_TYPE)
    assert not accelerator.supports("streams")
    assert not accelerator.supports("events")
    assert not accelerator.supports("event_timing")
    assert accelerator.current_stream() is None
    with pytest.raises(UnsupportedCapabilityError, match="streams"):
        accelerator.new_stream()
    with pytest.raises(UnsupportedCapabilityError, match="events"):
        accelerator.new_event()


def test_common_memory_functions_count_where_the_allocator_keeps_statistics(
    common: CommonFunctions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise RuntimeError("not a DeviceAllocator")

    monkeypatch.setattr(torch._C, "_accelerator_isAllocatorInitialized", refuse, raising=False)
    assert not GenericAccelerator(DEVICE_TYPE).supports("device_memory")
    monkeypatch.setattr(torch._C, "_accelerator_isAllocatorInitialized", lambda: True)
    accelerator = GenericAccelerator(DEVICE_TYPE)
    assert "mem_get_info" in accelerator.probe("device_memory").evidence
    accelerator.set_device(0)
    assert accelerator.memory_allocated(1) == 8
    monkeypatch.delattr(torch._C, "_accelerator_isAllocatorInitialized")
    assert generic._has_common_allocator()


def test_one_device_needs_no_set_device(common: CommonFunctions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "set_device_index", None)
    monkeypatch.setattr(common, "current_device_index", None)
    monkeypatch.setattr(common, "synchronize", None)
    accelerator = GenericAccelerator(DEVICE_TYPE)
    with pytest.raises(UnsupportedCapabilityError, match="set_device"):
        accelerator.set_device(1)
    monkeypatch.setattr(common, "device_count", lambda: 1)
    accelerator = GenericAccelerator(DEVICE_TYPE)
    accelerator.set_device(0)
    assert accelerator.current_device() == 0
    with pytest.raises(UnsupportedCapabilityError, match="synchronize"):
        accelerator.synchronize()


def test_a_type_that_is_not_the_current_accelerator_has_its_namespace_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "fpga", SimpleNamespace(device_count=lambda: 1), raising=False)
    accelerator = GenericAccelerator("fpga")
    assert accelerator.is_available()
    assert accelerator.probe("streams").evidence == "torch.fpga has no Stream, current_stream, stream"
