"""What memory holds that nobody has written yet, or that was freed.

For: one bit pattern that is wrong in every dtype. Not for: when it is written (`scheduler.py`).
"""

from __future__ import annotations

import ctypes

import torch

PATTERN = 0x7FFF
"""As every 16 bits: NaN in each floating dtype (fp8 included); in integers of 16 to 64 bits, close to the greatest."""
_MOST_BYTES = 16 << 20
"""So many bytes at each end are filled; the middle of a greater block stays untouched, so that it takes no host memory."""
_PIECE = 1 << 16
_piece = (ctypes.c_uint16 * (_PIECE // 2))(*[PATTERN] * (_PIECE // 2))
_piece_address = ctypes.addressof(_piece)
_move = ctypes.memmove


def fill(memory: torch.Tensor) -> None:
    """Poison host bytes: a flat uint8 tensor. Makes no tensor, so that it works in any state of PyTorch's dispatcher."""
    size, address = memory.numel(), memory.data_ptr()
    if size <= _PIECE:
        _move(address, _piece_address, size)
    elif size <= 2 * _MOST_BYTES:
        _fill(address, size)
    else:
        _fill(address, _MOST_BYTES)
        _fill(address + size - _MOST_BYTES, _MOST_BYTES)


def _fill(address: int, size: int) -> None:
    for start in range(0, size, _PIECE):
        _move(address + start, _piece_address, min(_PIECE, size - start))
