"""The memory of one storage.

For: what tensors hold of a device's memory, and give back when they are gone. Not for: where it lies (`allocator.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from fakes.allocator import Allocator


class Block:
    """The memory of one storage; freed when the last tensor that uses it is gone.

    `memory` are the host bytes that its tensors use, where they use any (`fakes.storage.block_data`).

    `size` is in bytes, as accounted for: 0, or a multiple of 512 not below the `requested` ones. `address` is unique in the device
    among live blocks, 0 for an empty one. `stream` is the stream on which it was allocated; `recorded_streams` are the others that
    use it.
    """

    __slots__ = ("__weakref__", "address", "allocator", "memory", "pool", "recorded_streams", "requested", "size", "stream")

    def __init__(self, allocator: Allocator, size: int, stream: Any) -> None:
        self.address = self.size = 0
        self.allocator = allocator
        self.stream = stream
        self.pool: Any = None
        self.memory: torch.Tensor | None = None
        self.requested = size
        self.recorded_streams: tuple[Any, ...] = ()
        if size:
            allocator.allocate(self)

    def bytes(self) -> torch.Tensor:
        """The host bytes behind the block, uint8 of `size` elements on the CPU: the same memory for the same address."""
        return self.allocator.bytes_of(self)

    def record_stream(self, stream: Any) -> None:
        """Note that another stream uses the block, which is not reused before the work issued there until it is freed is done."""
        if stream is not self.stream and stream not in self.recorded_streams:
            self.recorded_streams += (stream,)

    def resize(self, size: int) -> None:
        """Have `size` bytes from now on, elsewhere on the device. The old contents are gone.

        Raises:
            torch.OutOfMemoryError: it does not fit; the block is then as it was.
        """
        other = Block(self.allocator, size, self.stream)
        for name in ("address", "memory", "pool", "recorded_streams", "requested", "size"):
            mine, its = getattr(self, name), getattr(other, name)
            setattr(self, name, its)
            setattr(other, name, mine)

    def __deepcopy__(self, memo: Any) -> Block:
        # A copy would give the same memory back twice.
        return self

    def __del__(self) -> None:
        # PyTorch's compiler makes instances without initialising them.
        if getattr(self, "size", 0):
            self.allocator.free(self)
