"""What memory holds that nobody has written yet, or that was freed.

For: one bit pattern that is wrong in every dtype. Not for: when it is written (`scheduler.py`).
"""

from __future__ import annotations

import torch

PATTERN = 0x7FFF
"""As every 16 bits: NaN in each floating dtype (fp8 included); in integers of 16 to 64 bits, close to the greatest."""
_MOST_BYTES = 16 << 20
"""So many bytes at each end are filled; the middle of a greater block stays untouched, so that it takes no host memory."""


def fill(memory: torch.Tensor) -> None:
    """Poison host bytes: a flat uint8 tensor."""
    size = memory.numel()
    if size <= 2 * _MOST_BYTES:
        _fill(memory, size)
    else:
        _fill(memory, _MOST_BYTES)
        _fill(memory[size - _MOST_BYTES :], _MOST_BYTES)


def _fill(memory: torch.Tensor, size: int) -> None:
    even = size - size % 2
    if even:
        (memory if even == memory.numel() else memory[:even]).view(torch.int16).fill_(PATTERN)
    if size > even:
        memory[even:size].fill_(PATTERN & 0xFF)
