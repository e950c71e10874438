"""Delegation to a namespace: devices, memory, streams and random numbers, over a hand-written namespace."""

from __future__ import annotations

import gc
import sys
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stub_namespace import DEVICE_TYPE, Generator, Stream, StubAccelerator, StubNamespace

from harness.accelerator.capabilities import Capability, CapabilityEvidence
from harness.accelerator.environment_at_first_use import EnvironmentAtFirstUse
from harness.accelerator.namespace_random import checked_seed
from harness.errors import (
    AcceleratorUnavailableError,
    DeviceError,
    VisibleDevicesChangedWarning,
)

# Identity and devices


def test_constructible_without_the_namespace_and_then_says_the_remedy() -> None:
    accelerator = StubAccelerator()
    assert not accelerator.is_available()
    assert "install the stub" in accelerator.unavailable_reason()
    for call in (
        accelerator.device_count,
        accelerator.current_device,
        lambda: accelerator.set_device(0),
        accelerator.get_rng_state,
    ):
        with pytest.raises(AcceleratorUnavailableError, match="install the stub"):
            call()
    with pytest.raises(AcceleratorUnavailableError):
        accelerator.probe("streams")


def test_no_device_is_unavailable_with_a_reason(namespace: StubNamespace, accelerator: StubAccelerator) -> None:
    namespace.devices = 0
    assert not accelerator.is_available()
    assert "no usable" in accelerator.unavailable_reason()
    with pytest.raises(AcceleratorUnavailableError, match="no privateuseone device is visible"):
        accelerator.current_device()


def test_availability_follows_the_count_without_the_vendors_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, DEVICE_TYPE, SimpleNamespace(device_count=lambda: 1), raising=False)
    assert StubAccelerator().is_available()
    monkeypatch.setattr(torch, DEVICE_TYPE, SimpleNamespace(), raising=False)
    assert not StubAccelerator().is_available()


@pytest.mark.parametrize("form", [1, "1", f"{DEVICE_TYPE}:1", torch.device(DEVICE_TYPE, 1)])
def test_every_form_sets_the_device(namespace: StubNamespace, accelerator: StubAccelerator, form: Any) -> None:
    accelerator.set_device(form)
    assert accelerator.current_device() == accelerator.current_device() == namespace.index == 1
    assert accelerator.device() == accelerator.device(DEVICE_TYPE) == torch.device(DEVICE_TYPE, 1)


@pytest.mark.parametrize("form", [None, 2, -1, "2", "cuda:1", f"{DEVICE_TYPE}:200", torch.device("cpu"), True, 1.5, ""])
def test_a_refused_device_never_reaches_the_namespace(namespace: StubNamespace, accelerator: StubAccelerator, form: Any) -> None:
    accelerator.set_device(1)
    namespace.calls.clear()
    with pytest.raises(DeviceError):
        accelerator.set_device(form)
    assert namespace.index == 1
    assert not [call for call in namespace.calls if call[0] == "set_device"]


def test_the_current_device_before_first_use_opens_nothing(namespace: StubNamespace, accelerator: StubAccelerator) -> None:
    assert accelerator.current_device() == 0
    assert accelerator.device_name() == f"{DEVICE_TYPE}:0"
    assert namespace.calls == []


def test_a_context_restores_without_setting_where_the_namespace_can(namespace: StubNamespace, accelerator: StubAccelerator) -> None:
    with accelerator.device_context(1):
        assert accelerator.current_device() == 1
    assert namespace.calls[-1] == ("set_device", 0)
    restored: list[int] = []
    namespace._maybe_exchange_device = restored.append  # type: ignore[attr-defined]
    with accelerator.device_context(1):
        pass
    assert restored == [0]
    context = accelerator.device_context(1)
    with context, pytest.raises(DeviceError, match="entered once"):
        context.__enter__()
    context = accelerator.device_context(7)
    with pytest.raises(DeviceError), context:
        pass


def test_counters_before_first_use_answer_zero_and_open_nothing(namespace: StubNamespace, accelerator: StubAccelerator) -> None:
    counters = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")
    assert [getattr(accelerator, name)(1) for name in counters] == [0, 0, 0, 0]
    accelerator.reset_peak_memory_stats()
    accelerator.empty_cache()
    accelerator.ipc_collect()
    accelerator.synchronize()
    assert namespace.calls == []
    namespace.initialized = True
    assert [getattr(accelerator, name)(1) for name in counters] == [2, 3, 4, 5]
    accelerator.reset_peak_memory_stats(1)
    accelerator.empty_cache()
    accelerator.ipc_collect()
    accelerator.synchronize(1)
    assert namespace.calls == [("reset_peak_memory_stats", 1), ("empty_cache",), ("ipc_collect",), ("synchronize", 1)]


def test_properties_and_memory_info_are_of_the_asked_device(accelerator: StubAccelerator) -> None:
    assert accelerator.get_device_properties(1).name == "stub 1"
    assert accelerator.mem_get_info(f"{DEVICE_TYPE}:1") == (11, 100)


