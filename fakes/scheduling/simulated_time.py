"""How long work takes on a simulated device, in simulated nanoseconds.

For: clocks that depend on the program alone: not on the host, the schedule or the seed. Not for: predicting hardware; the figures are
round numbers of its order of magnitude. Streams do not slow each other down.
"""

from __future__ import annotations

LAUNCH = 1_000
"""What a launch costs the host."""
KERNEL = 2_000
"""The least that a kernel takes."""
DEVICE_BYTES = 1_000
"""Bytes a nanosecond within a device."""
LINK = 5_000
"""The least that a copy to or from another device or the host takes."""
LINK_BYTES = 25
"""Bytes a nanosecond of such a copy."""


def of_kernel(nbytes: int) -> int:
    """The duration of a kernel that reads and writes so many bytes."""
    return KERNEL + nbytes // DEVICE_BYTES


def of_copy(nbytes: int) -> int:
    """The duration of a copy of so many bytes between a device and the host, or two devices."""
    return LINK + nbytes // LINK_BYTES
