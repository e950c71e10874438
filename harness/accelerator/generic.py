"""Any device type that PyTorch itself knows, without code for it.

For: testing a backend that nobody here has heard of (`--backend=<its device type>`): each function comes from the device's
namespace where it is there, else from `torch.accelerator`, `torch.Stream` and `torch.Event`, which is all that many third-party
devices offer. The CPU is served too, with what it has. Not for: vendors that have an adapter of their own."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch

from harness.accelerator.capabilities import Capability, CapabilityEvidence
from harness.accelerator.device_forms import DeviceLike
from harness.accelerator.stream_context import CurrentStream
from harness.accelerator.torch_namespace import TorchNamespaceAccelerator
from harness.accelerator.visible_devices import GRAMMARS, NO_VARIABLE, PhysicalDevice
from harness.errors import AcceleratorUnavailableError, UnsupportedCapabilityError

_TYPE = re.compile(r"[a-z_][a-z0-9_]*", re.ASCII)

_FROM_TORCH_ACCELERATOR: Mapping[str, str] = {
    "device_count": "device_count",
    "current_device": "current_device_index",
    "set_device": "set_device_index",
    "synchronize": "synchronize",
}
_STREAM_NAMES = frozenset({"Stream", "current_stream", "stream"})
_MEMORY_FROM_TORCH_ACCELERATOR: Mapping[str, str] = {
    "empty_cache": "empty_cache",
    "mem_get_info": "get_memory_info",
    "memory_allocated": "memory_allocated",
    "memory_reserved": "memory_reserved",
    "max_memory_allocated": "max_memory_allocated",
    "max_memory_reserved": "max_memory_reserved",
    "reset_peak_memory_stats": "reset_peak_memory_stats",
}
_STUBS: Mapping[str, frozenset[str]] = {
    # PyTorch documents these as existing for device-agnostic code only: they do nothing.
    "cpu": frozenset({"Stream", "Event", "current_stream", "stream"}),
    # It takes no device, so that a device cannot be handed to it.
    "mps": frozenset({"synchronize"}),
}
"""Names that a namespace of PyTorch's own has, and that do not do what the name says."""


def _cpu_random_functions() -> Mapping[str, Callable[..., Any]]:
    generator = torch.default_generator
    return {
        "get_rng_state": lambda _device: generator.get_state(),
        "set_rng_state": lambda state, _device: generator.set_state(state),
        "manual_seed": generator.manual_seed,
        "manual_seed_all": generator.manual_seed,
        "initial_seed": generator.initial_seed,
    }


_CPU_DECLARATIONS: Mapping[Capability, CapabilityEvidence] = {
    Capability.STREAMS: CapabilityEvidence(False, "torch.cpu.Stream is documented as a stub: it does nothing"),
    Capability.EVENTS: CapabilityEvidence(False, "torch.cpu.Event is documented as a stub: it does nothing"),
    Capability.EVENT_TIMING: CapabilityEvidence(False, "torch.cpu.Event is documented as a stub: it measures nothing"),
    Capability.DEVICE_GENERATOR: CapabilityEvidence(False, "the CPU's generator is the host's: there is no second one beside it"),
    Capability.PINNED_MEMORY: CapabilityEvidence(False, "host memory is the CPU's own, so nothing is pinned for it"),
    Capability.BF16: CapabilityEvidence(True, "PyTorch computes in bfloat16 on every CPU"),
    Capability.FP16: CapabilityEvidence(True, "PyTorch computes in float16 on every CPU"),
    Capability.DETERMINISTIC: CapabilityEvidence(True, "PyTorch's CPU kernels honour use_deterministic_algorithms"),
    Capability.FORK_AFTER_SELECTION: CapabilityEvidence(True, "a CPU has no runtime to initialise"),
}


