"""Devices through a `torch.<type>` namespace: finding its functions, and the current device.

For: the part of a delegating backend that all others stand on (`namespace_memory.py`, `namespace_random.py`,
`namespace_streams.py`), and what it remembers of its first use of the runtime (DEV-6). Not for: use on its own;
`torch_namespace.py` puts the parts together."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch

from harness.accelerator.capabilities import Capability
from harness.accelerator.contract import Accelerator
from harness.accelerator.device_forms import DeviceLike
from harness.accelerator.environment_at_first_use import EnvironmentAtFirstUse
from harness.accelerator.visible_devices import VisibleDevices
from harness.errors import AcceleratorUnavailableError, DeviceError, UnsupportedCapabilityError


class NamespaceAccess(Accelerator):
    """The current device and the device count, as the namespace `torch.<device_type>` answers them.

    Every device is checked before the namespace sees it. The first call that reaches the runtime freezes the visible-devices
    variables."""

    install_hint: str = ""
    """What to do where this PyTorch has no `torch.<device_type>`; the end of a sentence."""

    _hot_namespace: Any = None
    """The namespace once its runtime is in use, so that `current_device` costs little more than the namespace's own."""
    _runtime_used = False
    _frozen_count: int | None = None

    # The namespace ------------------------------------------------------------------------------------------------------------

    def accelerator_module(self) -> Any:
        namespace = getattr(torch, self.device_type, None)
        if namespace is None:
            raise AcceleratorUnavailableError(f"this PyTorch has no torch.{self.device_type}; {self.install_hint}")
        return namespace

    def _find(self, name: str) -> Any | None:
        """The namespace's function or class of that name, or None."""
        return getattr(self.accelerator_module(), name, None)

    def _require(self, name: str, capability: Capability) -> Any:
        """As `_find`, where the caller cannot do without.

        Raises:
            UnsupportedCapabilityError: the namespace has no such function.
        """
        function = self._find(name)
        if function is None:
            raise UnsupportedCapabilityError(
                f"{self.name} offers no {name}, so {capability.value} is not supported; ask supports({capability.value!r}) first"
            )
        return function

    def _is_initialized(self) -> bool:
        """Whether the runtime is initialised; where the namespace does not say, whether this adapter has used it."""
        check = getattr(self.accelerator_module(), "is_initialized", None)
        return self._runtime_used if check is None else bool(check())

    def _enter_runtime(self) -> None:
        """To be called before each call that reaches the vendor's runtime (DEV-6)."""
        if not self._runtime_used:
            self._environment.freeze()
            self._runtime_used = True

    # Devices ------------------------------------------------------------------------------------------------------------------

    def is_available(self) -> bool:
        try:
            namespace = self.accelerator_module()
        except AcceleratorUnavailableError:
            return False
        check = getattr(namespace, "is_available", None)
        return self.device_count() > 0 if check is None else bool(check())

    def unavailable_reason(self) -> str:
        """Why `is_available` is false, in words; as asked now."""
        try:
            self.accelerator_module()
        except AcceleratorUnavailableError as error:
            return str(error)
        return f"torch.{self.device_type} shows no usable {self.device_type} device; {self.visible_devices().diagnosis}"

    def device_count(self) -> int:
        if not self._is_initialized():
            self._frozen_count = None
            return self._count_devices()
        self._enter_runtime()
        self._environment.report_changes()
        if self._frozen_count is None:
            self._frozen_count = self._count_devices()
        return self._frozen_count

    def _count_devices(self) -> int:
        count = self._find("device_count")
        return 0 if count is None else int(count())

    def current_device(self) -> int:
        if self._hot_namespace is not None:
            return self._hot_namespace.current_device()  # type: ignore[no-any-return] # the namespace is a vendor's
        if not self._is_initialized() and not self._runtime_used:
            return self._first_device()
        self._enter_runtime()
        index = int(self._find_current_device()())
        if self._is_initialized():
            self._hot_namespace = self.accelerator_module()
        return index

    def _find_current_device(self) -> Any:
        return self.accelerator_module().current_device

    def _first_device(self) -> int:
        """The device that every runtime starts with, told without opening a context on it (DEV-12)."""
        if self.device_count() == 0:
            raise AcceleratorUnavailableError(
                f"no {self.device_type} device is visible, so none is current; {self.visible_devices().diagnosis}"
            )
        return 0

    def set_device(self, index: DeviceLike) -> None:
        if index is None:
            raise DeviceError(
                f"set_device needs a device, and None names the current one; use an index, {self.device_type}:0 or "
                f"torch.device({self.device_type!r}, 0)"
            )
        target = self.device_index(index)
        self._enter_runtime()
        self._set_device(target)

    def _set_device(self, index: int) -> None:
        self.accelerator_module().set_device(index)

    def _restore_device(self, index: int) -> None:
        # Setting a device that was current but never used would open a context on it.
        exchange = getattr(self.accelerator_module(), "_maybe_exchange_device", None)
        if exchange is None:
            self._set_device(index)
        else:
            exchange(index)

    def get_device_properties(self, device: DeviceLike = None) -> Any:
        function = self._require("get_device_properties", Capability.DEVICE_PROPERTIES)
        index = self.device_index(device)
        self._enter_runtime()
        return function(index)

    def synchronize(self, device: DeviceLike = None) -> None:
        index = self.device_index(device)
        # Nothing can run on a device whose runtime was never used, and asking would open a context.
        if self._is_initialized():
            self._enter_runtime()
            self._synchronize(index)

    def _synchronize(self, index: int) -> None:
        self.accelerator_module().synchronize(index)

    # Visible devices ----------------------------------------------------------------------------------------------------------

    @cached_property
    def _environment(self) -> EnvironmentAtFirstUse:
        return EnvironmentAtFirstUse(self.visible_devices_grammar.variables)

    def visible_devices(self, environment: Mapping[str, str] | None = None) -> VisibleDevices:
        if environment is None:
            environment = self._environment.in_force()
        return super().visible_devices(environment)
