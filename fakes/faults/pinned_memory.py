"""Faults in pinned host memory: what it holds, copies through it, and its reuse (MEM-13, STR-9).

For: the catalogue. Not for: device memory (`memory_reuse.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fakes.faults.fault import Fault
from fakes.faults.replacing import Apply
from fakes.patching import Patches


def _patched(name: str, wrong: Callable[..., Any]) -> Apply:
    """Replace a function of `fakes.pinned_memory`, in the modules that use it too; `wrong(right, *arguments)` may call `right`."""

    def apply(patches: Patches) -> None:
        from fakes import copies, pinned_memory

        original = getattr(pinned_memory, name)
        for owner in (pinned_memory, copies):
            if getattr(owner, name, None) is original:
                patches.set(owner, name, lambda *arguments: wrong(original, *arguments))

    return apply


def _not_for_strided(right: Callable[..., bool], tensor: torch.Tensor) -> bool:
    return right(tensor) and tensor.is_contiguous()


def _not_for_views(right: Callable[..., bool], tensor: torch.Tensor) -> bool:
    return right(tensor) and tensor._base is None


def _zeros(right: Callable[..., torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    return right(torch.zeros_like(tensor))


def _without_the_last(right: Callable[..., torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    pinned = right(tensor)
    if pinned.dim():
        pinned[-1:].zero_()
    return pinned


def _in_storage_order(right: Callable[..., torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_contiguous() or not tensor.numel():
        return right(tensor)
    flat = tensor.as_strided((tensor.numel(),), (1,))
    return right(flat.view(tensor.shape))


def _in_place(right: Callable[..., torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    from fakes import pinned_memory

    if not tensor.numel():
        return right(tensor)
    setattr(tensor.untyped_storage(), pinned_memory._BLOCK, pinned_memory._NO_BYTES)
    return torch.ops.aten.alias.default(tensor)  # type: ignore[no-any-return]


def _as_if_contiguous(right: Callable[..., torch.Tensor], tensor: torch.Tensor, stream: Any) -> torch.Tensor:
    alias = right(tensor, stream)
    strides = torch.empty(alias.shape, device="meta").stride()
    return torch.ops.aten.as_strided.default(alias, alias.shape, strides, alias.storage_offset())  # type: ignore[no-any-return]


def _from_the_start(right: Callable[..., torch.Tensor], tensor: torch.Tensor, stream: Any) -> torch.Tensor:
    alias = right(tensor, stream)
    return torch.ops.aten.as_strided.default(alias, alias.shape, alias.stride(), 0)  # type: ignore[no-any-return]


def _apply_unnoted(patches: Patches) -> None:
    from fakes.host_allocator import HostBlock

    patches.set(HostBlock, "note_use", lambda _block, _stream: None)


def _apply_first_stream_only(patches: Patches) -> None:
    from fakes.host_allocator import HostBlock

    original = HostBlock.note_use
    patches.set(HostBlock, "note_use", lambda block, stream: None if block.streams else original(block, stream))


def _apply_any_stream_does(patches: Patches) -> None:
    from fakes.host_allocator import HostAllocator

    original = HostAllocator._take_back

    def take_back(allocator: Any) -> None:
        scheduler = allocator._scheduler
        for block, tickets in list(allocator._returned):
            if any(scheduler.is_complete(ticket) for ticket in tickets):
                tickets.clear()
            del block
        original(allocator)

    patches.set(HostAllocator, "_take_back", take_back)


def _fault(name: str, clauses: tuple[str, ...], summary: str, apply: Apply) -> Fault:
    return Fault(f"pinned-{name}", clauses, summary, "derived", apply)


_DATA = ("MEM-13",)
_REUSE = ("STR-9",)

FAULTS: tuple[Fault, ...] = (
    _fault("strided-not-told", _DATA, "`is_pinned` is false of strided tensors.", _patched("is_pinned", _not_for_strided)),
    _fault("views-not-told", _DATA, "`is_pinned` is false of views of pinned memory.", _patched("is_pinned", _not_for_views)),
    _fault("zeros", _DATA, "`pin_memory` gives zeros.", _patched("pinned_copy", _zeros)),
    _fault("last-row-lost", _DATA, "`pin_memory` loses the last row.", _patched("pinned_copy", _without_the_last)),
    _fault(
        "storage-order",
        _DATA,
        "`pin_memory` of a strided tensor keeps the order of its storage.",
        _patched("pinned_copy", _in_storage_order),
    ),
    _fault("in-place", _DATA, "`pin_memory` gives the tensor's own memory.", _patched("pinned_copy", _in_place)),
    _fault(
        "strides-ignored",
        _DATA,
        "A non-blocking copy takes pinned memory for contiguous.",
        _patched("used_by_copy", _as_if_contiguous),
    ),
    _fault(
        "offset-ignored",
        _DATA,
        "A non-blocking copy starts at the beginning of pinned memory.",
        _patched("used_by_copy", _from_the_start),
    ),
    _fault("reused-early", _REUSE, "Freed pinned memory is used again while copies that use it are pending.", _apply_unnoted),
    _fault(
        "waits-for-first-stream",
        _REUSE,
        "Freed pinned memory waits for the first stream that copied it only.",
        _apply_first_stream_only,
    ),
    _fault(
        "waits-for-any-stream",
        _REUSE,
        "Freed pinned memory is used again when one of the streams that copy it is done.",
        _apply_any_stream_does,
    ),
)
