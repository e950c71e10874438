"""The values that collectives are tried with, the same on every rank and in the model.

For: cells from a seed, so that a program stays small, and turning cells into tensors and back. Not for: what becomes of them
(`conformance/models/collectives.py`).

What is moved is bytes, every bit pattern of the dtype. What is reduced is numbers whose sum or product is exact in the dtype and does not
overflow, close to its limits: 64-bit integers past 2**53 among them, and fractions.
"""

from __future__ import annotations

import random
from typing import Any

import torch

PRECISION = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}
"""Bits of the significand of each floating dtype."""
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, *PRECISION)
}
"""The dtypes by name."""


def moved_cells(seed: int, rank: int, tensor: int, count: int, dtype: str) -> list[str]:
    """`count` elements as the hexadecimal digits of their bytes."""
    source = random.Random(f"{seed} {rank} {tensor}")
    kind = DTYPES[dtype]
    if kind == torch.bool:
        return [f"{source.randrange(2):02x}" for _ in range(count)]
    return [source.randbytes(kind.itemsize).hex() for _ in range(count)]


def reduced_cells(seed: int, rank: int, tensor: int, count: int, dtype: str, reduction: str, size: int) -> list[Any]:
    """`count` numbers of a rank, to be reduced over `size` ranks."""
    source = random.Random(f"{seed} {rank} {tensor} {reduction}")
    kind = DTYPES[dtype]
    if kind == torch.bool:
        return [source.randrange(2) for _ in range(count)]
    if kind in PRECISION:
        return [_real(source, 2 ** PRECISION[kind], reduction, size) for _ in range(count)]
    bounds = torch.iinfo(kind)
    return [_integer(source, rank, bounds.min, bounds.max, reduction, size) for _ in range(count)]


def _real(source: random.Random, limit: int, reduction: str, size: int) -> float:
    if reduction == "PRODUCT":
        return source.choice([0.5, 1.0, 2.0, -1.0, -0.5])
    most = limit // size if reduction in ("SUM", "AVG") else limit
    return source.choice([source.randint(-most, most), most, -most, 1, 3]) / 4


def _integer(source: random.Random, rank: int, least: int, most: int, reduction: str, size: int) -> int:
    if reduction == "PRODUCT":
        small = [1, 2] if least == 0 else [1, 2, -1]
        room = (most + 1) >> size  # what the others can leave of it
        return source.randint(1, max(1, room - 1)) if rank == 0 else source.choice(small)
    share = size if reduction == "SUM" else 1
    low, high = -(-least // share) if least else 0, most // share
    return source.choice([source.randint(low, high), high, high - 1, low, source.randint(0, min(high, 9))])


def tensor_of(cells: list[Any], shape: list[int], dtype: str, device: torch.device) -> torch.Tensor:
    """A contiguous tensor on a device: of bytes where the cells are text, else of numbers."""
    kind = DTYPES[dtype]
    if cells and isinstance(cells[0], str):
        made = torch.frombuffer(bytearray.fromhex("".join(cells)), dtype=torch.uint8).view(kind)
    else:
        made = torch.tensor(cells, dtype=kind)
    return made.reshape(shape).to(device)


def cells_of(tensor: torch.Tensor, moved: bool) -> list[Any]:
    """The cells of a tensor, waited for on the stream that is current."""
    if tensor.dtype == torch.bool:  # a copy between devices would make a one of every other true byte
        tensor = tensor.view(torch.uint8)
    host = tensor.detach().cpu().reshape(-1)
    if not moved:
        values: list[Any] = host.tolist()
        return values
    width = tensor.dtype.itemsize
    data = bytes(host.view(torch.uint8).tolist()).hex()
    return [data[start : start + 2 * width] for start in range(0, len(data), 2 * width)]


def is_close(found: Any, due: Any, dtype: str, size: int, largest: float) -> bool:
    """Whether a mean is right: divided last, or every part first, each step within the dtype's rounding."""
    if found == due:
        return True
    kind = DTYPES[dtype]
    return kind in PRECISION and abs(found - due) <= 2.0 ** (1 - PRECISION[kind]) * (size + 1) * largest
