"""The accelerator contract, its backends, and the choice of one.

Importing this imports no vendor's package and initialises no device runtime (REG-3, SEL-10).
"""

from harness.accelerator.capabilities import Capability
from harness.accelerator.contract import Accelerator
from harness.accelerator.default import (
    get_accelerator,
    initialize_accelerator,
    register_accelerator,
    registered_accelerators,
    reset_accelerator,
    set_accelerator,
    unregister_accelerator,
)
from harness.accelerator.device_ids import LocalDeviceId, PhysicalDeviceId

__all__ = [
    "Accelerator",
    "Capability",
    "LocalDeviceId",
    "PhysicalDeviceId",
    "get_accelerator",
    "initialize_accelerator",
    "register_accelerator",
    "registered_accelerators",
    "reset_accelerator",
    "set_accelerator",
    "unregister_accelerator",
]
