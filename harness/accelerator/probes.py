"""Whether a vendor's device is there, asked without touching anything.

For: the probes of the built-in registrations. Each opens no context, imports no module, changes no environment and caches no count
(SEL-14); where a management library can count the devices, no runtime is initialised either (SEL-10). Not for: what a device can do
(`Accelerator.probe`), or making a backend available (`musa_patch.py`).

Sources: `torch.cuda.device_count` and `torch.xpu.device_count` of PyTorch for counting through NVML, amdsmi and Sysman; MUSA, NPU
and MLU builds publish `torch.<type>.is_available`.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import torch

from harness.accelerator.registration import Availability

VENDOR_PACKAGES = {"musa": "torch_musa", "npu": "torch_npu", "mlu": "torch_mlu"}
"""The package that publishes `torch.<type>`, for devices that PyTorch does not know by itself."""


def cuda() -> Availability:
    """CUDA or ROCm: a build of PyTorch for it with PyTorch's own bindings, whatever a vendor's shim says (SEL-15)."""
    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        return Availability(
            False, "this PyTorch is built for neither CUDA nor ROCm: torch.version.cuda and torch.version.hip are None"
        )
    if not hasattr(torch._C, "_cuda_getDeviceCount"):
        return Availability(False, "this PyTorch lacks its own CUDA bindings, torch._C._cuda_getDeviceCount")
    return _counted("cuda", count_cuda_devices())


def count_cuda_devices() -> int:
    """The number of visible CUDA or ROCm devices, counted by the management library where that works, else by the driver.

    A shim may have replaced `torch.cuda` and every function in it. The module that PyTorch itself imported is still in
    `sys.modules`, and the counting by NVML and amdsmi is not part of the public surface that shims translate.
    """
    own: Any = sys.modules["torch.cuda"]
    if not own._initialized:
        count_by_management = getattr(own, "_device_count_amdsmi" if torch.version.hip else "_device_count_nvml", None)
        count = count_by_management() if count_by_management is not None else -1
        if count >= 0:
            return int(count)
    return int(torch._C._cuda_getDeviceCount())


def xpu() -> Availability:
    """Intel's devices, counted by Sysman where PyTorch can."""
    if not getattr(torch._C, "_has_xpu", False):
        return Availability(False, "this PyTorch is built without XPU")
    return _counted("xpu", torch.xpu.device_count())


def musa() -> Availability:
    """Moore Threads' devices, by `torch.musa`."""
    return _answer_of_namespace("musa")


def npu() -> Availability:
    """Ascend devices, by `torch.npu`."""
    return _answer_of_namespace("npu")


def mlu() -> Availability:
    """Cambricon devices, by `torch.mlu`."""
    return _answer_of_namespace("mlu")


def _answer_of_namespace(device_type: str) -> Availability:
    """What the vendor's own namespace says; it is not imported where it is not loaded."""
    namespace = getattr(torch, device_type, None)
    if namespace is None:
        return Availability(False, f"there is no torch.{device_type}: {_package_state(VENDOR_PACKAGES[device_type])}")
    is_available: Callable[[], object] | None = getattr(namespace, "is_available", None)
    if is_available is None:
        return Availability(False, f"torch.{device_type} has no is_available(), so it is not the vendor's namespace")
    if is_available():
        return Availability(True, f"torch.{device_type}.is_available() is true")
    return Availability(False, f"torch.{device_type}.is_available() is false: no device, no driver, or none visible")


def _package_state(package: str) -> str:
    if package in sys.modules:
        return f"{package} is loaded, but did not publish it"
    if importlib.util.find_spec(package) is None:
        return f"{package} is not installed"
    return f"{package} is installed but not loaded; PyTorch loads it unless TORCH_DEVICE_BACKEND_AUTOLOAD=0; or import it first"


def _counted(device_type: str, count: int) -> Availability:
    if count > 0:
        return Availability(True, f"{count} {device_type} device(s) visible")
    return Availability(False, f"PyTorch is built for {device_type}, but no device is visible to this process")
