"""How much memory checks may ask for.

For: running out of memory without running out of the host's, and a device's memory made small for a while. Not for: programs
(`programs/memory_program.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from conformance.accelerator_access import device_type_of, method
from conformance.backend_under_test import BackendUnderTest
from conformance.checking import unsupported


def require_memory_of_its_own(backend: BackendUnderTest) -> None:
    """End the check as unsupported where running out of memory would be running out of the host's."""
    reason = shared_memory_reason(backend)
    if reason:
        unsupported(reason)


def shared_memory_reason(backend: BackendUnderTest) -> str:
    """Why the devices' memory is the host's; empty where it is not."""
    kind = device_type_of(backend.accelerator)
    if kind in ("cpu", "mps"):
        return f"the memory of a {kind} device is the host's"
    properties = getattr(backend.accelerator, "get_device_properties", None)
    if properties is not None and method(backend.accelerator, "supports")("device_properties"):
        found = properties(0)
        if getattr(found, "is_integrated", False):
            return f"{getattr(found, 'name', 'the device')} is integrated: its memory is the host's"
    return ""


@contextlib.contextmanager
def room_for(accelerator: Any, size: int, device: int) -> Iterator[bool]:
    """While the block runs, this process may have `size` bytes of a device more than it has now; false where nothing can limit it, or
    others leave too little of a shared device to tell."""
    namespace = method(accelerator, "accelerator_module")()
    limit = getattr(namespace, "set_per_process_memory_fraction", None)
    method(accelerator, "empty_cache")()
    free, total = method(accelerator, "mem_get_info")(device)
    if limit is None or free < 2 * size:
        yield False
        return
    limit(min(1.0, (method(accelerator, "memory_reserved")(device) + size) / total), device)
    try:
        yield True
    finally:
        limit(1.0, device)