def test_the_count_is_live_before_initialisation_and_frozen_after(namespace: StubNamespace, accelerator: StubAccelerator) -> None:
    namespace.devices = 3
    assert accelerator.device_count() == 3
    namespace.devices = 2
    assert accelerator.device_count() == 2
    accelerator.set_device(0)
    assert accelerator.device_count() == 2
    namespace.devices = 4
    assert accelerator.device_count() == 2


def test_a_namespace_that_does_not_say_whether_it_is_initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    current = SimpleNamespace(device_count=lambda: 2, current_device=lambda: 1, set_device=lambda index: None)
    monkeypatch.setattr(torch, DEVICE_TYPE, current, raising=False)
    accelerator = StubAccelerator()
    assert accelerator.current_device() == 0
    accelerator.set_device(1)
    assert accelerator.current_device() == 1


# DEV-6


def test_a_later_change_is_reported_once_a_value_and_not_applied(
    namespace: StubNamespace, accelerator: StubAccelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSA_VISIBLE_DEVICES", "3,2")
    assert accelerator.resolve_visible_device_id(2) == 1
    monkeypatch.setenv("MUSA_VISIBLE_DEVICES", "2,3")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert accelerator.resolve_visible_device_id(2) == 0
    accelerator.set_device(0)
    for later in ("3,2", "", None):
        if later is None:
            monkeypatch.delenv("MUSA_VISIBLE_DEVICES")
        else:
            monkeypatch.setenv("MUSA_VISIBLE_DEVICES", later)
        with pytest.warns(VisibleDevicesChangedWarning, match="MUSA_VISIBLE_DEVICES") as caught:
            assert accelerator.resolve_visible_device_id(2) == 0
            assert accelerator.device_count() == 2
            assert accelerator.resolve_visible_device_id(3) == 1
        assert len(caught) == 1
    assert accelerator.visible_devices({"MUSA_VISIBLE_DEVICES": "3,2"}).resolve(2) == 1


def test_the_environment_is_frozen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUB_VISIBLE", "0")
    environment = EnvironmentAtFirstUse(["STUB_VISIBLE"])
    assert environment.in_force() is None
    environment.report_changes()
    assert not environment.is_frozen
    environment.freeze()
    monkeypatch.setenv("STUB_VISIBLE", "1")
    environment.freeze()
    assert environment.is_frozen
    with pytest.warns(VisibleDevicesChangedWarning, match="now '1'.*read it as '0'"):
        assert environment.in_force() == {"STUB_VISIBLE": "0"}


# Streams


def test_stream_context_selects_and_restores_the_device(namespace: StubNamespace, accelerator: StubAccelerator) -> None:
    accelerator.set_device(0)
    stream = accelerator.new_stream(1)
    assert stream.device == torch.device(DEVICE_TYPE, 1)
    with pytest.raises(ZeroDivisionError), accelerator.stream(stream) as entered:
        assert entered is stream
        assert namespace.index == 1
        accelerator.set_device(0)
        raise ZeroDivisionError
    assert namespace.index == 0
    with accelerator.stream(stream):
        assert namespace.index == 1
    assert namespace.index == 0
    with accelerator.stream(None):
        assert namespace.index == 0


def test_a_stream_context_is_entered_once(accelerator: StubAccelerator) -> None:
    context = accelerator.stream(Stream(torch.device(DEVICE_TYPE, 1)))
    with context, pytest.raises(DeviceError, match="entered once"):
        context.__enter__()


def test_what_is_not_a_stream_of_this_device_is_refused(accelerator: StubAccelerator) -> None:
    with pytest.raises(DeviceError, match="not a stream"):
        accelerator.stream(3)
    with pytest.raises(DeviceError, match="cpu"):
        accelerator.stream(Stream(torch.device("cpu")))
    assert accelerator.stream(SimpleNamespace(device_index=1)) is not None


def test_streams_of_any_device(namespace: StubNamespace, accelerator: StubAccelerator) -> None:
    assert accelerator.current_stream(1).device.index == 1
    assert accelerator.default_stream("1").device.index == 1
    assert accelerator.new_stream(device=DEVICE_TYPE).device == torch.device(DEVICE_TYPE, 0)
    assert accelerator.new_stream().device is None
    assert accelerator.new_event(enable_timing=True).enable_timing
    with pytest.raises(DeviceError):
        accelerator.new_stream(7)


def test_without_streams(accelerator: StubAccelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("Stream", "Event", "stream", "default_stream"):
        monkeypatch.setattr(StubNamespace, name, None)
    assert accelerator.current_stream() is None
    assert accelerator.probe("event_timing") == CapabilityEvidence(False, "torch.privateuseone has no Event")
    for call in (lambda: accelerator.stream(None), accelerator.default_stream, accelerator.new_stream, accelerator.new_event):
        with pytest.raises(NotImplementedError):
            call()


# Random numbers


@given(st.integers(-(2**63), 2**64 - 1))
def test_seeds_are_taken_modulo_two_to_the_64(seed: int) -> None:
    assert checked_seed(seed) == torch.Generator().manual_seed(seed).initial_seed()


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
def test_seeds_outside_the_range(accelerator: StubAccelerator, namespace: StubNamespace, seed: int) -> None:
    with pytest.raises(ValueError, match=str(seed)):
        accelerator.manual_seed(seed)
    with pytest.raises(TypeError):
        accelerator.manual_seed_all(1.5)  # type: ignore[arg-type]
    assert namespace.seeds == []


def test_states_are_cpu_copies_whatever_the_default_device(namespace: StubNamespace, accelerator: StubAccelerator) -> None:
    with torch.device("meta"):
        state = accelerator.get_rng_state(1)
    assert state.device.type == "cpu"
    state.fill_(9)
    assert int(namespace.states[1][0]) == 1
    accelerator.set_rng_state(state, 1)
    assert int(namespace.states[1][0]) == 9
    assert int(namespace.states[0][0]) == 0
    assert accelerator.initial_seed() == 2**64 - 1


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (b"0" * 16, TypeError),
        (torch.zeros(16), TypeError),
        (torch.zeros(4, 4, dtype=torch.uint8), TypeError),
        (torch.zeros(16, dtype=torch.uint8, device="meta"), TypeError),
        (torch.zeros(15, dtype=torch.uint8), ValueError),
    ],
)
def test_wrong_states_are_refused_before_the_namespace(
    namespace: StubNamespace, accelerator: StubAccelerator, state: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match="random state"):
        accelerator.set_rng_state(state)
    assert ("set_rng_state", 0) not in namespace.calls


