"""The accelerator contract: what a framework may ask of any device backend.

For: the abstract `Accelerator`, its vocabulary of device forms, and the parts whose meaning does not depend on a vendor. Not for:
delegation to a vendor's namespace (`torch_namespace.py`), reading visible-devices variables (`visible_devices.py`) or choosing a
backend (`selection.py`). Clause ids refer to `docs/contract.md`.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch

from harness.accelerator.capabilities import Capability, CapabilityEvidence
from harness.accelerator.device_context import DeviceContext
from harness.accelerator.device_forms import DeviceLike, device_index
from harness.accelerator.visible_devices import (
    LocalDeviceId,
    PhysicalDevice,
    VisibleDevices,
    VisibleDevicesGrammar,
    read_visible_devices,
)

OomObserver = Callable[[int, int, int, int], None]
"""Called at an out-of-memory error with (device index, bytes asked, bytes of the limit, bytes free)."""


class Accelerator(abc.ABC):
    """One device backend, as a framework sees it.

    A device may be given in any form of `DeviceLike`: None (the current device), an int, a numeric string, `"type"` (the current
    device), `"type:index"` or a `torch.device`. Another device type, a negative index or an index past `device_count()` raises
    `DeviceError` before PyTorch sees it (DEV-1, DEV-2). Constructing an accelerator, and every method that does not say otherwise,
    opens no context on a device that was not asked for (DEV-12).
    """

    name: str
    """The name that the backend is registered and requested under, lower case."""
    device_type: str
    """The type in `torch.device(type, index)`."""
    communication_backend_name: str
    """The transport of `torch.distributed` for this device: `nccl`, `mccl`, `hccl`, `xccl`, …"""
    visible_devices_grammar: VisibleDevicesGrammar
    """How the vendor's driver reads its visible-devices variables."""

    # Identity -----------------------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def is_available(self) -> bool:
        """Whether at least one device can be used now. Opens no context and caches no count (SEL-14)."""

    @abc.abstractmethod
    def accelerator_module(self) -> Any:
        """The vendor's namespace (`torch.cuda`, `torch.musa`, …).

        Raises:
            AcceleratorUnavailableError: this PyTorch has no such namespace; the message says how to get it.
        """

    @abc.abstractmethod
    def device_count(self) -> int:
        """The number of visible devices, at least 0; frozen at the latest when the runtime is initialised (DEV-6)."""

    @abc.abstractmethod
    def current_device(self) -> int:
        """The local index of the calling thread's current device."""

    @abc.abstractmethod
    def set_device(self, index: DeviceLike) -> None:
        """Make a device current for the calling thread.

        Raises:
            DeviceError: None, another type, or out of range; the current device is then as it was (DEV-3, DEV-4).
        """

    def device_index(self, index: DeviceLike = None) -> int:
        """The local index that any form of device names (DEV-1, DEV-2).

        Raises:
            DeviceError: the value names no visible device of this backend.
        """
        return device_index(index, device_type=self.device_type, current=self.current_device, count=self.device_count)

    def device_name(self, index: DeviceLike = None) -> str:
        """`"type:index"` of a device; applying it to its own result changes nothing (DEV-1)."""
        return f"{self.device_type}:{self.device_index(index)}"

    def device(self, index: DeviceLike = None) -> torch.device:
        """The `torch.device` of a device, always with an index (DEV-1)."""
        return torch.device(self.device_type, self.device_index(index))

    def device_context(self, index: DeviceLike) -> AbstractContextManager[None]:
        """A context in which a device is current; on every exit the previous one is current again (DEV-8). It may be entered once.

        Raises:
            DeviceError: on entering, as `set_device`.
        """
        return DeviceContext(self, index)

    def _restore_device(self, index: int) -> None:
        """Make a device current again that was current before; backends that can do so without opening a context override it."""
        self.set_device(index)

    @abc.abstractmethod
    def get_device_properties(self, device: DeviceLike = None) -> Any:
        """The device's properties, with at least `name` (str) and `total_memory` (bytes, positive) (DEV-10).

        Raises:
            UnsupportedCapabilityError: `device_properties` is denied.
        """

    @abc.abstractmethod
    def synchronize(self, device: DeviceLike = None) -> None:
        """Return when every stream of the device is idle (STR-7)."""

    # Visible devices ----------------------------------------------------------------------------------------------------------

    @property
    def visible_devices_env(self) -> str:
        """The name of the variable that users set first, such as `CUDA_VISIBLE_DEVICES`."""
        return self.visible_devices_grammar.primary_variable

    def physical_devices(self) -> tuple[PhysicalDevice, ...] | None:
        """Every device of the host in the driver's order, as a management library tells it; None where none can be asked.

        Initialises no device runtime.
        """
        return None

    def visible_devices(self, environment: Mapping[str, str] | None = None) -> VisibleDevices:
        """What the driver makes of the variables in `environment` (`os.environ` where None).

        Subclasses that have used their runtime answer with the variables as they were at its first use (DEV-6).
        """
        return read_visible_devices(self.visible_devices_grammar, environment=environment, physical_devices=self.physical_devices())

    def resolve_visible_device_id(self, physical_device_id: object) -> LocalDeviceId:
        """The local id of a physical device id or UUID (VIS-4 to VIS-9, VIS-14).

        A `LocalDeviceId` is checked for range and returned, never mapped a second time.

        Raises:
            VisibleDevicesError: the id cannot be resolved; the message names the variable, its value and what would be accepted.
        """
        return self.visible_devices().resolve(physical_device_id)

    # Streams and events -------------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def current_stream(self, device: DeviceLike = None) -> Any:
        """The stream that is current on a device, whichever device is current; None where `streams` is denied (STR-6, STR-13)."""

    @abc.abstractmethod
    def default_stream(self, device: DeviceLike = None) -> Any:
        """The device's default stream.

        Raises:
            UnsupportedCapabilityError: the backend exposes none.
        """

    @abc.abstractmethod
    def stream(self, stream: Any) -> AbstractContextManager[Any]:
        """A context in which a stream and its device are current (STR-5).

        Raises:
            UnsupportedCapabilityError: `streams` is denied (STR-13).
        """

    @property
    @abc.abstractmethod
    def Stream(self) -> Any:  # noqa: N802 - the name that PyTorch's namespaces use
        """The stream class or constructor, or None where `streams` is denied."""

    @property
    @abc.abstractmethod
    def Event(self) -> Any:  # noqa: N802 - the name that PyTorch's namespaces use
        """The event class or constructor, or None where `events` is denied."""

    def new_stream(self, *args: Any, **kwargs: Any) -> Any:
        """A new stream; arguments as for `Stream`.

        Raises:
            UnsupportedCapabilityError: `streams` is denied.
        """
        return self._construct(Capability.STREAMS, self.Stream, args, kwargs)

    def new_event(self, *args: Any, **kwargs: Any) -> Any:
        """A new event; arguments as for `Event`.

        Raises:
            UnsupportedCapabilityError: `events` is denied.
        """
        return self._construct(Capability.EVENTS, self.Event, args, kwargs)

    # Memory -------------------------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def empty_cache(self) -> None:
        """Give unused cached memory back. Opens no context (MEM-3, DEV-12)."""

    @abc.abstractmethod
    def ipc_collect(self) -> None:
        """Release memory of closed inter-process handles; nothing where the backend has none (MEM-8)."""

    @abc.abstractmethod
    def mem_get_info(self, device: DeviceLike = None) -> tuple[int, int]:
        """(free, total) bytes of a device. May open that device's context and no other (MEM-11).

        Raises:
            UnsupportedCapabilityError: `device_memory` is denied; so for all memory counters.
        """

    @abc.abstractmethod
    def memory_allocated(self, device: DeviceLike = None) -> int:
        """Bytes that live tensors hold on a device; 0 before its first use (MEM-2, MEM-11)."""

    @abc.abstractmethod
    def memory_reserved(self, device: DeviceLike = None) -> int:
        """Bytes that the allocator holds on a device; 0 before its first use (MEM-1, MEM-11)."""

    @abc.abstractmethod
    def max_memory_allocated(self, device: DeviceLike = None) -> int:
        """The largest `memory_allocated` since the last reset (MEM-6)."""

    @abc.abstractmethod
    def max_memory_reserved(self, device: DeviceLike = None) -> int:
        """The largest `memory_reserved` since the last reset (MEM-6)."""

    @abc.abstractmethod
    def reset_peak_memory_stats(self, device: DeviceLike = None) -> None:
        """Set the peaks to the current values; nothing before first use (MEM-6, MEM-11)."""

    @abc.abstractmethod
    def memory_module(self) -> Any:
        """The backend's memory namespace (`torch.cuda.memory`, …), or None."""

    @abc.abstractmethod
    def attach_oom_observer(self, callback: OomObserver) -> bool:
        """Have `callback` called once at each out-of-memory error; False where unsupported (MEM-5)."""

    @abc.abstractmethod
    def set_allocator_expandable_segments(self) -> bool:
        """Apply `SLIME_ENABLE_EXPANDABLE_SEGMENTS` (`0` or `1`, unset is `0`); whether the setting is in force (MEM-9).

        Raises:
            ValueError: any other value; the message quotes it.
        """

    # Random numbers and autocast ----------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def manual_seed(self, seed: int) -> None:
        """Seed the current device's generator; −2⁶³ ≤ seed < 2⁶⁴ (RNG-5)."""

    @abc.abstractmethod
    def manual_seed_all(self, seed: int) -> None:
        """Seed every visible device, also ones not yet used (RNG-4)."""

    @abc.abstractmethod
    def initial_seed(self) -> int:
        """The current device's seed, last set or restored, modulo 2⁶⁴ (RNG-5)."""

    @abc.abstractmethod
    def get_rng_state(self, device: DeviceLike = None) -> torch.Tensor:
        """A device's random state: a one-dimensional CPU uint8 tensor that later draws do not change (RNG-2)."""

    @abc.abstractmethod
    def set_rng_state(self, state: torch.Tensor, device: DeviceLike = None) -> None:
        """Restore a state of `get_rng_state`.

        Raises:
            ValueError, TypeError or RuntimeError: wrong type, dtype or size; the generator is then as it was (RNG-7).
        """

    @abc.abstractmethod
    def autocast(self, *args: Any, **kwargs: Any) -> AbstractContextManager[Any]:
        """`torch.autocast` for this device type; arguments as for `torch.autocast` after its first.

        Raises:
            UnsupportedCapabilityError: no autocast, or not for the asked dtype (AMP-2).
        """

    # Capabilities -------------------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def probe(self, capability: Capability | str) -> CapabilityEvidence:
        """Whether the backend has a capability, and what was looked at to tell. Answers do not change in a process (CAP-4).

        Raises:
            UnknownCapabilityError: a name outside the closed set (CAP-1).
        """

    def supports(self, capability: Capability | str) -> bool:
        """Whether the backend has a capability; as `probe`, without the evidence."""
        return self.probe(capability).supported

    # Process groups -----------------------------------------------------------------------------------------------------------

    def communication_backend(self, default: str = "nccl") -> str:
        """The transport that stands for the logical backend `nccl`; any other name passes through (PGN-1, PGN-4)."""
        return self.communication_backend_name if _is_logical_backend(default) else default

    def weight_update_backend(self, default: str = "nccl") -> str:
        """The backend of a weight-update group for the logical backend `nccl`; any other name passes through (PGN-9)."""
        return self.communication_backend(default)

    def distributed_device_id(self, index: DeviceLike = None) -> torch.device | None:
        """The `device_id` for `init_process_group`, or None where the transport does not take one (PGN-9)."""
        return self.device(index)

    def post_import_torch(self) -> None:  # noqa: B027 - most backends need no hook
        """A hook that frameworks call once torch is imported; vendors apply their patches here."""

    @staticmethod
    def _construct(capability: Capability, constructor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if constructor is None:
            from harness.errors import UnsupportedCapabilityError

            raise UnsupportedCapabilityError(f"this backend does not support {capability.value}; ask supports() first")
        return constructor(*args, **kwargs)


def _is_logical_backend(backend: str) -> bool:
    return backend.strip().lower() == "nccl"
