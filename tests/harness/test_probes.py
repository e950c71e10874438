"""The built-in probes, against builds of PyTorch and vendors' namespaces that are pretended by patches."""

from __future__ import annotations

import os
import sys
import types
from typing import Any

import pytest
import torch

from harness.accelerator import probes
from harness.accelerator.default import BUILTIN_REGISTRATIONS, REGISTRY
from harness.accelerator.registration import Availability, resolve_reference


def refuse(*_: Any) -> Any:
    raise AssertionError("the probe touched what it must not touch")


@pytest.fixture
def cuda_build(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A build for CUDA with two devices that NVML counts; the driver must not be asked."""
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", refuse, raising=False)
    monkeypatch.setattr(torch.cuda, "_initialized", False)
    monkeypatch.setattr(torch.cuda, "_device_count_nvml", lambda: 2)
    return monkeypatch


class TestCUDA:
    def test_management_counts(self, cuda_build: pytest.MonkeyPatch) -> None:
        assert probes.cuda() == Availability(True, "2 cuda device(s) visible")
        cuda_build.setattr(torch.cuda, "_device_count_nvml", lambda: 0)
        assert not probes.cuda()
        assert "no device is visible" in probes.cuda().reason

    def test_the_driver_counts_where_management_cannot(self, cuda_build: pytest.MonkeyPatch) -> None:
        cuda_build.setattr(torch._C, "_cuda_getDeviceCount", lambda: 1)
        cuda_build.setattr(torch.cuda, "_device_count_nvml", lambda: -1)
        assert probes.count_cuda_devices() == 1
        cuda_build.delattr(torch.cuda, "_device_count_nvml")
        assert probes.count_cuda_devices() == 1

    def test_the_driver_counts_once_it_is_initialised(self, cuda_build: pytest.MonkeyPatch) -> None:
        cuda_build.setattr(torch._C, "_cuda_getDeviceCount", lambda: 1)
        cuda_build.setattr(torch.cuda, "_initialized", True)
        cuda_build.setattr(torch.cuda, "_device_count_nvml", refuse)
        assert probes.count_cuda_devices() == 1

    def test_rocm_counts_by_amdsmi(self, cuda_build: pytest.MonkeyPatch) -> None:
        cuda_build.setattr(torch.version, "cuda", None)
        cuda_build.setattr(torch.version, "hip", "6.3")
        cuda_build.setattr(torch.cuda, "_device_count_nvml", refuse)
        cuda_build.setattr(torch.cuda, "_device_count_amdsmi", lambda: 3, raising=False)
        assert probes.cuda().reason == "3 cuda device(s) visible"

    def test_b49_a_shim_that_says_no_does_not_decide(self, cuda_build: pytest.MonkeyPatch) -> None:
        shim = types.SimpleNamespace(is_available=lambda: False, device_count=lambda: 0, _initialized=True)
        cuda_build.setattr(torch, "cuda", shim)
        assert probes.cuda()

    def test_b53_a_shim_that_says_yes_does_not_decide(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.version, "cuda", None)
        monkeypatch.setattr(torch.version, "hip", None)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
        assert "torch.version.cuda and torch.version.hip are None" in probes.cuda().reason
        monkeypatch.setattr(torch.version, "cuda", "12.8")
        monkeypatch.delattr(torch._C, "_cuda_getDeviceCount", raising=False)
        assert not probes.cuda()
        assert "_cuda_getDeviceCount" in probes.cuda().reason


class TestXPU:
    def test_build_and_count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch._C, "_has_xpu", False)
        monkeypatch.setattr(torch.xpu, "device_count", refuse)
        assert "without XPU" in probes.xpu().reason
        monkeypatch.setattr(torch._C, "_has_xpu", True)
        monkeypatch.setattr(torch.xpu, "device_count", lambda: 1)
        assert probes.xpu() == Availability(True, "1 xpu device(s) visible")


@pytest.mark.parametrize("device_type", ["musa", "npu", "mlu"])
class TestVendorNamespaces:
    def test_the_namespace_answers(self, monkeypatch: pytest.MonkeyPatch, device_type: str) -> None:
        probe = getattr(probes, device_type)
        namespace = types.SimpleNamespace(is_available=lambda: True)
        monkeypatch.setattr(torch, device_type, namespace, raising=False)
        assert probe() == Availability(True, f"torch.{device_type}.is_available() is true")
        namespace.is_available = lambda: False
        assert not probe()
        del namespace.is_available
        assert "has no is_available()" in probe().reason

    def test_without_a_namespace_the_package_is_looked_for_and_not_imported(
        self, monkeypatch: pytest.MonkeyPatch, device_type: str, tmp_path: Any
    ) -> None:
        probe, package = getattr(probes, device_type), probes.VENDOR_PACKAGES[device_type]
        monkeypatch.delattr(torch, device_type, raising=False)
        assert probe().reason == f"there is no torch.{device_type}: {package} is not installed"
        (tmp_path / f"{package}.py").write_text("raise AssertionError('imported')")
        monkeypatch.syspath_prepend(str(tmp_path))
        modules, variables = set(sys.modules), dict(os.environ)
        assert "installed but not loaded" in probe().reason
        assert "TORCH_DEVICE_BACKEND_AUTOLOAD" in probe().reason
        assert set(sys.modules) == modules
        assert dict(os.environ) == variables

    def test_a_loaded_package_without_a_spec(self, monkeypatch: pytest.MonkeyPatch, device_type: str) -> None:
        package = probes.VENDOR_PACKAGES[device_type]
        monkeypatch.delattr(torch, device_type, raising=False)
        monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
        assert not getattr(probes, device_type)()
        assert f"{package} is loaded" in getattr(probes, device_type)().reason


def test_built_in_registrations_are_the_seeds_and_their_probes_exist() -> None:
    order = [registration.name for registration in REGISTRY.registrations() if registration.origin == "built in"]
    assert order == ["musa", "npu", "mlu", "cuda", "xpu"]
    assert {registration.name: registration.priority for registration in BUILTIN_REGISTRATIONS}["musa"] == 200
    for registration in BUILTIN_REGISTRATIONS:
        assert isinstance(resolve_reference(registration.is_available)(), Availability)
        assert registration.new_accelerator().name == registration.name
        assert registration.remedy
