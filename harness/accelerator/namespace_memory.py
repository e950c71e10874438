"""Memory through a `torch.<type>` namespace.

For: counters that answer before first use without opening a context (MEM-11), the out-of-memory observer (MEM-5) and the
allocator's setting (MEM-9). Not for: how a setting is merged and read back (`allocator.py`)."""

from __future__ import annotations

import sys
from typing import Any

from harness.accelerator import allocator, oom_observer
from harness.accelerator.capabilities import Capability
from harness.accelerator.device_forms import DeviceLike
from harness.accelerator.namespace_access import NamespaceAccess
from harness.accelerator.oom_observer import OomObserver


class NamespaceMemory(NamespaceAccess):
    """The memory part of a delegating backend."""

    oom_observer_owners: tuple[str, ...] = ()
    """Dotted paths of the extension modules that may hold `_<device_type>_attach_out_of_memory_observer`."""

    def empty_cache(self) -> None:
        function = self._find("empty_cache")
        if function is not None and self._is_initialized():
            self._enter_runtime()
            function()

    def ipc_collect(self) -> None:
        function = self._find("ipc_collect")
        if function is not None and self._is_initialized():
            self._enter_runtime()
            function()

    def mem_get_info(self, device: DeviceLike = None) -> tuple[int, int]:
        function = self._require("mem_get_info", Capability.DEVICE_MEMORY)
        index = self.device_index(device)
        self._enter_runtime()
        free, total = function(index)
        return int(free), int(total)

    def memory_allocated(self, device: DeviceLike = None) -> int:
        return self._counter("memory_allocated", Capability.DEVICE_MEMORY, device)

    def memory_reserved(self, device: DeviceLike = None) -> int:
        return self._counter("memory_reserved", Capability.DEVICE_MEMORY, device)

    def max_memory_allocated(self, device: DeviceLike = None) -> int:
        return self._counter("max_memory_allocated", Capability.PEAK_MEMORY, device)

    def max_memory_reserved(self, device: DeviceLike = None) -> int:
        return self._counter("max_memory_reserved", Capability.PEAK_MEMORY, device)

    def reset_peak_memory_stats(self, device: DeviceLike = None) -> None:
        function = self._require("reset_peak_memory_stats", Capability.PEAK_MEMORY)
        index = self.device_index(device)
        if self._is_initialized():
            self._enter_runtime()
            function(index)

    def memory_module(self) -> Any:
        return getattr(self.accelerator_module(), "memory", None)

    def attach_oom_observer(self, callback: OomObserver) -> bool:
        if not callable(callback):
            raise TypeError(f"{callback!r} ({type(callback).__name__}) is not callable; it is called with four integers")
        attach = self._oom_attach_function()
        if attach is None:
            return False
        # Attaching to a runtime that was never initialised ends the process in some versions.
        self._initialize()
        oom_observer.attach_once(self.device_type, attach, callback)
        return True

    def set_allocator_expandable_segments(self) -> bool:
        return allocator.set_expandable_segments(self.device_type, self.memory_module)

    def _initialize(self) -> None:
        self._enter_runtime()
        initialize = getattr(self.accelerator_module(), "init", None)
        if initialize is not None and not self._is_initialized():
            initialize()

    def _oom_attach_function(self) -> oom_observer.AttachFunction | None:
        """The vendor's attach function: in the namespace, or in an extension module that is imported already."""
        name = "attach_out_of_memory_observer"
        public: oom_observer.AttachFunction | None = self._find(name)
        if public is not None:
            return public
        for path in self.oom_observer_owners:
            private: oom_observer.AttachFunction | None = getattr(_imported(path), f"_{self.device_type}_{name}", None)
            if private is not None:
                return private
        return None

    def _counter(self, name: str, capability: Capability, device: DeviceLike) -> int:
        function = self._require(name, capability)
        index = self.device_index(device)
        if not self._is_initialized():
            return 0
        self._enter_runtime()
        return int(function(index))


def _imported(path: str) -> Any:
    """The object at a dotted path whose first part is an imported module; None where there is none."""
    root, *rest = path.split(".")
    found: Any = sys.modules.get(root)
    for name in rest:
        found = getattr(found, name, None)
    return found
