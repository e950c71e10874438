"""NVIDIA's CUDA, and AMD's ROCm, which PyTorch shows under the same namespace.

For: `torch.cuda` with NCCL (RCCL on ROCm). Not for: vendors whose compatibility shim renames their device to `cuda`;
`is_available` is false on those (SEL-15)."""

from __future__ import annotations

import warnings

import torch

from harness.accelerator.capabilities import Capability
from harness.accelerator.claims import claims
from harness.accelerator.management_library import physical_devices_from_nvml
from harness.accelerator.torch_namespace import TorchNamespaceAccelerator
from harness.accelerator.visible_devices import GRAMMARS, PhysicalDevice

_ALWAYS = (
    Capability.FP16,
    Capability.DETERMINISTIC,
    Capability.DEVICE_ASSERTS,
    Capability.STRICT_FP32_LOGITS,
    Capability.SGLANG_FP8_UTILS,
    Capability.CUDA_INT4_EXTENSION,
    Capability.TRITON_KERNELS,
)


class CUDAAccelerator(TorchNamespaceAccelerator):
    """CUDA and ROCm devices. Which of the two this PyTorch was built for (`torch.version.hip`) decides the visible-devices
    grammar.
    """

    name = "cuda"
    device_type = "cuda"
    communication_backend_name = "nccl"
    visible_devices_grammar = GRAMMARS["cuda"]
    install_hint = "install a build of PyTorch with CUDA or ROCm"
    oom_observer_owners = ("torch._C",)
    memory_pause_modules = ("torch_memory_saver",)
    # Generators take a state without the philox offset, which is its last eight bytes.
    random_state_sizes = (8,)

    def __init__(self) -> None:
        self.is_rocm = bool(torch.version.hip)
        if self.is_rocm:
            self.visible_devices_grammar = GRAMMARS["rocm"]
        only_cuda, only_rocm = Capability.NVML_AFFINITY, Capability.REQUIRES_CPU_INITIALIZATION
        has, lacks = (only_rocm, only_cuda) if self.is_rocm else (only_cuda, only_rocm)
        self.declarations = claims("the ROCm adapter" if self.is_rocm else "the CUDA adapter", has=(*_ALWAYS, has), lacks=(lacks,))

    def is_available(self) -> bool:
        """Whether a device is visible, by a management library where one can tell; `torch.cuda.is_available` initialises the
        driver.
        """
        if not (torch.version.cuda or torch.version.hip) or not hasattr(torch._C, "_cuda_getDeviceCount"):
            return False
        return self.device_count() > 0

    def unavailable_reason(self) -> str:
        if not (torch.version.cuda or torch.version.hip) or not hasattr(torch._C, "_cuda_getDeviceCount"):
            return f"this PyTorch was built without CUDA or ROCm; {self.install_hint}"
        return super().unavailable_reason()

    def physical_devices(self) -> tuple[PhysicalDevice, ...] | None:
        if not self.is_rocm:
            told = physical_devices_from_nvml("pynvml")
            if told is not None:
                return told
        return _physical_devices_from_torch("_raw_device_uuid_amdsmi" if self.is_rocm else "_raw_device_uuid_nvml", self.is_rocm)

    def autocast_dtypes(self) -> tuple[torch.dtype, ...]:
        # PyTorch also takes float32 here, in which nothing is cast down.
        return (*super().autocast_dtypes(), torch.float32) if self.is_available() else ()


def _physical_devices_from_torch(function_name: str, is_rocm: bool) -> tuple[PhysicalDevice, ...] | None:
    """The devices as PyTorch's own binding of the management library lists them."""
    function = getattr(torch.cuda, function_name, None)
    if function is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            uuids = function()
        except (OSError, AttributeError):  # the library is not installed, or too old for this function
            return None
    if uuids is None:
        return None
    # AMD's library gives the bare serial number, to which the variables put a prefix.
    return tuple(PhysicalDevice(index, f"GPU-{uuid}" if is_rocm else uuid) for index, uuid in enumerate(uuids))
