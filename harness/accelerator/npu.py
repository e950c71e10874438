"""Huawei's Ascend NPU.

For: `torch.npu` with HCCL, as the `torch_npu` package brings it. A declaration: all else is delegated. Not for: more than that.
"""

from __future__ import annotations

from harness.accelerator.capabilities import Capability
from harness.accelerator.claims import claims
from harness.accelerator.torch_namespace import TorchNamespaceAccelerator
from harness.accelerator.visible_devices import GRAMMARS


class NPUAccelerator(TorchNamespaceAccelerator):
    """NPU devices."""

    name = "npu"
    device_type = "npu"
    communication_backend_name = "hccl"
    visible_devices_grammar = GRAMMARS["npu"]
    install_hint = "install torch_npu for this PyTorch and import it"
    oom_observer_owners = ("torch_npu._C",)
    declarations = claims("the NPU adapter", has=(Capability.FP16,))