class GenericAccelerator(TorchNamespaceAccelerator):
    """A backend for any device type of this PyTorch.

    Raises:
        AcceleratorUnavailableError: PyTorch knows no such device type.
    """

    def __init__(self, device_type: str) -> None:
        if not isinstance(device_type, str) or not _TYPE.fullmatch(device_type):
            raise AcceleratorUnavailableError(f"{device_type!r} is not a device type; give a bare one, such as 'cpu' or 'xpu'")
        try:
            torch.device(device_type)
        except RuntimeError as error:
            raise AcceleratorUnavailableError(
                f"PyTorch knows no device type {device_type!r}; import the package that brings it first"
            ) from error
        self.name = device_type
        self.device_type = device_type
        self.install_hint = "PyTorch knows the type, but no package has registered its module (torch._register_device_module)"
        self.visible_devices_grammar = GRAMMARS.get(device_type, NO_VARIABLE)
        if device_type == "cpu":
            self.declarations = _CPU_DECLARATIONS

    @property
    def communication_backend_name(self) -> str:  # type: ignore[override] # a transport may be registered after this object is made
        """The transport that PyTorch has for the device type.

        Raises:
            UnsupportedCapabilityError: none is registered.
        """
        transports: Mapping[str, str] = torch.distributed.Backend.default_device_backend_map
        if self.device_type not in transports:
            raise UnsupportedCapabilityError(
                f"torch.distributed has no transport for {self.device_type}; register one with "
                f"torch.distributed.Backend.register_backend(name, creator, devices=[{self.device_type!r}])"
            )
        return transports[self.device_type]

    @property
    def where_functions_are(self) -> str:
        if self.device_type == "cpu":
            return "torch.cpu (with torch.default_generator)"
        if self.is_current_accelerator():
            return f"torch.{self.device_type} (with torch.accelerator)"
        return f"torch.{self.device_type}"

    # Functions ----------------------------------------------------------------------------------------------------------------

    def _find(self, name: str) -> Any | None:
        namespace = self.accelerator_module()
        if name not in _STUBS.get(self.device_type, ()):
            own = getattr(namespace, name, None)
            if own is not None:
                return own
        if self.device_type == "cpu":
            return _cpu_random_functions().get(name)
        return self._find_common(name) if self.is_current_accelerator() else None

    def _find_common(self, name: str) -> Any | None:
        """The function of that name for PyTorch's current accelerator."""
        if name in _STREAM_NAMES:
            return self._common_stream_function(name) if self._common_streams_work else None
        if name == "Event":
            return functools.partial(torch.Event, self.device_type) if self._common_events_work else None
        if name in _MEMORY_FROM_TORCH_ACCELERATOR and not _has_common_allocator():
            return None
        known = _FROM_TORCH_ACCELERATOR.get(name) or _MEMORY_FROM_TORCH_ACCELERATOR.get(name)
        return None if known is None else getattr(torch.accelerator, known, None)

    def _common_stream_function(self, name: str) -> Any | None:
        if name == "Stream":
            return self._common_stream
        return CurrentStream if name == "stream" else getattr(torch.accelerator, name, None)

    # PyTorch has these functions for every device type, and only the device can say whether they do anything.

    @functools.cached_property
    def _common_streams_work(self) -> bool:
        return self._works(self._common_stream)

    @functools.cached_property
    def _common_events_work(self) -> bool:
        return self._works(lambda: torch.Event(self.device_type).record())

    def _works(self, attempt: Callable[[], Any]) -> bool:
        self._enter_runtime()
        try:
            attempt()
        except (RuntimeError, TypeError):  # NotImplementedError is a RuntimeError
            return False
        return True

    def _common_stream(self, device: DeviceLike = None, priority: int = 0) -> torch.Stream:
        return torch.Stream(device=self.device(device), priority=priority)

    # Devices ------------------------------------------------------------------------------------------------------------------

    def physical_devices(self) -> tuple[PhysicalDevice, ...] | None:
        return (PhysicalDevice(0),) if self.device_type == "cpu" else None

    def current_device(self) -> int:
        if not self._is_initialized() and not self._runtime_used:
            return self._first_device()
        self._enter_runtime()
        current = self._find("current_device")
        if current is None:
            return self._first_device()
        answer = current()
        # torch.cpu answers with its name, since there is one CPU device.
        return (torch.device(answer).index or 0) if isinstance(answer, str) else int(answer)

    def _set_device(self, index: int) -> None:
        set_device = self._find("set_device")
        if set_device is not None:
            set_device(index)
        elif self.device_count() != 1:
            raise UnsupportedCapabilityError(
                f"{self.where_functions_are} has no set_device, so device {index} cannot be made current"
            )

    def _synchronize(self, index: int) -> None:
        synchronize = self._find("synchronize")
        if synchronize is None:
            raise UnsupportedCapabilityError(f"{self.where_functions_are} has no synchronize; results cannot be waited for")
        synchronize(index)


def _has_common_allocator() -> bool:
    """Whether `torch.accelerator`'s memory functions work for the device; asks without initialising anything."""
    check = getattr(torch._C, "_accelerator_isAllocatorInitialized", None)
    if check is None:
        return True
    try:
        check()
    except RuntimeError:  # the device's allocator keeps no statistics
        return False
    return True
