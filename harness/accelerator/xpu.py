"""Intel's XPU.

For: `torch.xpu` with XCCL, in a build of PyTorch with XPU support. A declaration: all else is delegated. Not for: more than that.
"""

from __future__ import annotations

from harness.accelerator.capabilities import Capability
from harness.accelerator.claims import claims
from harness.accelerator.torch_namespace import TorchNamespaceAccelerator
from harness.accelerator.visible_devices import GRAMMARS


class XPUAccelerator(TorchNamespaceAccelerator):
    """XPU devices."""

    name = "xpu"
    device_type = "xpu"
    communication_backend_name = "xccl"
    visible_devices_grammar = GRAMMARS["xpu"]
    install_hint = "install a build of PyTorch with XPU"
    oom_observer_owners = ("torch._C",)
    declarations = claims("the XPU adapter", has=(Capability.FP16,))
