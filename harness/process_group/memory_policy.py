"""What happens before a collective when device memory is low.

For: transports that allocate outside the caching allocator at their first collectives, and fail where its cache has taken everything.
Not for: freeing the communicators themselves (`destroy_process_groups`). Without a policy nothing is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from harness.accelerator.contract import Accelerator


class MemoryPolicy(Protocol):
    """Called before each collective of a group that has an accelerator's transport, never before a query (PGL-10)."""

    def before_collective(self, accelerator: Accelerator, operation: str) -> None:
        """Make room, or raise. `operation` is the method of the process group that is about to run."""


@dataclass(frozen=True)
class FreeMemoryThreshold:
    """Calls `make_room(accelerator)` while less than `minimum_free_bytes` of the current device are free.

    `make_room` is `Accelerator.empty_cache` unless another is given. It is called once a collective; whether it helped is not checked.

    Raises:
        ValueError: a threshold below one byte.
    """

    minimum_free_bytes: int
    make_room: Callable[[Accelerator], Any] = lambda accelerator: accelerator.empty_cache()

    def __post_init__(self) -> None:
        if self.minimum_free_bytes < 1:
            raise ValueError(f"minimum_free_bytes={self.minimum_free_bytes}: give a positive number of bytes, or no policy at all")

    def before_collective(self, accelerator: Accelerator, operation: str) -> None:  # noqa: ARG002 - the protocol's name
        """See the class."""
        free, _ = accelerator.mem_get_info()
        if free < self.minimum_free_bytes:
            self.make_room(accelerator)


def describe_device_memory(accelerator: Accelerator | None) -> str:
    """The current device's memory in one line, for a note on an error; never raises."""
    if accelerator is None:
        return "device memory: no accelerator"
    try:
        free, total = accelerator.mem_get_info()
        reserved, allocated = accelerator.memory_reserved(), accelerator.memory_allocated()
        name = accelerator.device_name()
    except Exception as error:  # noqa: BLE001 - a note must not hide the error that it is for
        return f"device memory: unknown ({type(error).__name__}: {error})"
    return (
        f"device memory of {name}: {free >> 20} MiB free of {total >> 20} MiB; the allocator holds {reserved >> 20} MiB, of which "
        f"tensors use {allocated >> 20} MiB"
    )
