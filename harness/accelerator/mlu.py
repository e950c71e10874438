"""Cambricon's MLU.

For: `torch.mlu` with CNCL, as the `torch_mlu` package brings it. A declaration: all else is delegated. Not for: more than that.
"""

from __future__ import annotations

from harness.accelerator.capabilities import Capability
from harness.accelerator.claims import claims
from harness.accelerator.torch_namespace import TorchNamespaceAccelerator
from harness.accelerator.visible_devices import GRAMMARS


class MLUAccelerator(TorchNamespaceAccelerator):
    """MLU devices."""

    name = "mlu"
    device_type = "mlu"
    communication_backend_name = "cncl"
    visible_devices_grammar = GRAMMARS["mlu"]
    install_hint = "install torch_mlu for this PyTorch and import it"
    oom_observer_owners = ("torch_mlu._MLUC",)
    declarations = claims("the MLU adapter", has=(Capability.FP16,))
