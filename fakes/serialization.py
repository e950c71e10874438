"""Saving, loading and copying tensors of a simulated device (SER-1).

For: the methods of PyTorch's storages that move one to the device, which `torch.load` and `map_location` use. Not for: the storages
themselves (`storage.py`).
"""

from __future__ import annotations

from typing import Any

import torch

from fakes.machine import Machine
from fakes.patching import Patches
from fakes.storage import DeviceStorage, on_device
from fakes.tensor import DeviceTensor


def apply(patches: Patches, machine: Machine) -> None:
    """Let host storages move to the device, and let every storage say whether it is there."""
    kind = machine.persona.device_type
    original_to: Any = torch.UntypedStorage.to

    def to(self: torch.UntypedStorage, *, device: Any, non_blocking: bool = False) -> torch.UntypedStorage:
        target = torch.device(device)
        if target.type != kind:
            result: torch.UntypedStorage = original_to(self, device=target, non_blocking=non_blocking)
            return result
        copied: Any = self.clone
        return on_device(copied(), machine.device_index(target))

    def to_device(self: torch.UntypedStorage, device: Any = None, non_blocking: bool = False) -> torch.UntypedStorage:
        """A copy of this storage on a simulated device (the current one where None)."""
        moved: torch.UntypedStorage = self.to(device=torch.device(kind, machine.device_index(device)), non_blocking=non_blocking)
        return moved

    original_copy: Any = torch.UntypedStorage.copy_

    def copy_(self: torch.UntypedStorage, source: Any, non_blocking: bool | None = None) -> torch.UntypedStorage:
        if isinstance(source, DeviceStorage):
            source = source.cpu()
        result: torch.UntypedStorage = original_copy(self, source, non_blocking)
        return result

    original_is_storage = torch.is_storage

    def is_storage(obj: Any, /) -> bool:
        # PyTorch's own looks for the exact class.
        return isinstance(obj, DeviceStorage) or original_is_storage(obj)

    original_metadata: Any = torch._utils.set_tensor_metadata

    def set_tensor_metadata(tensor: torch.Tensor, metadata: dict[str, bool]) -> None:
        original_metadata(tensor, metadata)
        if isinstance(tensor, DeviceTensor):
            tensor._may_be_lazy = True

    patches.set(torch._utils, "set_tensor_metadata", set_tensor_metadata)
    patches.set(torch, "is_storage", is_storage)
    patches.set(torch.UntypedStorage, "to", to)
    patches.set(torch.UntypedStorage, "copy_", copy_)
    patches.set(torch.UntypedStorage, kind, to_device)
    patches.set(torch.UntypedStorage, f"is_{kind}", property(lambda self: isinstance(self, DeviceStorage)))
