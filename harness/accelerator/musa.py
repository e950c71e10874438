"""Moore Threads' MUSA.

For: `torch.musa` with MCCL, as the `torch_musa` package brings it. Not for: importing `musa_patch` when the backend is chosen;
selection does that once, before construction."""

from __future__ import annotations

import torch

from harness.accelerator import musa_patch
from harness.accelerator.capabilities import Capability
from harness.accelerator.claims import claims
from harness.accelerator.device_forms import DeviceLike
from harness.accelerator.management_library import physical_devices_from_nvml
from harness.accelerator.torch_namespace import TorchNamespaceAccelerator
from harness.accelerator.visible_devices import GRAMMARS, PhysicalDevice


class MUSAAccelerator(TorchNamespaceAccelerator):
    """MUSA devices."""

    name = "musa"
    device_type = "musa"
    communication_backend_name = "mccl"
    visible_devices_grammar = GRAMMARS["musa"]
    install_hint = "install torch_musa for this PyTorch and import it, and set MUSA_PATCH_PATH if your stack needs musa_patch"
    oom_observer_owners = ("torch.musa._MUSAC", "torch_musa._MUSAC")
    random_state_sizes = (8,)
    declarations = claims(
        "the MUSA adapter",
        has=(Capability.FP16, Capability.REQUIRES_CPU_INITIALIZATION),
        lacks=(
            Capability.NVML_AFFINITY,
            Capability.SGLANG_FP8_UTILS,
            Capability.STRICT_FP32_LOGITS,
            Capability.CUDA_INT4_EXTENSION,
            Capability.TRITON_KERNELS,
        ),
    )

    def physical_devices(self) -> tuple[PhysicalDevice, ...] | None:
        return physical_devices_from_nvml("pymtml")

    def weight_update_backend(self, default: str = "nccl") -> str:
        """Metadata goes over gloo on the CPU, tensors over MCCL (PGN-9)."""
        transport = self.communication_backend(default)
        return f"cpu:gloo,musa:{transport}" if transport != default else default

    def distributed_device_id(self, index: DeviceLike = None) -> torch.device | None:  # noqa: ARG002 - the contract's name
        """None: MCCL takes no `device_id` (PGN-9)."""
        return None

    def post_import_torch(self) -> None:
        """Import `musa_patch` and call its `patch_after_import_torch`, unless that was done before in this process (SEL-6).

        Raises:
            VendorPatchError: the module fails, a missing dependency of it included.
        """
        musa_patch.apply_musa_patch()
