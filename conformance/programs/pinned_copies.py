"""Copies between host and device memory of any geometry.

For: MEM-13. A copy moves a part of one tensor into a part of another; all else must stay. Not for: order between streams.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

from conformance.accelerator_access import method
from conformance.checking import require
from conformance.programs.printing import PrintsAsCode

DTYPES = (torch.float32, torch.int64, torch.uint8, torch.float16, torch.bool, torch.complex64)


@dataclass(frozen=True)
class Geometry:
    """A way to look at a tensor: the order of its dimensions, and for each where a slice starts and how far it steps."""

    order: tuple[int, ...]
    starts: tuple[int, ...]
    steps: tuple[int, ...]

    def base_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a tensor on which `part` has `shape`."""
        base = [0] * len(shape)
        for position, dimension in enumerate(self.order):
            size, start, step = shape[position], self.starts[position], self.steps[position]
            base[dimension] = start + (size - 1) * step + 1 if size else start
        return tuple(base)

    def part(self, base: torch.Tensor) -> torch.Tensor:
        """The view of a tensor of `base_shape`."""
        view = base.permute(self.order)
        for position, (start, step) in enumerate(zip(self.starts, self.steps, strict=True)):
            view = view[(slice(None),) * position + (slice(start, None, step),)]
        return view

    def __str__(self) -> str:
        slices = ", ".join(f"{start}::{step}" for start, step in zip(self.starts, self.steps, strict=True))
        return f".permute({', '.join(map(str, self.order))})[{slices}]" if self.order else ""


@dataclass(frozen=True, repr=False)
class PinnedCopy(PrintsAsCode):
    """A copy of a part of one tensor into a part of another.

    `shape` is that of both parts. `to_device`: from pinned host memory to a device, else the other way round. `pins`: whether the host
    tensor is made by `pin_memory()`, else by `pin_memory=True`.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    host: Geometry
    device: Geometry
    to_device: bool
    non_blocking: bool
    pins: bool

    def __repr__(self) -> str:
        call = f"copy_({{}}, non_blocking={self.non_blocking})"
        host, device = f"host{self.host}", f"device{self.device}"
        target, source = (device, host) if self.to_device else (host, device)
        made = "pin_memory()" if self.pins else "empty(pin_memory=True)"
        return f"{target}.{call.format(source)}  # parts of {self.shape}, {self.dtype}; the host's by {made}"

    def run(self, accelerator: Any, device: int) -> None:
        """Copy on a backend and compare every element of both tensors with what is due.

        Raises:
            ClauseViolation: an element differs, or the host tensor is not pinned.
        """
        host_values = numbers(self.host.base_shape(self.shape), 1, self.dtype)
        device_values = numbers(self.device.base_shape(self.shape), 101, self.dtype)
        if self.pins:
            host = host_values.pin_memory()
        else:
            host = torch.empty(host_values.shape, dtype=self.dtype, pin_memory=True)
            host.copy_(host_values)
        on_device = device_values.to(method(accelerator, "device")(device))
        method(accelerator, "synchronize")(device)
        require(not host.numel() or host.is_pinned(), f"{self!r}: is_pinned() of the host tensor is false")
        host_part, device_part = self.host.part(host), self.device.part(on_device)
        if self.to_device:
            device_part.copy_(host_part, non_blocking=self.non_blocking)
            self.device.part(device_values).copy_(self.host.part(host_values))
        else:
            host_part.copy_(device_part, non_blocking=self.non_blocking)
            self.host.part(host_values).copy_(self.device.part(device_values))
        method(accelerator, "synchronize")(device)
        _require_equal(f"{self!r}: the host tensor", host, host_values)
        _require_equal(f"{self!r}: the device tensor", on_device.cpu(), device_values)


def numbers(shape: tuple[int, ...], first: int, dtype: torch.dtype) -> torch.Tensor:
    """A host tensor of small whole numbers, which are exact in every dtype; for booleans they alternate irregularly."""
    count = 1
    for size in shape:
        count *= size
    values = torch.arange(count) * 7 % 97 + first
    if dtype == torch.bool:
        values = values % 3 % 2
    return values.reshape(shape).to(dtype)


def _require_equal(what: str, found: torch.Tensor, due: torch.Tensor) -> None:
    require(torch.equal(found, due), f"{what} is {found.tolist()}; due was {due.tolist()}")


@st.composite
def pinned_copies(draw: st.DrawFn) -> PinnedCopy:
    """Copies of small tensors of any geometry."""
    shape = tuple(draw(st.lists(st.sampled_from((2, 3, 1, 5, 0)), max_size=3)))
    return PinnedCopy(
        shape,
        draw(st.sampled_from(DTYPES)),
        draw(geometries(len(shape))),
        draw(geometries(len(shape))),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.booleans()),
    )


def geometries(dimensions: int) -> st.SearchStrategy[Geometry]:
    """Ways to look at a tensor of so many dimensions."""
    starts = st.tuples(*[st.sampled_from((0, 1, 2))] * dimensions)
    steps = st.tuples(*[st.sampled_from((1, 2, 3))] * dimensions)
    return st.builds(Geometry, st.permutations(range(dimensions)).map(tuple), starts, steps)


_TRANSPOSED, _PLAIN = Geometry((1, 0), (1, 0), (2, 1)), Geometry((0, 1), (0, 0), (1, 1))
STRIDED_TO_DEVICE = PinnedCopy((2, 3), torch.float32, _TRANSPOSED, _PLAIN, to_device=True, non_blocking=True, pins=False)
STRIDED_TO_HOST = PinnedCopy((2, 3), torch.float32, _TRANSPOSED, _PLAIN, to_device=False, non_blocking=True, pins=False)
"""Copies that every run tries first."""
