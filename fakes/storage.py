"""Storages of simulated devices.

For: what `Tensor.untyped_storage()` gives for a device tensor, so that saving, loading, copying and sharing work by PyTorch's own
code. Not for: accounting (`allocator.py`).

A `DeviceStorage` is the host storage that carries a tensor's bytes, whose Python object says that it is on the device.
"""

from __future__ import annotations

from typing import Any

import torch

from fakes.allocator import Block
from fakes.device import Device
from fakes.machine import current_machine

_get_item: Any = torch.UntypedStorage.__getitem__
_write_file: Any = torch.UntypedStorage._write_file
_Storage: Any = torch.UntypedStorage
_to_dlpack: Any = torch._C._to_dlpack
_from_dlpack: Any = torch._C._from_dlpack


class DeviceStorage(torch.UntypedStorage):
    """A storage on a simulated device; made by `on_device` and `storage_of`."""

    _device: torch.device
    _block: Block

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device of the tensors that use it."""
        return self._device

    def cpu(self) -> torch.UntypedStorage:
        """A copy on the host; waits for the device."""
        current_machine().scheduler.synchronize_device(self._device.index)
        return _clone(self)

    def clone(self) -> DeviceStorage:
        """A copy on the same device."""
        return on_device(self.cpu(), self._device.index)

    def __deepcopy__(self, memo: dict[Any, Any]) -> DeviceStorage:
        copies: dict[int, DeviceStorage] = memo.setdefault("torch", {})
        key = self._cdata
        if key not in copies:
            copies[key] = self.clone()
        return copies[key]

    def to(self, *, device: Any, non_blocking: bool = False) -> torch.UntypedStorage:
        """A copy on another device, or itself where it is there already."""
        del non_blocking
        target = torch.device(device)
        if target.type == self._device.type:
            index = current_machine().device_index(target)
            return self if index == self._device.index else on_device(self.cpu(), index)
        moved: torch.UntypedStorage = self.cpu().to(device=target)
        return moved

    def _bytes(self) -> torch.Tensor:
        """The bytes as a tensor of the device, through which reads wait and writes are queued."""
        tensor: Any = torch.empty(0, dtype=torch.uint8, device=self._device)
        return tensor.set_(self)  # type: ignore[no-any-return]

    def __getitem__(self, index: Any) -> Any:
        """A byte, waited for; or the storage of a slice."""
        if not isinstance(index, slice):
            return self._bytes()[index].item()
        part = _get_item(self, index)
        part.__class__ = DeviceStorage
        part._device, part._block = self._device, self._block
        return part

    def __setitem__(self, index: Any, value: int) -> None:
        """Write a byte or those of a slice, in the order of the current stream."""
        self._bytes()[index] = value

    def __iter__(self) -> Any:
        return iter(self.cpu())

    def tolist(self) -> list[int]:
        """The bytes, waited for."""
        return list(self.cpu())

    def fill_(self, value: int) -> DeviceStorage:
        """Write every byte, in the order of the current stream."""
        self._bytes().fill_(value)
        return self

    def copy_(self, source: Any, non_blocking: bool | None = None) -> DeviceStorage:  # type: ignore[override]
        """Copy all bytes of another storage, in the order of the current stream."""
        contents = source._bytes() if isinstance(source, DeviceStorage) else _bytes_on_host(source)
        self._bytes().copy_(contents, bool(non_blocking))
        return self

    def new(self) -> DeviceStorage:
        """An empty storage on the same device."""
        return on_device(_Storage(0), self._device.index)

    def _write_file(self, *args: Any) -> Any:
        # PyTorch's pickling and its older file format write the bytes by this; a host read.
        return _write_file(self.cpu(), *args)

    def resize_(self, size: int) -> DeviceStorage:
        """Change the size, in bytes.

        Raises:
            torch.OutOfMemoryError: the device has no room; the storage is then as it was.
        """
        scheduler = current_machine().scheduler
        scheduler.synchronize_device(self._device.index)
        if scheduler.defers:
            # The bytes are those of the block, whose size the tensors on it rely on.
            if size > self.nbytes():
                raise RuntimeError(f"a storage of {self.nbytes()} bytes cannot grow to {size} while work is deferred")
            return self
        self._block.resize(size)
        super().resize_(size)
        return self

    def is_pinned(self, device: Any = "cuda") -> bool:
        """Device memory is never pinned."""
        del device
        return False


def storage_of(data: torch.Tensor, block: Block, device: torch.device) -> DeviceStorage:
    """The storage of a host tensor that carries a device tensor's bytes, as a storage on that device."""
    storage: Any = data.untyped_storage()
    if type(storage) is not DeviceStorage:
        # PyTorch keeps a storage's Python object for as long as the storage lives, its class included.
        storage.__class__ = DeviceStorage
        storage._device = device
        storage._block = block
    result: DeviceStorage = storage
    return result


def block_data(block: Block, size: Any, stride: Any, dtype: torch.dtype, nbytes: int) -> torch.Tensor:
    """A host tensor over the first `nbytes` of a block, with a storage of its own: a storage's Python object names the block, which
    must not hold it in turn."""
    if not nbytes:
        empty: torch.Tensor = torch.ops.aten.empty_strided.default(size, stride, dtype=dtype, device="cpu")
        return empty
    memory = block.memory
    if memory is None or memory.numel() < nbytes:
        memory = block.memory = block.allocator.bytes_of(block, nbytes)
    flat = _from_dlpack(_to_dlpack(memory if memory.numel() == nbytes else memory[:nbytes]))
    if flat.dtype is not dtype:
        flat = flat.view(dtype)
    if size == flat.shape:
        return flat  # type: ignore[no-any-return]
    data: torch.Tensor = torch.ops.aten.as_strided.default(flat, size, stride)
    return data


def on_device(host: torch.UntypedStorage, index: int) -> DeviceStorage:
    """Turn a host storage that nobody else uses into one on a device.

    Raises:
        torch.OutOfMemoryError: the device has no room.
        RuntimeError: no such device.
    """
    machine = current_machine()
    device: Device = machine.open(index)
    storage: Any = host
    block = Block(device.allocator, host.nbytes(), machine.current_stream(index))
    if machine.scheduler.defers and host.nbytes():
        # The caller's host memory stays as it is; what the block held before must have ended.
        machine.scheduler.synchronize_device(index)
        memory: Any = block_data(block, (host.nbytes(),), (1,), torch.uint8, host.nbytes())
        source = torch.empty(0, dtype=torch.uint8, device="cpu")
        memory.copy_(torch.ops.aten.set_.source_Storage(source, host))
        storage = memory.untyped_storage()
    storage.__class__ = DeviceStorage
    storage._device = device.torch_device
    storage._block = block
    result: DeviceStorage = storage
    return result


def _clone(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    return torch.ops.aten.clone.default(_bytes_on_host(storage)).untyped_storage()  # type: ignore[no-any-return]


def _bytes_on_host(storage: torch.UntypedStorage) -> torch.Tensor:
    flat = torch.empty(0, dtype=torch.uint8, device="cpu")
    return torch.ops.aten.set_.source_Storage(flat, storage)  # type: ignore[no-any-return]


# PyTorch writes a storage's class into checkpoints by its name; on hardware there is one class for every device.
DeviceStorage.__name__ = DeviceStorage.__qualname__ = torch.UntypedStorage.__name__
DeviceStorage.__module__ = torch.UntypedStorage.__module__
