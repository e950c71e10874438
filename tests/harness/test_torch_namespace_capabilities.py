"""Delegation to a namespace: capabilities and autocast, over a hand-written namespace."""

from __future__ import annotations

import threading
import warnings
from types import SimpleNamespace

import pytest
import torch
from stub_namespace import DEVICE_TYPE, StubAccelerator, StubNamespace

from harness.accelerator.capabilities import Capability, CapabilityEvidence
from harness.errors import (
    UnknownCapabilityError,
    UnsupportedCapabilityError,
)

# Capabilities


def test_every_capability_has_evidence_and_a_lasting_answer(namespace: StubNamespace, accelerator: StubAccelerator) -> None:

    first = {capability: accelerator.probe(capability) for capability in Capability}
    assert all(answer.evidence for answer in first.values())
    namespace.get_amp_supported_dtype = None  # type: ignore[method-assign, assignment]
    assert {capability: accelerator.probe(capability.value) for capability in Capability} == first


def test_only_the_capabilities_that_say_so_touch_the_device(namespace: StubNamespace, accelerator: StubAccelerator) -> None:
    for capability in Capability:
        if not capability.needs_device:
            accelerator.supports(capability)
    assert namespace.calls == []


def test_an_unknown_capability_raises_with_the_nearest_name(accelerator: StubAccelerator) -> None:
    with pytest.raises(UnknownCapabilityError, match="streams"):
        accelerator.supports("stream")


def test_threads_see_one_answer(namespace: StubNamespace, accelerator: StubAccelerator) -> None:
    answers: list[CapabilityEvidence] = []
    threads = [threading.Thread(target=lambda: answers.append(accelerator.probe("bf16"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert len(answers) == 8
    assert len({id(answer) for answer in answers}) == 1
    assert namespace.calls.count(("is_bf16_supported",)) == 1


def test_bf16_without_the_namespaces_answer_is_tried_on_the_device(
    accelerator: StubAccelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StubNamespace, "is_bf16_supported", None)
    assert "raised" in accelerator.probe("bf16").evidence
    other = StubAccelerator()
    monkeypatch.setattr(StubAccelerator, "device", lambda self, index=None: torch.device("cpu"))
    assert other.probe("bf16") == CapabilityEvidence(True, "1 + 1 in bfloat16 on cpu is 2.0")
    assert other.supports("device_generator")


def test_probes_that_look_at_other_modules(namespace: StubNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    namespace.memory = SimpleNamespace(_record_memory_history=1, _snapshot=1)
    namespace.StubGraph = namespace.graph = 1  # type: ignore[attr-defined]
    monkeypatch.setattr(StubAccelerator, "memory_pause_modules", ("stub_pause_package", "json"))
    monkeypatch.setattr(StubAccelerator, "physical_devices", lambda self: (1, 2))
    monkeypatch.setattr(torch.UntypedStorage, f"_share_{DEVICE_TYPE}_", 1, raising=False)
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: {torch.profiler.ProfilerActivity.PrivateUse1})
    accelerator = StubAccelerator()
    for name in (
        "memory_snapshot",
        "memory_pause",
        "graphs",
        "fork_after_selection",
        "ipc",
        "device_profiler",
        "event_timing",
        "fp16",
    ):
        assert accelerator.supports(name), accelerator.probe(name)


def test_events_that_refuse_timing(accelerator: StubAccelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(enable_timing: bool = False) -> None:
        raise NotImplementedError

    monkeypatch.setattr(StubNamespace, "Event", staticmethod(refuse))
    assert accelerator.probe("event_timing") == CapabilityEvidence(
        False, "Event(enable_timing=True) raised NotImplementedError: no message"
    )


def test_pinned_memory_belongs_to_the_current_accelerator(monkeypatch: pytest.MonkeyPatch, namespace: StubNamespace) -> None:
    assert not StubAccelerator().supports("pinned_memory")
    monkeypatch.setattr(StubAccelerator, "is_current_accelerator", lambda self: True)
    assert "raised RuntimeError" in StubAccelerator().probe("pinned_memory").evidence
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    assert not StubAccelerator().supports("pinned_memory")


def test_the_current_accelerator_is_pytorchs(monkeypatch: pytest.MonkeyPatch, accelerator: StubAccelerator) -> None:
    assert not accelerator.is_current_accelerator()
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device(DEVICE_TYPE))
    assert accelerator.is_current_accelerator()


# Autocast


def test_autocast_refuses_before_pytorch_can_warn(namespace: StubNamespace, accelerator: StubAccelerator) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert accelerator.autocast(dtype=torch.bfloat16)
        assert accelerator.autocast()
        assert accelerator.autocast(dtype=torch.float64, enabled=False)
        with pytest.raises(UnsupportedCapabilityError, match="float64"):
            accelerator.autocast(torch.float64)
        namespace.get_amp_supported_dtype = lambda: []  # type: ignore[method-assign]
        with pytest.raises(UnsupportedCapabilityError, match="does not know"):
            accelerator.autocast(enabled=False)
        namespace.get_amp_supported_dtype = None  # type: ignore[method-assign, assignment]
        assert accelerator.autocast_dtypes() == ()
    assert not accelerator.supports("amp")


def test_autocast_to_bfloat16_needs_a_device_that_computes_in_it(
    accelerator: StubAccelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StubNamespace, "is_bf16_supported", lambda self: False)
    with pytest.raises(UnsupportedCapabilityError, match="bfloat16"):
        accelerator.autocast(dtype=torch.bfloat16)


def test_a_device_type_that_autocast_does_not_know(monkeypatch: pytest.MonkeyPatch, accelerator: StubAccelerator) -> None:
    monkeypatch.setattr(torch.amp, "is_autocast_available", lambda device_type: False)
    assert accelerator.autocast_dtypes() == ()
