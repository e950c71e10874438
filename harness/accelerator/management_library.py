"""The devices of this host, as a management library tells them.

For: counting and naming devices without initialising the device runtime (SEL-10), through a module that speaks NVML's Python
interface (`pynvml`; `pymtml` has the same functions for Moore Threads devices). Not for: which of them are visible to the
process."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

from harness.accelerator.visible_devices import PhysicalDevice


def physical_devices_from_nvml(module_name: str) -> tuple[PhysicalDevice, ...] | None:
    """Every device that the library knows, in its order (that of the PCI bus); None where it cannot be asked.

    The library's own errors mean that it cannot be asked: no driver, no permission, an older library.
    """
    try:
        library = importlib.import_module(module_name)
    except (ImportError, OSError):
        return None
    try:
        library.nvmlInit()
    except Exception:  # noqa: BLE001 - each library has its own error class, which only the library can name
        return None
    try:
        return tuple(_device(library, index) for index in range(int(library.nvmlDeviceGetCount())))
    except Exception:  # noqa: BLE001 - as above
        return None
    finally:
        with contextlib.suppress(Exception):
            library.nvmlShutdown()


def _device(library: Any, index: int) -> PhysicalDevice:
    handle = library.nvmlDeviceGetHandleByIndex(index)
    return PhysicalDevice(index, _text(library.nvmlDeviceGetUUID(handle)), tuple(_mig_uuids(library, handle)))


def _mig_uuids(library: Any, handle: Any) -> Iterator[str]:
    """The UUIDs of the device's MIG instances; none where the library or the device knows no MIG."""
    count: Callable[[Any], int] | None = getattr(library, "nvmlDeviceGetMaxMigDeviceCount", None)
    if count is None:
        return
    with contextlib.suppress(Exception):
        for instance in range(int(count(handle))):
            # Slots may be empty: the library raises for those, and the next one may be filled.
            with contextlib.suppress(Exception):
                yield _text(library.nvmlDeviceGetUUID(library.nvmlDeviceGetMigDeviceHandleByIndex(handle, instance)))


def _text(value: str | bytes) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else value
