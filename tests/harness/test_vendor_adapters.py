"""What each vendor's adapter declares, without the vendor's package."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from harness.accelerator import cuda, musa_patch
from harness.accelerator.cuda import CUDAAccelerator
from harness.accelerator.management_library import physical_devices_from_nvml
from harness.accelerator.mlu import MLUAccelerator
from harness.accelerator.musa import MUSAAccelerator
from harness.accelerator.npu import NPUAccelerator
from harness.accelerator.visible_devices import PhysicalDevice
from harness.accelerator.xpu import XPUAccelerator
from harness.errors import AcceleratorUnavailableError, VendorPatchError

ADAPTERS = (CUDAAccelerator, MUSAAccelerator, NPUAccelerator, XPUAccelerator, MLUAccelerator)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_constructible_and_honest_without_a_device(adapter: Callable[[], Any]) -> None:
    accelerator = adapter()
    assert not accelerator.is_available()
    assert accelerator.unavailable_reason()
    assert accelerator.name == accelerator.device_type
    assert accelerator.visible_devices_env
    assert accelerator.communication_backend("NCCL") == accelerator.communication_backend_name


@pytest.mark.parametrize("adapter", [MUSAAccelerator, NPUAccelerator, MLUAccelerator])
def test_the_missing_package_is_named(adapter: Callable[[], Any]) -> None:
    accelerator = adapter()
    with pytest.raises(AcceleratorUnavailableError, match=f"install torch_{accelerator.name}"):
        accelerator.set_device(0)


# CUDA and ROCm


def test_cuda_claims() -> None:
    accelerator = CUDAAccelerator()
    for name in ("nvml_affinity", "cuda_int4_extension", "sglang_fp8_utils", "triton_kernels", "strict_fp32_logits", "fp16"):
        assert accelerator.supports(name), name
    assert not accelerator.supports("requires_cpu_initialization")
    assert accelerator.visible_devices_env == "CUDA_VISIBLE_DEVICES"


def test_rocm_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "6.2")
    accelerator = CUDAAccelerator()
    assert not accelerator.supports("nvml_affinity")
    assert accelerator.supports("requires_cpu_initialization")
    assert "HIP_VISIBLE_DEVICES" in accelerator.visible_devices_grammar.variables


def test_a_shim_that_makes_torch_cuda_available_does_not_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    assert not CUDAAccelerator().is_available()
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert not CUDAAccelerator().is_available()
    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", lambda: 8, raising=False)
    assert CUDAAccelerator().is_available()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert CUDAAccelerator().is_available()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert "no usable cuda device" in CUDAAccelerator().unavailable_reason()


def test_cuda_autocast_takes_float32_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CUDAAccelerator().autocast_dtypes() == ()
    monkeypatch.setattr(CUDAAccelerator, "is_available", lambda self: True)
    assert CUDAAccelerator().autocast_dtypes() == (torch.float16, torch.bfloat16, torch.float32)


def test_cuda_observers_are_attached_through_pytorchs_function(monkeypatch: pytest.MonkeyPatch) -> None:
    attached: list[Any] = []
    monkeypatch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", attached.append, raising=False)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    assert CUDAAccelerator().attach_oom_observer(lambda *numbers: None)
    assert len(attached) == 1


def test_cuda_devices_by_pytorchs_own_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)

    def missing() -> None:
        raise OSError("libnvidia-ml.so.1")

    monkeypatch.setattr(torch.cuda, "_raw_device_uuid_nvml", missing)
    assert CUDAAccelerator().physical_devices() is None
    assert not CUDAAccelerator().supports("fork_after_selection")
    monkeypatch.setattr(torch.cuda, "_raw_device_uuid_nvml", lambda: None)
    assert CUDAAccelerator().physical_devices() is None
    monkeypatch.setattr(torch.cuda, "_raw_device_uuid_nvml", lambda: ["GPU-a", "GPU-b"])
    assert CUDAAccelerator().physical_devices() == (PhysicalDevice(0, "GPU-a"), PhysicalDevice(1, "GPU-b"))
    assert cuda._physical_devices_from_torch("no_such_function", False) is None
    monkeypatch.setattr(torch.version, "hip", "6.2")
    monkeypatch.setattr(torch.cuda, "_raw_device_uuid_amdsmi", lambda: ["77"])
    assert CUDAAccelerator().physical_devices() == (PhysicalDevice(0, "GPU-77"),)


# Management libraries


def nvml(**functions: Any) -> ModuleType:
    module = ModuleType("stub_nvml")
    defaults: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: f"handle{index}",
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
    }
    for name, function in {**defaults, **functions}.items():
        setattr(module, name, function)
    return module


def test_devices_of_a_management_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    assert CUDAAccelerator().physical_devices() == (PhysicalDevice(0, "GPU-handle0"), PhysicalDevice(1, "GPU-handle1"))
    monkeypatch.setitem(sys.modules, "pymtml", nvml(nvmlDeviceGetUUID=lambda handle: b"musa-uuid", nvmlDeviceGetCount=lambda: 1))
    assert MUSAAccelerator().physical_devices() == (PhysicalDevice(0, "musa-uuid"),)


def test_mig_instances_with_empty_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    def instance(handle: str, slot: int) -> str:
        if slot == 0:
            raise LookupError
        return f"{handle}/{slot}"

    library = nvml(nvmlDeviceGetMaxMigDeviceCount=lambda handle: 3, nvmlDeviceGetMigDeviceHandleByIndex=instance)
    monkeypatch.setitem(sys.modules, "stub_nvml", library)
    devices = physical_devices_from_nvml("stub_nvml")
    assert devices is not None
    assert devices[0].mig_uuids == ("GPU-handle0/1", "GPU-handle0/2")


@pytest.mark.parametrize("broken", ["nvmlInit", "nvmlDeviceGetCount", "nvmlShutdown"])
def test_a_library_that_fails_cannot_be_asked(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    def fail() -> None:
        raise LookupError(broken)

    monkeypatch.setitem(sys.modules, "stub_nvml", nvml(**{broken: fail}))
    assert (physical_devices_from_nvml("stub_nvml") is None) == (broken != "nvmlShutdown")


# MUSA


def test_musa_claims() -> None:
    accelerator = MUSAAccelerator()
    for name in ("nvml_affinity", "sglang_fp8_utils", "strict_fp32_logits"):
        assert not accelerator.supports(name), name
    assert accelerator.supports("requires_cpu_initialization")


def test_musa_groups() -> None:
    accelerator = MUSAAccelerator()
    assert accelerator.autocast_dtypes() == ()
    assert accelerator.communication_backend() == "mccl"
    assert accelerator.weight_update_backend() == "cpu:gloo,musa:mccl"
    assert accelerator.weight_update_backend("gloo") == "gloo"
    assert accelerator.distributed_device_id(index=0) is None
    assert CUDAAccelerator().weight_update_backend() == "nccl"


@pytest.fixture
def no_patch_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process in which `musa_patch` was never applied."""
    known = musa_patch.MUSA_PATCH
    fresh = musa_patch.VendorPatch(known.module, backend=known.backend, path_variable=known.path_variable, callback=known.callback)
    monkeypatch.setattr(musa_patch, "MUSA_PATCH", fresh)


@pytest.mark.usefixtures("no_patch_yet")
def test_musa_patch_is_applied_once_by_selection_and_hook_together(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    accelerator = MUSAAccelerator()
    accelerator.post_import_torch()
    monkeypatch.setitem(sys.modules, "musa_patch", SimpleNamespace(patch_after_import_torch=lambda: called.append(1)))
    musa_patch.apply_musa_patch()
    accelerator.post_import_torch()
    accelerator.post_import_torch()
    assert called == [1]


@pytest.mark.usefixtures("no_patch_yet")
def test_musa_patch_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "musa_patch", SimpleNamespace(patch_after_import_torch=lambda: 1 // 0))
    with pytest.raises(VendorPatchError, match="division") as caught:
        MUSAAccelerator().post_import_torch()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.usefixtures("no_patch_yet")
def test_musa_patch_with_a_missing_dependency(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "musa_patch.py").write_text("import a_package_that_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(VendorPatchError, match="a_package_that_is_not_there"):
        MUSAAccelerator().post_import_torch()
