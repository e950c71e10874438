"""Which device types and transports exist.

For: validating backend strings against PyTorch and the accelerator registry (PGN-5, PGN-6). Not for: reading those strings
(`backend_spec.py`). Nothing here imports a vendor's package or initialises a runtime.
"""

from __future__ import annotations

import re

import torch

from harness.accelerator import default

_DEVICE_TYPE = re.compile(r"[a-z_][a-z0-9_]*", re.ASCII)


def is_known_device(name: str) -> bool:
    """Whether `name` is a bare device type of this PyTorch or the name of a registered accelerator."""
    return is_torch_device_type(name) or name in default.registered_accelerators()


def is_torch_device_type(name: str) -> bool:
    """Whether `torch.device(name)` is a device type of this PyTorch, without an index."""
    if not _DEVICE_TYPE.fullmatch(name):
        return False
    try:
        return torch.device(name).index is None
    except RuntimeError:
        return False


def registered_transports() -> frozenset[str]:
    """The `torch.distributed` backends of all registered accelerators, lower case.

    Loads the entry points of installed packages, which is where their transports are written; one that fails is left out.
    """
    names = (name for registration in default.REGISTRY.registrations() for name in registration.communication_backends)
    return frozenset(name.strip().lower() for name in names)


def example_devices() -> tuple[str, ...]:
    """Device types to name in an error: the host's and the registered ones."""
    return ("cpu", *default.registered_accelerators())