def test_a_state_that_the_namespace_refuses_leaves_the_generator(namespace: StubNamespace, accelerator: StubAccelerator) -> None:
    namespace.refuse_states = True
    with pytest.raises(RuntimeError, match="not a state"):
        accelerator.set_rng_state(torch.full((16,), 7, dtype=torch.uint8), 1)
    assert int(namespace.states[1][0]) == 1


def test_seeds_before_first_use_are_handed_on_where_nothing_is_queued(
    namespace: StubNamespace, accelerator: StubAccelerator
) -> None:
    accelerator.manual_seed(-1)
    accelerator.manual_seed_all(5)
    assert namespace.seeds == [("one", 2**64 - 1), ("all", 5)]


def test_only_the_latest_seeds_wait_for_a_runtime_that_queues(namespace: StubNamespace, accelerator: StubAccelerator) -> None:
    queue: list[Any] = []
    namespace._lazy_call = queue.append  # type: ignore[attr-defined]
    namespace.default_generators = (Generator(), Generator())  # type: ignore[attr-defined]
    for seed in range(1000):
        accelerator.manual_seed(seed)
        accelerator.manual_seed_all(seed)
    accelerator.manual_seed(77)
    assert len(queue) == 1
    queue.pop()()
    assert [generator.seed for generator in namespace.default_generators] == [77, 999]  # type: ignore[attr-defined]
    assert namespace.seeds == []
    namespace.initialized = False
    accelerator.manual_seed_all(4)
    queue.pop()()
    assert [generator.seed for generator in namespace.default_generators] == [4, 4]  # type: ignore[attr-defined]
    namespace.initialized = True
    accelerator.manual_seed(1)
    assert namespace.seeds == [("one", 1)]


# Out-of-memory observers


def test_observers_are_guarded_and_attached_once(
    namespace: StubNamespace, accelerator: StubAccelerator, caplog: pytest.LogCaptureFixture
) -> None:
    attached: list[Any] = []
    assert not accelerator.attach_oom_observer(lambda *numbers: None)
    assert not accelerator.supports(Capability.OOM_OBSERVER)
    namespace.extension = SimpleNamespace(_privateuseone_attach_out_of_memory_observer=attached.append)  # type: ignore[attr-defined]
    seen: list[tuple[int, ...]] = []

    def observer(*numbers: int) -> None:
        seen.append(numbers)
        raise ZeroDivisionError

    assert accelerator.attach_oom_observer(observer)
    assert StubAccelerator().attach_oom_observer(observer)
    assert len(attached) == 1
    assert namespace.initialized
    attached[0](0, 1, 2, 3)
    assert seen == [(0, 1, 2, 3)]
    assert "out-of-memory observer" in caplog.text
    with pytest.raises(TypeError, match="not callable"):
        accelerator.attach_oom_observer(3)  # type: ignore[arg-type]


def test_a_public_attach_function_comes_first(namespace: StubNamespace, accelerator: StubAccelerator) -> None:
    attached: list[Any] = []
    namespace.initialized = True
    namespace.attach_out_of_memory_observer = attached.append  # type: ignore[attr-defined]
    assert accelerator.supports("oom_observer")
    assert accelerator.attach_oom_observer(lambda *numbers: None)
    assert len(attached) == 1


def test_nothing_is_left_behind() -> None:
    gc.collect()
    assert not hasattr(torch, DEVICE_TYPE)
    assert "pymtml" not in sys.modules
